//! TLS over TCP, by rustls: a link around a link.
//!
//! A session is one state machine for both directions, so a lock is held while it is fed or asked: for as long as one system
//! call takes, and the ciphering of what it moves.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use super::{Link, Listener, Listening, Opened, Options, Tcp, Transport};
use crate::Address;

/// How much a session keeps of what was written and the socket has no room for.
const KEPT: usize = 64 << 10;
/// More than a session has of a record that is not whole: those of rustls are no longer than 18 KiB and a header.
const BEFORE: usize = 20 << 10;
/// Where there is room for so much, what comes is read at once.
const MUCH: usize = 64 << 10;

pub(crate) struct Tls;

impl Transport for Tls {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let config = match &options.tls_client {
            Some(config) => config.clone(),
            None => trusting_the_system()?,
        };
        let host = options.host.as_deref().or(address.host()).unwrap_or_default();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        match Tcp.connect(address, options)? {
            Opened::Stream(link) => Ok(Opened::Stream(Box::new(TlsLink::new(link, session.into())))),
            Opened::Datagrams(_) => unreachable!("TCP is a stream"),
        }
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let config = options.tls_server.clone().ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "a TLS listener needs a certificate: Options::tls_server")
        })?;
        match Tcp.listen(address, options)? {
            Listening::Streams(listener) => Ok(Listening::Streams(Box::new(TlsListener { listener, config }))),
            Listening::Datagrams(_) => unreachable!("TCP is a stream"),
        }
    }
}

/// A client that trusts whom the system trusts.
fn trusting_the_system() -> io::Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::new(
            ErrorKind::NotFound,
            "the system trusts nobody: install its certificates (Debian: ca-certificates), or give Options::tls_client",
        ));
    }
    // Named, as a program that has another besides has no usual one.
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

struct TlsListener {
    listener: Box<dyn Listener>,
    config: Arc<ServerConfig>,
}

impl Listener for TlsListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.listener.source()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        let link = self.listener.accept()?;
        let session = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        Ok(Box::new(TlsLink::new(link, session.into())))
    }

    fn local(&self) -> Option<Address> {
        as_tls(self.listener.local())
    }
}

fn as_tls(address: Option<Address>) -> Option<Address> {
    format!("tls://{}", address?.to_string().strip_prefix("tcp://")?).parse().ok()
}

struct TlsLink {
    link: Box<dyn Link>,
    session: Mutex<Connection>,
    /// The farewell is among what is to be written.
    finished: AtomicBool,
}

/// The link as rustls reads from it and writes to it.
struct Wire<'a>(&'a dyn Link);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.write(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsLink {
    fn new(link: Box<dyn Link>, mut session: Connection) -> TlsLink {
        session.set_buffer_limit(Some(KEPT));
        TlsLink { link, session: Mutex::new(session), finished: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what the session has for the peer.
    fn write_out(&self, session: &mut Connection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut Wire(&*self.link))?;
        }
        Ok(())
    }

    /// Reads from the link, and has the session look at it. 0 where the peer has ended.
    fn read_in(&self, session: &mut Connection) -> io::Result<usize> {
        let read = session.read_tls(&mut Wire(&*self.link))?;
        self.process(session).map(|()| read)
    }

    /// Has the session look at what it was fed with.
    fn process(&self, session: &mut Connection) -> io::Result<()> {
        session.process_new_packets().map(drop).map_err(|error| {
            // The peer is told, if it still listens.
            self.write_out(session).ok();
            io::Error::new(ErrorKind::InvalidData, error)
        })
    }

    /// Reads as much as there is room for, where the session would read a record at the most by each call, and deciphers it in the
    /// same place: what comes out is shorter than what went in, but for what the session had of a record before, for which there is
    /// [`BEFORE`].
    fn read_much(&self, session: &mut Connection, buffer: &mut [u8]) -> io::Result<usize> {
        // What it found before, behind something that was read first.
        self.process(session)?;
        let end = BEFORE + self.link.read(&mut buffer[BEFORE..])?;
        let (mut out, mut fed) = (0, BEFORE);
        while fed < end {
            fed += session.read_tls(&mut &buffer[fed..end])?;
            let processed = self.process(session);
            match session.reader().read(&mut buffer[out..fed]) {
                Ok(0) if out < fed => return Ok(out),
                Ok(read) => out += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match processed {
                Ok(()) => {}
                // It says so again once what came before has been read.
                Err(_) if out > 0 => return Ok(out),
                Err(error) => return Err(error),
            }
        }
        if end == BEFORE {
            // The peer has ended: the session is to know.
            session.read_tls(&mut io::empty())?;
            self.process(session)?;
        }
        Ok(out)
    }
}

impl Link for TlsLink {
    fn source(&self) -> BorrowedFd<'_> {
        self.link.source()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut session = self.lock();
        loop {
            match session.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            let read = match buffer.len() {
                0..MUCH => self.read_in(&mut session).map(|_| 0)?,
                _ => self.read_much(&mut session, buffer)?,
            };
            // An answer to what came, as to a request for new keys. What there is no room for is written later.
            match self.write_out(&mut session) {
                // Where nothing more may be written, an answer is not missed.
                Err(error) if error.kind() != ErrorKind::WouldBlock && !self.finished.load(Ordering::Relaxed) => {
                    return Err(error);
                }
                _ if read > 0 => return Ok(read),
                _ => {}
            }
        }
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut session = self.lock();
        // What was kept goes first, so that no more than one buffer is ever kept.
        self.write_out(&mut session)?;
        let taken = session.writer().write_vectored(parts)?;
        match self.write_out(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    fn connected(&self) -> io::Result<()> {
        self.link.connected()?;
        let mut session = self.lock();
        while session.is_handshaking() {
            if session.wants_write() {
                self.write_out(&mut session)?;
            } else if self.read_in(&mut session)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        match self.write_out(&mut session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.write_out(&mut self.lock())
    }

    fn finish(&self) -> io::Result<()> {
        let mut session = self.lock();
        if !self.finished.swap(true, Ordering::Relaxed) {
            session.send_close_notify();
        }
        match self.write_out(&mut session) {
            // The peer would take it for an attack if the end came before the farewell.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            _ => self.link.finish(),
        }
    }

    fn peer(&self) -> Option<Address> {
        as_tls(self.link.peer())
    }

    fn local(&self) -> Option<Address> {
        as_tls(self.link.local())
    }
}
