//! What is known of the peer of a TLS connection, client certificates, resumed sessions, and
//! certificates that are replaced while a listener runs.
#![cfg(feature = "tls")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Seen, Side, connected_with, until};
use estafette_net::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use estafette_net::rustls::server::WebPkiClientVerifier;
use estafette_net::rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};
use estafette_net::{Endpoint, Error, Options, Reconnect, rustls};
use rcgen::{CertificateParams, KeyPair};

/// A self-signed certificate and its key.
struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn of(name: &str) -> Identity {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Identity { certificate, key: PrivateKeyDer::Pkcs8(key.serialize_der().into()) }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.clone()]
    }
}

fn trusting(identities: &[&Identity]) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    identities.iter().for_each(|identity| roots.add(identity.certificate.clone()).unwrap());
    Arc::new(roots)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A server's configuration. With `clients`, a client has to prove that it is one of them.
fn server_config(own: &Identity, clients: Option<&Identity>) -> ServerConfig {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(client) => builder.with_client_cert_verifier(
            WebPkiClientVerifier::builder_with_provider(trusting(&[client]), provider()).build().unwrap(),
        ),
        None => builder.with_no_client_auth(),
    };
    builder.with_single_cert(own.chain(), own.key.clone_key()).unwrap()
}

fn client_config(
    servers: &[&Identity],
    own: Option<&Identity>,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(trusting(servers));
    match own {
        Some(own) => builder.with_client_auth_cert(own.chain(), own.key.clone_key()).unwrap(),
        None => builder.with_no_client_auth(),
    }
}

fn server(config: ServerConfig) -> Options {
    Options::default().tls_server(Arc::new(config))
}

fn client(config: ClientConfig) -> Options {
    Options::default().tls_client(Arc::new(config))
}

#[test]
fn both_ends_report_certificates_alpn_and_the_name_that_was_asked_for() {
    let (own, theirs) = (Identity::of("localhost"), Identity::of("client"));
    for (scheme, version) in [("tls", &version::TLS13), ("tls+msg", &version::TLS12), ("wss", &version::TLS13)] {
        let mut config = server_config(&own, Some(&theirs));
        config.alpn_protocols = vec![b"second".to_vec(), b"first".to_vec()];
        let mut client_config = client_config(&[&own], Some(&theirs), &[version]);
        client_config.alpn_protocols = vec![b"unknown".to_vec(), b"first".to_vec()];
        let options = (server(config), client(client_config).host("localhost"));
        let (mut a, mut b) = (Side::new(), Side::new());
        let (accepted, connecting, listener) =
            connected_with(&mut a, &mut b, &format!("{scheme}://127.0.0.1:0"), &options);
        let at_server = a.handle.tls(accepted).unwrap();
        let at_client = b.handle.tls(connecting).unwrap();
        assert_eq!(at_server.peer_certificates, theirs.chain());
        assert_eq!(at_client.peer_certificates, own.chain());
        for info in [&at_server, &at_client] {
            assert_eq!(info.alpn.as_deref(), Some(&b"first"[..]));
            assert_eq!(info.server_name.as_deref(), Some("localhost"));
            assert_eq!(info.version, version.version);
            assert_eq!(info.handshake, HandshakeKind::Full);
        }
        assert_eq!((a.handle.tls(listener), a.handle.tls(connecting)), (None, None));
    }
}

#[test]
fn a_connection_without_tls_or_before_its_handshake_reports_nothing() {
    let own = Identity::of("localhost");
    let (mut a, mut b) = (Side::new(), Side::new());
    let plain = (Options::default(), Options::default());
    let (accepted, connecting, _) = connected_with(&mut a, &mut b, "tcp://127.0.0.1:0", &plain);
    assert_eq!((a.handle.tls(accepted), b.handle.tls(connecting)), (None, None));

    let versions = rustls::ALL_VERSIONS;
    let options = (server(server_config(&own, None)), client(client_config(&[&own], None, versions)));
    let listener = a.handle.listen_with("tls://127.0.0.1:0", &options.0).unwrap();
    let to = b.handle.connect_with(a.handle.local_address(listener).unwrap(), &options.1).unwrap();
    // The server has not been stepped.
    b.step();
    assert_eq!(b.handle.tls(to), None);
    until(&mut a, &mut b, "connected", |a, b| {
        !a.accepted(listener).is_empty() && b.seen.contains(&Seen::Connected(to))
    });
    // Nobody asked for a name, and the client has no certificate.
    let info = a.handle.tls(a.accepted(listener)[0]).unwrap();
    assert_eq!((info.server_name, info.alpn, info.peer_certificates), (None, None, vec![]));
    assert_eq!(b.handle.tls(to).unwrap().version, ProtocolVersion::TLSv1_3);
    b.handle.close(to);
    until(&mut a, &mut b, "closed", |_, b| b.closed(to).is_some());
    assert_eq!(b.handle.tls(to), None);
}

#[test]
fn a_client_needs_a_certificate_that_the_server_trusts() {
    let (own, theirs, stranger) = (Identity::of("localhost"), Identity::of("client"), Identity::of("client"));
    for identity in [None, Some(&stranger)] {
        for versions in [[&version::TLS13], [&version::TLS12]] {
            let (mut a, mut b) = (Side::new(), Side::new());
            let listener =
                a.handle.listen_with("tls+msg://127.0.0.1:0", &server(server_config(&own, Some(&theirs)))).unwrap();
            let options = client(client_config(&[&own], identity, &versions));
            let to = b.handle.connect_with(a.handle.local_address(listener).unwrap(), &options).unwrap();
            let reason = |side: &Side| {
                side.seen.iter().find_map(|seen| match seen {
                    Seen::Closed(_, reason) | Seen::AcceptFailed(_, _, reason) => Some(reason.clone()),
                    _ => None,
                })
            };
            until(&mut a, &mut b, "refused", |a, b| reason(a).is_some() && reason(b).is_some());
            assert_eq!(a.accepted(listener), []);
            let ours = reason(&a).unwrap();
            assert!(ours.starts_with("not connected: "), "{ours}");
            let theirs = reason(&b).unwrap();
            // TLS 1.2 has no alert of its own for a missing certificate.
            let missing = identity.is_none() && versions[0].version == ProtocolVersion::TLSv1_3;
            let alert = if missing { "received fatal alert: CertificateRequired" } else { "received fatal alert" };
            assert!(theirs.contains(alert), "{theirs}");
            assert!(b.handle.tls(to).is_none());
        }
    }
}

/// Sends a message and waits for its echo. Behind that, the client has the server's tickets.
fn exchange(a: &mut Side, b: &mut Side, to: Endpoint) {
    assert!(b.handle.send(to, b"ping").is_accepted());
    a.seen.clear();
    b.seen.clear();
    until(a, b, "a message", |a, _| a.seen.iter().any(|seen| matches!(seen, Seen::Message(..))));
    let from = a.seen.iter().find_map(|seen| match seen {
        Seen::Message(from, ..) => Some(*from),
        _ => None,
    });
    assert!(a.handle.send(from.unwrap(), b"pong").is_accepted());
    until(a, b, "an echo", |_, b| b.messages(to) == [b"pong"]);
}

#[test]
fn a_reconnect_resumes_the_session() {
    let (own, theirs) = (Identity::of("localhost"), Identity::of("client"));
    for versions in [[&version::TLS13], [&version::TLS12]] {
        let plan = Reconnect::default().initial_delay(Duration::from_millis(1));
        let options = (
            server(server_config(&own, Some(&theirs))),
            client(client_config(&[&own], Some(&theirs), &versions)).reconnect(plan),
        );
        let (mut a, mut b) = (Side::new(), Side::new());
        let (accepted, to, listener) = connected_with(&mut a, &mut b, "tls+msg://127.0.0.1:0", &options);
        assert_eq!(a.handle.tls(accepted).unwrap().handshake, HandshakeKind::Full);
        exchange(&mut a, &mut b, to);
        for _ in 0..3 {
            let before = a.accepted(listener).last().copied().unwrap_or(accepted);
            a.seen.clear();
            b.seen.clear();
            a.handle.close(before);
            until(&mut a, &mut b, "connected again", |a, b| {
                !a.accepted(listener).is_empty() && b.seen.contains(&Seen::Connected(to))
            });
            assert!(b.seen.iter().any(|seen| matches!(seen, Seen::Lost(..))), "{b:?}");
            let accepted = a.accepted(listener)[0];
            let (at_server, at_client) = (a.handle.tls(accepted).unwrap(), b.handle.tls(to).unwrap());
            for info in [&at_server, &at_client] {
                assert_eq!(info.handshake, HandshakeKind::Resumed);
            }
            assert_eq!(at_server.peer_certificates, theirs.chain());
            assert_eq!(at_client.peer_certificates, own.chain());
            assert!(b.handle.send(to, b"ping").is_accepted());
            until(&mut a, &mut b, "a message", |a, _| a.messages(accepted) == [b"ping"]);
            assert!(a.handle.send(accepted, b"pong").is_accepted());
            until(&mut a, &mut b, "an echo", |_, b| b.messages(to) == [b"pong"]);
        }
    }
}

#[test]
fn a_new_certificate_applies_to_new_connections_and_disturbs_no_other() {
    let (old, new) = (Identity::of("localhost"), Identity::of("localhost"));
    let versions = rustls::ALL_VERSIONS;
    let config = Arc::new(client_config(&[&old, &new], None, versions));
    let options = Options::default().tls_client(config);
    let (mut a, mut b) = (Side::new(), Side::new());
    let listener = a.handle.listen_with("tls+msg://127.0.0.1:0", &server(server_config(&old, None))).unwrap();
    let at = a.handle.local_address(listener).unwrap();
    let connect = |a: &mut Side, b: &mut Side| {
        let to = b.handle.connect_with(&at, &options).unwrap();
        until(a, b, "connected", |_, b| b.seen.contains(&Seen::Connected(to)));
        to
    };
    let before: Vec<_> = (0..5).map(|_| connect(&mut a, &mut b)).collect();
    before.iter().for_each(|to| exchange(&mut a, &mut b, *to));
    // A connection that the server has accepted, and whose handshake is not over.
    let begun = b.handle.connect_with(&at, &options).unwrap();
    while !format!("{:?}", a.handle).contains("endpoints: 7") {
        a.step();
    }

    a.handle.set_tls_server(listener, Arc::new(server_config(&new, None))).unwrap();
    let after = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, after);
    // The sessions of the old configuration are not resumed.
    let info = b.handle.tls(after).unwrap();
    assert_eq!((info.handshake, info.peer_certificates), (HandshakeKind::Full, new.chain()));
    for to in before.into_iter().chain([begun]) {
        exchange(&mut a, &mut b, to);
        assert_eq!(b.handle.tls(to).unwrap().peer_certificates, old.chain());
    }
    assert!(!a.seen.iter().chain(&b.seen).any(|seen| matches!(seen, Seen::Closed(..))));
}

#[test]
fn only_a_tls_listener_takes_a_new_certificate() {
    let own = Identity::of("localhost");
    let mut a = Side::new();
    let config = Arc::new(server_config(&own, None));
    let plain = a.handle.listen("tcp://127.0.0.1:0").unwrap();
    let closed = a.handle.listen_with("tls://127.0.0.1:0", &Options::default().tls_server(config.clone())).unwrap();
    let others = Side::new();
    let foreign =
        others.handle.listen_with("tls://127.0.0.1:0", &Options::default().tls_server(config.clone())).unwrap();
    assert!(a.handle.set_tls_server(closed, config.clone()).is_ok());
    a.handle.close(closed);
    a.until_closed(closed);
    for endpoint in [plain, closed, foreign] {
        let error = a.handle.set_tls_server(endpoint, config.clone()).unwrap_err();
        assert!(matches!(error, Error::NoTlsListener), "{error}");
    }
}
