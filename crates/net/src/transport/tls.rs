//! TLS over TCP with rustls: a link that wraps a link.
//!
//! A session is one state machine for both directions, so a lock protects it. The lock is held for
//! one system call and the encryption of what it moves.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use super::{Link, Listener, Listening, Opened, Options, Tcp, TlsInfo, Transport};
use crate::Address;

/// How many bytes a session buffers when the socket is not writable.
const WRITE_BUFFER: usize = 64 << 10;
/// More than a session buffers of an incomplete record: records of rustls have at most 18 KiB and a
/// header.
const RESERVED: usize = 20 << 10;
/// With at least this much space, several records are read in one call.
const MIN_BATCH_READ: usize = 64 << 10;

pub(crate) struct Tls;

impl Transport for Tls {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let config = match &options.tls_client {
            Some(config) => config.clone(),
            None => trusting_the_system()?,
        };
        let host = options.host.as_deref().or(address.host()).unwrap_or_default();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let asked_name = match &name {
            ServerName::DnsName(name) => Some(name.as_ref().into()),
            _ => None,
        };
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        match Tcp.connect(address, options)? {
            Opened::Stream(link) => {
                Ok(Opened::Stream(Box::new(TlsLink { asked_name, ..TlsLink::new(link, session.into()) })))
            }
            Opened::Datagrams(_) => unreachable!("TCP is a stream"),
        }
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let config = options.tls_server.clone().ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidInput, "a TLS listener needs a certificate: Options::tls_server")
        })?;
        match Tcp.listen(address, options)? {
            Listening::Streams(listener) => {
                Ok(Listening::Streams(Box::new(TlsListener { listener, config: RwLock::new(config) })))
            }
            Listening::Datagrams(_) => unreachable!("TCP is a stream"),
        }
    }
}

/// A client configuration with the system's trusted roots.
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
            "the system has no trusted root certificates: install them (Debian: ca-certificates), or set Options::tls_client",
        ));
    }
    // Names the provider, because a program with several providers has no default one.
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

struct TlsListener {
    listener: Box<dyn Listener>,
    /// For connections that are accepted from now on.
    config: RwLock<Arc<ServerConfig>>,
}

impl Listener for TlsListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.listener.source()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        let link = self.listener.accept()?;
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Box::new(TlsLink::new(link, session.into())))
    }

    fn local(&self) -> Option<Address> {
        as_tls(self.listener.local())
    }

    fn set_tls_server(&self, config: Arc<ServerConfig>) -> bool {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        true
    }
}

fn as_tls(address: Option<Address>) -> Option<Address> {
    format!("tls://{}", address?.to_string().strip_prefix("tcp://")?).parse().ok()
}

struct TlsLink {
    link: Box<dyn Link>,
    /// The host name that a client asked for.
    asked_name: Option<Box<str>>,
    session: Mutex<Connection>,
    /// The close alert is among the data to be written.
    finished: AtomicBool,
}

/// The inner link, as rustls reads and writes it.
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
        session.set_buffer_limit(Some(WRITE_BUFFER));
        TlsLink { link, asked_name: None, session: Mutex::new(session), finished: AtomicBool::new(false) }
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

    /// Reads from the link and processes it. Returns 0 if the peer has ended.
    fn read_in(&self, session: &mut Connection) -> io::Result<usize> {
        let read = session.read_tls(&mut Wire(&*self.link))?;
        self.process(session).map(|()| read)
    }

    /// Processes what the session has read.
    fn process(&self, session: &mut Connection) -> io::Result<()> {
        session.process_new_packets().map(drop).map_err(|error| {
            // The peer gets an alert, if it still reads.
            self.write_out(session).ok();
            io::Error::new(ErrorKind::InvalidData, error)
        })
    }

    /// Fills the buffer with one read and decrypts in place; the session alone would read at most
    /// one record per call. The plaintext is shorter than the ciphertext, except for the part of a
    /// record that the session has buffered before. [`RESERVED`] reserves space for that part.
    fn read_batch(&self, session: &mut Connection, buffer: &mut [u8]) -> io::Result<usize> {
        // Reports an error that the session found earlier, behind data that was read first.
        self.process(session)?;
        let end = RESERVED + self.link.read(&mut buffer[RESERVED..])?;
        let (mut out, mut fed) = (0, RESERVED);
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
                // The session reports the error again after this data has been read.
                Err(_) if out > 0 => return Ok(out),
                Err(error) => return Err(error),
            }
        }
        if end == RESERVED {
            // The peer has ended: let the session know.
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
                0..MIN_BATCH_READ => self.read_in(&mut session).map(|_| 0)?,
                _ => self.read_batch(&mut session, buffer)?,
            };
            // A response to what was read, such as a key update. What cannot be written now is
            // written later.
            match self.write_out(&mut session) {
                // After our own end, a response that cannot be written is not needed.
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
        // Buffered data goes first, so that at most one buffer is kept.
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
            // The close alert has to come before the end of the stream, otherwise the peer takes it
            // for a truncation attack.
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

    fn tls(&self) -> Option<TlsInfo> {
        TlsInfo::of(&self.lock(), self.asked_name.as_deref())
    }
}
