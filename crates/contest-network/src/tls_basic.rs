//! Length-prefixed messages in a rustls session over TCP, as in a tutorial: a blocking
//! stream, with one call for the length and one for the message at both ends.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::rc::Rc;

use anyhow::Result;
use estafette_contest_common::own_thread::OwnThread;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use rustls::{Connection, StreamOwned};

use super::framed_basic::{RecvEnd, SendEnd, ends};
use super::tls::{VERSION, connected};

/// `network/tls-basic`.
pub(super) struct TlsBasic;

impl Mechanism for TlsBasic {
    fn spec(&self) -> Spec {
        Spec::new("network/tls-basic")
            .version(VERSION)
            .implementation("TLS over TCP, TCP_NODELAY, by rustls' StreamOwned: a length of 4 bytes, then the message")
            .between_hosts(true)
            .tier(Tier::Standard)
    }
}

impl Transport<Raw> for TlsBasic {
    type Tx = SendEnd<Shared>;
    type Rx = RecvEnd<Shared>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let (session, stream) = connected(role, rendezvous)?;
        let stream: Box<dyn Stream> = match session {
            Connection::Client(session) => Box::new(StreamOwned::new(session, stream)),
            Connection::Server(session) => Box::new(StreamOwned::new(session, stream)),
        };
        let stream = Rc::new(RefCell::new(stream));
        let (to, from) = (OwnThread::new(Rc::clone(&stream)), OwnThread::new(stream));
        Ok(ends(Shared(to), Shared(from), case, role))
    }
}

/// A client's or a server's stream.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// A session's stream, which both ends of a party share.
pub(super) struct Shared(OwnThread<Rc<RefCell<Box<dyn Stream>>>>);

impl Read for Shared {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}
