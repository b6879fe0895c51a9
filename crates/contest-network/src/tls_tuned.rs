//! Messages behind their length in a TLS session over TCP on loopback by rustls, as fast as that can be written: see
//! [`super::frames`]. What leaves together is ciphered together, in records of 16 KiB, and sent by one call; one read takes
//! whatever has come, which the session is then fed from, where its own reads take 4 KiB.
//!
//! A session is one state machine for both directions. It is locked while it ciphers, and not while anybody sends or waits.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use rustls::Connection;

use super::framed_tuned::Lengths;
use super::frames::{AT_ONCE, Inlet, Outlet, Receiving, Sending, Socket};
use super::tls::{VERSION, connected};

/// `network/tls-tuned`.
pub(super) struct TlsTuned;

impl Mechanism for TlsTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/tls-tuned")
            .version(VERSION)
            .implementation(
                "TLS over TCP on 127.0.0.1, TCP_NODELAY, by rustls: a length of 4 bytes and the message, many by one send and one recv",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .waits(&[Wait::Block, Wait::Adaptive])
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TlsTuned {
    type Tx = Sending<Lengths, Ciphering>;
    type Rx = Receiving<Lengths, Deciphering>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let (session, stream) = connected(role, rendezvous)?;
        let session = Session(Arc::new(Mutex::new(session)));
        let socket = Socket::new(stream, case);
        let lengths = Lengths { len: case.payload.len() };
        let to = Ciphering { session: session.clone(), socket: socket.another()?, records: Vec::new() };
        let from = Deciphering { session, socket, records: vec![0; AT_ONCE], start: 0, end: 0 };
        let tx = Sending::new(lengths, to, case);
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(Receiving::new(lengths, from)) }]))
    }
}

/// The session of both directions.
#[derive(Clone)]
struct Session(Arc<Mutex<Connection>>);

impl Session {
    #[inline(always)]
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where frames are ciphered.
pub(super) struct Ciphering {
    session: Session,
    socket: Socket,
    /// What is ready to be sent.
    records: Vec<u8>,
}

impl Outlet for Ciphering {
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        let mut rest = frames;
        while !rest.is_empty() {
            let mut session = self.session.lock();
            // As much as it keeps: 64 KiB.
            let taken = session.writer().write(rest)?;
            rest = &rest[taken..];
            while session.wants_write() {
                session.write_tls(&mut self.records)?;
            }
            drop(session);
            self.socket.send(&self.records)?;
            self.records.clear();
        }
        Ok(())
    }
}

/// Where frames are deciphered.
pub(super) struct Deciphering {
    session: Session,
    socket: Socket,
    records: Vec<u8>,
    /// What was read and the session has not been fed with.
    start: usize,
    end: usize,
}

impl Inlet for Deciphering {
    fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(read) = self.deciphered(space)? {
                return Ok(read);
            }
            (self.start, self.end) = (0, self.socket.fill(&mut self.records)?);
            if self.end == 0 {
                return Ok(0);
            }
        }
    }
}

impl Deciphering {
    /// Feeds the session until it has something to give; nothing where there is too little to feed it with.
    fn deciphered(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
        let mut session = self.session.lock();
        loop {
            match session.reader().read(space) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read.map(Some),
            }
            if self.start == self.end {
                return Ok(None);
            }
            self.start += session.read_tls(&mut &self.records[self.start..self.end])?;
            session.process_new_packets().map_err(io::Error::other)?;
        }
    }
}
