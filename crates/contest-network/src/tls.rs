//! Parts shared by all encrypted mechanisms: a certificate, which the consumer creates and the
//! producer reads from the instance's directory; and a rustls session over TCP on loopback.

use std::fs;
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::{Context, Result};
use estafette_measure::Rendezvous;
use estafette_measure::case::Role;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};

use super::tcp_connection;

/// The version of rustls.
pub(super) const VERSION: &str = concat!("rustls ", env!("LOCKED_RUSTLS"));
/// The host name in the certificate.
pub(super) const HOST: &str = "localhost";
const HOSTS: [&str; 2] = [HOST, "127.0.0.1"];

/// Creates a certificate and the consumer's configuration as a server.
pub(super) fn server(rendezvous: &mut Rendezvous) -> Result<ServerConfig> {
    let path = rendezvous.dir().join("certificate");
    let made = rcgen::generate_simple_self_signed(HOSTS.map(str::to_owned))?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    fs::write(&path, made.cert.der()).with_context(|| format!("writing {}", path.display()))?;
    rendezvous.publish("certificate", "written")?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())?;
    // No session tickets. A client that only sends does not read them, and closing a socket with
    // unread data resets the connection.
    (config.send_tls13_tickets, config.max_tls13_tickets) = (0, 0);
    Ok(config)
}

/// Returns the producer's configuration, which trusts only that certificate.
pub(super) fn client(rendezvous: &mut Rendezvous) -> Result<ClientConfig> {
    let path = rendezvous.dir().join("certificate");
    rendezvous.request("certificate")?;
    let certificate = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Selected explicitly, because other libraries may enable another provider.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns the party's session after the handshake, and its connection with `TCP_NODELAY`.
pub(super) fn connected(role: Role, rendezvous: &mut Rendezvous) -> Result<(Connection, TcpStream)> {
    let mut session: Connection = match role {
        Role::Consumer(_) => ServerConnection::new(Arc::new(server(rendezvous)?))?.into(),
        _ => ClientConnection::new(Arc::new(client(rendezvous)?), ServerName::try_from(HOST)?)?.into(),
    };
    let mut stream = tcp_connection::connected(role, rendezvous)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream).context("performing the TLS handshake")?;
    }
    Ok((session, stream))
}
