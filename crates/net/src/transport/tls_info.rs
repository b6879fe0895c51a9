//! What a TLS handshake agreed upon.

use rustls::pki_types::CertificateDer;
use rustls::{Connection, HandshakeKind, ProtocolVersion};

/// What the TLS handshake of a connection agreed upon: [`Handle::tls`](crate::Handle::tls).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The peer's certificates, which were verified: its own one first, then those that sign it.
    /// Empty at a server whose client has none. A resumed session has those of its first handshake.
    pub peer_certificates: Vec<CertificateDer<'static>>,
    /// The application protocol (ALPN), such as `h2`. `None` if none was agreed upon, as without
    /// `alpn_protocols` in the configuration of both sides.
    pub alpn: Option<Vec<u8>>,
    /// The host name that the client named (SNI), at both sides. `None` if it named an IP address.
    pub server_name: Option<String>,
    /// The version of TLS.
    pub version: ProtocolVersion,
    /// Whether the handshake was a full one, or resumed an earlier session.
    pub handshake: HandshakeKind,
}

impl TlsInfo {
    /// The information about a session, or `None` before its handshake is over. `asked_name`: the
    /// name that a client asked for.
    pub(super) fn of(session: &Connection, asked_name: Option<&str>) -> Option<TlsInfo> {
        if session.is_handshaking() {
            return None;
        }
        let server_name = match session {
            Connection::Client(_) => asked_name,
            Connection::Server(session) => session.server_name(),
        };
        Some(TlsInfo {
            peer_certificates: session.peer_certificates().unwrap_or_default().to_vec(),
            alpn: session.alpn_protocol().map(<[u8]>::to_vec),
            server_name: server_name.map(str::to_owned),
            version: session.protocol_version()?,
            handshake: session.handshake_kind()?,
        })
    }
}
