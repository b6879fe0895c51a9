//! TLS 1.3 over a TCP connection, and the proof of the token on both sides.
//!
//! The certificate of the peer is new in each run and nobody signs it, so it says nothing. The
//! token does: see [`super::token`]. The coordinator proves first, and the peer sends nothing
//! before.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use estafette_measure::hosts::SessionLink;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, ServerConfig, ServerConnection, SignatureScheme,
};

use super::token::{PROOF_LEN, Token, TokenSide};

/// The label of the keying material (RFC 5705).
const LABEL: &[u8] = b"EXPORTER-estafette-peer";
/// The name for which the peer's certificate is made. It is not checked.
const NAME: &str = "estafette";
/// The delay after a wrong token.
const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(500);
/// How long the other side may not receive what is sent to it.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of plain text that is encrypted at once.
const CHUNK: usize = 16 * 1024;

/// Selected explicitly, because other libraries may enable another provider.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The peer's configuration, with a certificate made for it.
///
/// # Errors
/// If no certificate can be made.
pub(super) fn server_config() -> Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    // Each session proves the token again.
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Until when a link has to receive. Its reader fails after that.
#[derive(Clone, Debug)]
pub(super) struct ReadDeadline(Arc<Mutex<Option<Instant>>>);

impl ReadDeadline {
    /// Lets the link wait for as long as the session lasts.
    pub(super) fn lift(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the next read may wait. `None` for as long as it takes.
    fn left(&self) -> io::Result<Option<Duration>> {
        self.lock().map(left_until).transpose()
    }
}

/// The coordinator's side: encrypts the connection, proves the token, and checks the peer's proof.
/// All of it ends before the deadline, and so does what the link receives until that is lifted.
///
/// # Errors
/// If the other side is no peer, does not know the token, or takes too long.
pub(super) fn connect(stream: TcpStream, token: &Token, deadline: Instant) -> Result<(SessionLink, ReadDeadline)> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME)?)?;
    let mut timed = Timed { stream: &stream, deadline };
    while connection.is_handshaking() {
        connection.complete_io(&mut timed).map_err(|error| no_peer(&error))?;
    }
    let keying = connection.export_keying_material([0; 32], LABEL, None)?;
    let mut tls = rustls::Stream::new(&mut connection, &mut timed);
    tls.write_all(&token.proof(TokenSide::Coordinator, &keying)).context("proving the token")?;
    let mut proof = [0; PROOF_LEN];
    if let Err(error) = tls.read_exact(&mut proof) {
        if is_timeout(&error) {
            return Err(no_peer(&error));
        }
        bail!("the peer refuses the token: use the one that `estafette peer` printed or was given there");
    }
    if !token.is_proof(&proof, TokenSide::Peer, &keying) {
        bail!("what answers there does not know the token: it is another peer, or somebody is between the two hosts");
    }
    link(connection.into(), stream, deadline)
}

/// The peer's side: encrypts the connection, checks the coordinator's proof, and proves the token.
/// All of it ends before the deadline, but for a delay after a wrong token. So does what the link
/// receives until that is lifted.
///
/// # Errors
/// If the other side is no coordinator, does not know the token, or takes too long.
pub(super) fn accept(
    stream: TcpStream,
    config: &Arc<ServerConfig>,
    token: &Token,
    deadline: Instant,
) -> Result<(SessionLink, ReadDeadline)> {
    let mut connection = ServerConnection::new(Arc::clone(config))?;
    let mut timed = Timed { stream: &stream, deadline };
    while connection.is_handshaking() {
        connection.complete_io(&mut timed).context("the TLS handshake failed")?;
    }
    let keying = connection.export_keying_material([0; 32], LABEL, None)?;
    let mut tls = rustls::Stream::new(&mut connection, &mut timed);
    let mut proof = [0; PROOF_LEN];
    tls.read_exact(&mut proof).context("it sent no token")?;
    if !token.is_proof(&proof, TokenSide::Coordinator, &keying) {
        std::thread::sleep(WRONG_TOKEN_DELAY);
        bail!("it has a wrong token");
    }
    tls.write_all(&token.proof(TokenSide::Peer, &keying)).context("proving the token")?;
    link(connection.into(), stream, deadline)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The error of a port where something else than a peer answers, or nothing.
fn no_peer(error: &io::Error) -> anyhow::Error {
    let why = if is_timeout(error) { String::from("it does not answer in time") } else { error.to_string() };
    anyhow!("no Estafette peer answers there ({why}): check the port, and start `estafette peer --listen` there")
}

/// Accepts every certificate, and checks that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General(String::from("TLS 1.2 is not used")))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection whose reads and writes all end before a deadline.
struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Duration> {
        left_until(self.deadline)
    }
}

fn left_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Divides an encrypted connection into halves for two threads.
///
/// The lock is never held while a half waits for the network. So neither waits for the other, and
/// both sides can send much at the same time.
fn link(connection: Connection, stream: TcpStream, deadline: Instant) -> Result<(SessionLink, ReadDeadline)> {
    let connection = Arc::new(Mutex::new(connection));
    let deadline = ReadDeadline(Arc::new(Mutex::new(Some(deadline))));
    let reader = Reader {
        connection: Arc::clone(&connection),
        stream: stream.try_clone()?,
        deadline: deadline.clone(),
        plain: Vec::new(),
    };
    stream.set_write_timeout(Some(SEND_TIMEOUT))?;
    let writer = Writer { connection, stream: stream.try_clone()? };
    let close = move || drop(stream.shutdown(Shutdown::Both));
    Ok((SessionLink { reader: Box::new(reader), writer: Box::new(writer), close: Box::new(close) }, deadline))
}

fn locked(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Reader {
    connection: Arc<Mutex<Connection>>,
    stream: TcpStream,
    deadline: ReadDeadline,
    /// Decrypted bytes that nobody has read yet.
    plain: Vec<u8>,
}

impl Reader {
    /// Moves what is decrypted from the connection to `plain`. Returns whether that was the end.
    fn take_plain(connection: &mut Connection, plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        loop {
            match connection.reader().read(&mut chunk) {
                Ok(0) => return Ok(true),
                Ok(len) => plain.extend(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut encrypted = [0; CHUNK];
        let mut is_end = Reader::take_plain(&mut locked(&self.connection), &mut self.plain)?;
        while self.plain.is_empty() && !is_end {
            self.stream.set_read_timeout(self.deadline.left()?)?;
            let len = self.stream.read(&mut encrypted)?;
            if len == 0 {
                return Ok(0);
            }
            let mut bytes = &encrypted[..len];
            let mut connection = locked(&self.connection);
            while !bytes.is_empty() {
                connection.read_tls(&mut bytes)?;
                connection.process_new_packets().map_err(io::Error::other)?;
                is_end |= Reader::take_plain(&mut connection, &mut self.plain)?;
            }
        }
        let len = buffer.len().min(self.plain.len());
        buffer[..len].copy_from_slice(&self.plain[..len]);
        self.plain.drain(..len);
        Ok(len)
    }
}

struct Writer {
    connection: Arc<Mutex<Connection>>,
    stream: TcpStream,
}

impl Write for Writer {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut encrypted = Vec::new();
        let mut connection = locked(&self.connection);
        let len = connection.writer().write(&buffer[..buffer.len().min(CHUNK)])?;
        while connection.wants_write() {
            connection.write_tls(&mut encrypted)?;
        }
        drop(connection);
        self.stream.write_all(&encrypted)?;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_slow_greeting_ends_at_the_deadline_and_a_session_has_none() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (token, later) = (Token::random().unwrap(), Instant::now() + Duration::from_secs(300));
        let of_slow = token.clone();
        let slow = thread::spawn(move || {
            let stream = TcpStream::connect(address).unwrap();
            let (mut link, _) = connect(stream, &of_slow, later).unwrap();
            // Each byte comes in time, and the greeting never.
            while link.writer.write_all(&[0]).is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let (stream, _) = listener.accept().unwrap();
        let (mut link, deadline) = accept(stream, &server_config().unwrap(), &token, later).unwrap();
        *deadline.lock() = Some(Instant::now() + Duration::from_millis(100));
        let error = loop {
            match link.reader.read(&mut [0; 1]) {
                Ok(len) => assert_eq!(len, 1, "the connection is open"),
                Err(error) => break error,
            }
        };
        assert!(is_timeout(&error), "{error}");
        deadline.lift();
        link.reader.read_exact(&mut [0; 100]).unwrap();
        (link.close)();
        slow.join().unwrap();
    }

    #[test]
    fn a_proof_for_another_session_is_refused_by_both_sides() {
        // A man in the middle passes on what he gets: here the proof of one session to another.
        let config = server_config().unwrap();
        let keying = || {
            let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (theirs, _) = listener.accept().unwrap();
            let config = Arc::clone(&config);
            let serving = thread::spawn(move || {
                let mut server = ServerConnection::new(config).unwrap();
                while server.is_handshaking() {
                    server.complete_io(&mut &theirs).unwrap();
                }
                server.export_keying_material([0; 32], LABEL, None).unwrap()
            });
            let client = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&TLS13])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider())))
                .with_no_client_auth();
            let mut client = ClientConnection::new(Arc::new(client), ServerName::try_from(NAME).unwrap()).unwrap();
            while client.is_handshaking() {
                client.complete_io(&mut &stream).unwrap();
            }
            while client.wants_write() {
                client.write_tls(&mut &stream).unwrap();
            }
            let keying = client.export_keying_material([0; 32], LABEL, None).unwrap();
            drop(stream);
            assert_eq!(keying, serving.join().unwrap(), "both sides have the same");
            keying
        };
        let [one, other] = [keying(), keying()];
        let token = Token::random().unwrap();
        for side in [TokenSide::Coordinator, TokenSide::Peer] {
            assert!(token.is_proof(&token.proof(side, &one), side, &one));
            assert!(!token.is_proof(&token.proof(side, &one), side, &other));
        }
    }
}
