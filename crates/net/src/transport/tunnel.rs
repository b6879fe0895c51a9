//! A link through a proxy: the dialogue with the proxy is a part of connecting.
//!
//! The dialogue looks at what has arrived (`MSG_PEEK`) and then reads exactly its own part. So it
//! reads nothing ahead, and once the proxy has connected, the link is the socket and nothing more.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use rustix::net::{RecvFlags, recv};

use super::socket::SocketLink;
use super::{Link, WriteInterest};
use crate::Address;
use crate::lock::lock;
use crate::proxy::{Dialogue, ProxyFailure, Step, Tunnel};

pub(super) struct TunnelLink {
    link: SocketLink,
    tunnel: Arc<Tunnel>,
    state: Mutex<State>,
}

enum State {
    /// The connection to the proxy is being opened.
    Dialling,
    /// `unsent` goes to the proxy before its next answer is received.
    Talking {
        dialogue: Dialogue,
        unsent: Vec<u8>,
    },
    Connected,
}

impl TunnelLink {
    /// `link` is connecting to the proxy.
    pub(super) fn new(link: SocketLink, tunnel: Arc<Tunnel>) -> TunnelLink {
        TunnelLink { link, tunnel, state: Mutex::new(State::Dialling) }
    }

    /// Continues the dialogue until it would block. Returns once the proxy has connected.
    fn talk(&self, dialogue: &mut Dialogue, unsent: &mut Vec<u8>) -> io::Result<()> {
        loop {
            while !unsent.is_empty() {
                let written = self.uninterrupted(|| self.link.write(&[IoSlice::new(unsent)]))?;
                unsent.drain(..written);
            }
            match self.receive(dialogue)? {
                Step::Receive => {}
                Step::Send(bytes) => *unsent = bytes,
                Step::Connected => return Ok(()),
            }
        }
    }

    /// Receives what has arrived of an answer, and nothing behind it.
    fn receive(&self, dialogue: &mut Dialogue) -> io::Result<Step> {
        let mut buffer = [0; 1024];
        let (arrived, _) = self.uninterrupted(|| Ok(recv(self.link.source(), &mut buffer, RecvFlags::PEEK)?))?;
        if arrived == 0 {
            return Err(self.tunnel.failed(ProxyFailure::Ended));
        }
        let (consumed, step) = dialogue.receive(&buffer[..arrived]).map_err(|failure| self.tunnel.failed(failure))?;
        let mut rest = consumed;
        while rest > 0 {
            match self.uninterrupted(|| self.link.read(&mut buffer[..rest]))? {
                // A reset came after the look.
                0 => return Err(self.tunnel.failed(ProxyFailure::Ended)),
                read => rest -= read,
            }
        }
        Ok(step)
    }

    /// Makes a system call, again if a signal interrupts it. Names the proxy in an error.
    fn uninterrupted<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result.map_err(|error| self.failed(error)),
            }
        }
    }

    /// Names the proxy in an error of its connection.
    fn failed(&self, error: io::Error) -> io::Error {
        match error.kind() {
            ErrorKind::WouldBlock => error,
            kind => self.tunnel.failed(ProxyFailure::Io { kind, what: error.to_string() }),
        }
    }
}

impl Link for TunnelLink {
    fn source(&self) -> BorrowedFd<'_> {
        self.link.source()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.link.read(buffer)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.link.write(parts)
    }

    fn short_read_is_last(&self) -> bool {
        self.link.short_read_is_last()
    }

    fn write_interest(&self) -> WriteInterest {
        self.link.write_interest()
    }

    fn connected(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Dialling) {
            self.link.connected().map_err(|error| self.failed(error))?;
            let (dialogue, unsent) = self.tunnel.begin();
            *state = State::Talking { dialogue, unsent };
        }
        if let State::Talking { dialogue, unsent } = &mut *state {
            self.talk(dialogue, unsent)?;
            *state = State::Connected;
            self.tunnel.set_connected();
        }
        Ok(())
    }

    fn finish(&self) -> io::Result<()> {
        self.link.finish()
    }

    fn peer(&self) -> Option<Address> {
        self.link.peer()
    }

    fn local(&self) -> Option<Address> {
        self.link.local()
    }
}
