//! Length-prefixed messages in a rustls session over TCP, optimised for speed; see
//! [`super::frames`].
//!
//! A batch is encrypted in records of 16 KiB and sent with one call. One read takes everything that
//! has arrived and feeds it to the session. (The session's own reads take 4 KiB.)
//!
//! A session is one state machine for both directions. It is locked while it encrypts or decrypts,
//! but not while a thread sends or waits.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
use rustls::Connection;

use super::framed_tuned::Lengths;
use super::frames::{ByteSource, FrameSink, READ_BYTES, RecvEnd, SendEnd, Socket};
use super::tls::{VERSION, connected};

/// `network/tls-tuned`.
pub(super) struct TlsTuned;

impl Mechanism for TlsTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/tls-tuned")
            .version(VERSION)
            .implementation(
                "TLS over TCP, TCP_NODELAY, by rustls: a length of 4 bytes and the message, many by one send and one recv",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .waits(&[Wait::Block, Wait::Adaptive])
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TlsTuned {
    type Tx = SendEnd<Lengths, Encryptor>;
    type Rx = RecvEnd<Lengths, Decryptor>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let (session, stream) = connected(role, rendezvous)?;
        let session = Session(Arc::new(Mutex::new(session)));
        let socket = Socket::new(stream, case);
        let lengths = Lengths { len: case.payload.len() };
        let to = Encryptor { session: session.clone(), socket: socket.another()?, records: Vec::new() };
        let from = Decryptor { session, socket, records: vec![0; READ_BYTES], start: 0, end: 0 };
        let tx = SendEnd::new(lengths, to, case);
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(RecvEnd::new(lengths, from)) }]))
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

/// A sink that encrypts frames.
pub(super) struct Encryptor {
    session: Session,
    socket: Socket,
    /// Encrypted records to be sent.
    records: Vec<u8>,
}

impl FrameSink for Encryptor {
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        let mut rest = frames;
        while !rest.is_empty() {
            let mut session = self.session.lock();
            // The session accepts as much as it can buffer: 64 KiB.
            let accepted = session.writer().write(rest)?;
            rest = &rest[accepted..];
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

/// A source of decrypted bytes.
pub(super) struct Decryptor {
    session: Session,
    socket: Socket,
    records: Vec<u8>,
    /// The received bytes that the session has not read yet.
    start: usize,
    end: usize,
}

impl ByteSource for Decryptor {
    fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(read) = self.decrypt_into(space)? {
                return Ok(read);
            }
            (self.start, self.end) = (0, self.socket.fill(&mut self.records)?);
            if self.end == 0 {
                return Ok(0);
            }
        }
    }
}

impl Decryptor {
    /// Feeds the session until it returns decrypted bytes. Returns `None` if it needs more received
    /// bytes.
    fn decrypt_into(&mut self, space: &mut [u8]) -> io::Result<Option<usize>> {
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
