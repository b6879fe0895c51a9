//! Length-prefixed messages on a TCP or UNIX stream socket, as in a tutorial.
//!
//! Both ends use one call for the length and one for the message. Several writers share the stream
//! with a lock. With several connections, one thread uses `poll` and reads one message from each
//! readable connection.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::byte_stream::SocketEnd;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::multi_connection::{self, with_multi_sender};
use super::socket::SocketKind;

/// `network/framed-basic` or `network/unix-framed-basic`.
pub(super) struct FramedBasic {
    name: &'static str,
    implementation: &'static str,
    kind: SocketKind,
    tier: Tier,
}

pub(super) const TCP: FramedBasic = FramedBasic {
    name: "network/framed-basic",
    implementation: "TCP, TCP_NODELAY: a length of 4 bytes, then the message, by write_all and read_exact, poll",
    kind: SocketKind::Tcp,
    tier: Tier::Suite,
};

pub(super) const UNIX: FramedBasic = FramedBasic {
    name: "network/unix-framed-basic",
    implementation: "a UNIX stream socket: a length of 4 bytes, then the message, by write_all and read_exact, poll",
    kind: SocketKind::Unix,
    tier: Tier::Standard,
};

impl Mechanism for FramedBasic {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .implementation(self.implementation)
            .patterns(&with_multi_sender(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread]))
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .between_hosts(self.kind == SocketKind::Tcp)
            .tier(self.tier)
    }
}

impl Transport<Raw> for FramedBasic {
    type Tx = SendEnd<SocketEnd>;
    type Rx = Incoming;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        if multi_connection::has_multiple_senders(case) {
            let sockets = self.kind.connect_all(case, role, rendezvous)?.into_iter().map(SocketEnd::new).collect();
            return multi_sender_ends(sockets, case, role);
        }
        let [to, from] = self.kind.connect_pair(role, rendezvous)?.map(SocketEnd::new);
        let len = case.payload.len();
        let rx = Incoming::One(RecvEnd::new(from, len));
        Ok(Ends::both(role, SendEnd::new(Stream::Own(to), len), rx))
    }
}

/// Creates both ends of a party, over a blocking stream.
pub(super) fn ends<W: Write, R: Read>(to: W, from: R, case: &Case, role: Role) -> Ends<SendEnd<W>, RecvEnd<R>> {
    let len = case.payload.len();
    Ends::both(role, SendEnd::new(Stream::Own(to), len), RecvEnd::new(from, len))
}

/// Creates the ends of a party with several senders, over all its connections.
fn multi_sender_ends(streams: Vec<SocketEnd>, case: &Case, role: Role) -> Result<Ends<SendEnd<SocketEnd>, Incoming>> {
    let len = case.payload.len();
    multi_connection::ends(
        case,
        role,
        streams,
        |stream| Ok(SendEnd::new(Stream::Own(stream), len)),
        |stream| {
            let shared = Arc::new(Mutex::new(stream));
            Ok((0..case.producers).map(|_| SendEnd::new(Stream::Shared(Arc::clone(&shared)), len)).collect())
        },
        |stream| Ok(Incoming::One(RecvEnd::new(stream, len))),
        |streams| {
            let connections = streams.into_iter().map(|stream| RecvEnd::new(stream, len)).collect();
            Ok(Incoming::Many(Polled { connections, ready: Vec::new() }))
        },
    )
}

/// What a sending end writes to.
enum Stream<W> {
    Own(W),
    Shared(Arc<Mutex<W>>),
}

/// The sending end.
pub(super) struct SendEnd<W> {
    stream: Stream<W>,
    message: Buffer,
}

impl<W: Write> SendEnd<W> {
    fn new(stream: Stream<W>, len: usize) -> SendEnd<W> {
        SendEnd { stream, message: Buffer::new(len) }
    }

    fn send(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Own(stream) => write(stream, &self.message),
            Stream::Shared(stream) => write(&mut *stream.lock().unwrap_or_else(PoisonError::into_inner), &self.message),
        }
    }
}

fn write(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = (message.len() as u32).to_be_bytes();
    stream.write_all(&length)?;
    stream.write_all(message)
}

impl<W: Write + Send + 'static> Tx for SendEnd<W> {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.message);
        self.send()
    }
}

/// The receiving end.
pub(super) struct RecvEnd<R> {
    stream: R,
    message: Vec<u8>,
    /// The longest message of the case, in bytes.
    max_len: usize,
}

impl<R: Read> RecvEnd<R> {
    fn new(stream: R, len: usize) -> RecvEnd<R> {
        RecvEnd { stream, message: Vec::new(), max_len: len }
    }

    fn read(&mut self) -> io::Result<()> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > self.max_len {
            return Err(io::Error::other(format!("a message of {length} bytes")));
        }
        self.message.resize(length, 0);
        self.stream.read_exact(&mut self.message)
    }
}

impl<R: Read + Send + 'static> Rx for RecvEnd<R> {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.read().map(|()| verifier.bytes(&self.message))
    }
}

/// The receiving end of one connection or of all connections.
pub(super) enum Incoming {
    One(RecvEnd<SocketEnd>),
    Many(Polled),
}

impl Rx for Incoming {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self {
            Incoming::One(one) => one.read().map(|()| verifier.bytes(&one.message)),
            Incoming::Many(several) => several.read(verifier),
        }
    }
}

/// Connections that one thread reads.
pub(super) struct Polled {
    connections: Vec<RecvEnd<SocketEnd>>,
    /// The readable connections.
    ready: Vec<usize>,
}

impl Polled {
    fn read(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            let Some(at) = self.ready.pop() else {
                self.wait()?;
                continue;
            };
            match self.connections[at].read() {
                // A connection that has sent its last message ends. Those still to be read have
                // lower indices, so they do not move.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.connections.len() > 1 => {
                    self.connections.swap_remove(at);
                }
                read => return read.map(|()| verifier.bytes(&self.connections[at].message)),
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let polled = self.connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
        let mut polled: Vec<_> = polled.collect();
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().enumerate().filter(|(_, socket)| !socket.revents().is_empty());
        self.ready.extend(ready.map(|(at, _)| at));
        Ok(())
    }
}
