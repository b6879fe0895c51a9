//! Parts shared by all encrypted mechanisms: a certificate, which the consumer creates and
//! publishes for the producer; and a rustls session over TCP.

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
/// The host name in the certificate. The address of the consumer's host is in it, too.
pub(super) const HOST: &str = "localhost";

/// Creates a certificate and the consumer's configuration as a server.
pub(super) fn server(rendezvous: &mut Rendezvous) -> Result<ServerConfig> {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned(), rendezvous.address().to_string()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    rendezvous.publish("certificate", &to_hex(made.cert.der()))?;
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
    let certificate = from_hex(&rendezvous.request("certificate")?).context("the certificate is not hexadecimal")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

/// Encodes bytes as hexadecimal text, because only text can be published.
fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal text.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_the_same_after_publishing() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!((from_hex("0"), from_hex("+f"), from_hex("zz"), from_hex("")), (None, None, None, Some(vec![])));
    }
}
