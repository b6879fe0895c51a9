//! Two nodes of one thread, stepped by turns until something holds: no test waits for a fixed time.
#![allow(dead_code, unreachable_pub, reason = "not every test needs everything")]

pub mod process;
pub mod usage;

use std::time::{Duration, Instant};

use estafette_net::{Endpoint, Event, Handle, Kind, Limits, Node, Options};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a node told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    Connected(Endpoint),
    Accepted(Endpoint, Endpoint),
    Message(Endpoint, Kind, Vec<u8>),
    Drained(Endpoint),
    Finished(Endpoint),
    Lost(Endpoint, String, usize),
    Closed(Endpoint, String),
    Signal(u32),
}

/// A node, and all it told.
pub struct Side {
    pub node: Node<u32>,
    pub handle: Handle<u32>,
    pub seen: Vec<Seen>,
}

impl Side {
    pub fn new() -> Side {
        Side::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Side {
        let node = Node::with_limits(limits).unwrap();
        Side { handle: node.handle(), node, seen: Vec::new() }
    }

    /// Tells what is there.
    pub fn step(&mut self) {
        let seen = &mut self.seen;
        self.node
            .poll(Some(Duration::from_millis(1)), |event| {
                seen.push(match event {
                    Event::Connected(endpoint) => Seen::Connected(endpoint),
                    Event::Accepted { endpoint, listener } => Seen::Accepted(endpoint, listener),
                    Event::Message(from, message) => Seen::Message(from, message.kind(), message.take()),
                    Event::Drained(endpoint) => Seen::Drained(endpoint),
                    Event::Finished(endpoint) => Seen::Finished(endpoint),
                    Event::Lost { endpoint, reason, unwritten, .. } => {
                        Seen::Lost(endpoint, reason.to_string(), unwritten)
                    }
                    Event::Closed { endpoint, reason } => Seen::Closed(endpoint, reason.to_string()),
                    Event::Signal(signal) => Seen::Signal(signal),
                });
            })
            .unwrap();
    }

    /// Steps until something was told that `pick` finds, and returns what it made of it.
    pub fn until<T>(&mut self, what: &str, pick: impl Fn(&Seen) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = self.seen.iter().find_map(&pick) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "never {what}: {:?}", summary(&self.seen));
            self.step();
        }
    }

    /// Steps until something holds of all that was told.
    pub fn step_until(&mut self, what: &str, holds: impl Fn(&[Seen]) -> bool) {
        let begun = Instant::now();
        while !holds(&self.seen) {
            assert!(begun.elapsed() < PATIENCE, "never {what}: {:?}", summary(&self.seen));
            self.step();
        }
    }

    pub fn until_closed(&mut self, endpoint: Endpoint) -> String {
        self.until("closed", |seen| match seen {
            Seen::Closed(which, reason) if *which == endpoint => Some(reason.clone()),
            _ => None,
        })
    }

    /// The messages of an endpoint, in order.
    pub fn messages(&self, of: Endpoint) -> Vec<&[u8]> {
        self.seen
            .iter()
            .filter_map(|seen| match seen {
                Seen::Message(from, _, message) if *from == of => Some(&message[..]),
                _ => None,
            })
            .collect()
    }
}

/// What was told, without the messages' bytes.
pub fn summary(seen: &[Seen]) -> Vec<String> {
    seen.iter()
        .rev()
        .take(20)
        .map(|seen| match seen {
            Seen::Message(from, kind, message) => format!("Message({from:?}, {kind:?}, {} bytes)", message.len()),
            other => format!("{other:?}"),
        })
        .collect()
}

/// Steps both until something holds.
pub fn until(a: &mut Side, b: &mut Side, what: &str, holds: impl Fn(&Side, &Side) -> bool) {
    let begun = Instant::now();
    while !holds(a, b) {
        assert!(begun.elapsed() < PATIENCE, "never {what}: {:?} and {:?}", summary(&a.seen), summary(&b.seen));
        a.step();
        b.step();
    }
}

/// An address of this scheme that nobody else has.
pub fn address(scheme: &str, folder: &tempfile::TempDir) -> String {
    match scheme {
        "unix" | "unix+msg" => format!("{scheme}://{}", folder.path().join("socket").display()),
        "inproc" | "inproc+msg" => format!("{scheme}://{}", folder.path().display()),
        _ => format!("{scheme}://127.0.0.1:0"),
    }
}

/// What a listener of any scheme needs, and a client that trusts it.
pub fn options() -> (Options, Options) {
    #[cfg(feature = "tls")]
    return tls::options();
    #[cfg(not(feature = "tls"))]
    (Options::default(), Options::default())
}

/// Certificates that are made for the tests.
#[cfg(feature = "tls")]
pub mod tls {
    use std::sync::{Arc, OnceLock};

    use estafette_net::Options;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{ClientConfig, RootCertStore, ServerConfig};

    /// A listener that has this certificate, and a client that trusts it.
    pub fn with(params: CertificateParams) -> (Options, Options) {
        let (client, server) = client(params);
        (server, Options::default().tls_client(client))
    }

    /// As [`with`]; of the client what rustls needs.
    pub fn client(params: CertificateParams) -> (Arc<ClientConfig>, Options) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        (Arc::new(client), Options::default().tls_server(Arc::new(server)))
    }

    pub fn params() -> CertificateParams {
        CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
    }

    pub fn options() -> (Options, Options) {
        static OPTIONS: OnceLock<(Options, Options)> = OnceLock::new();
        OPTIONS.get_or_init(|| with(params())).clone()
    }
}

/// Connects `client` to a listener of `server`: their ends, and the listener.
pub fn connected(server: &mut Side, client: &mut Side, address: &str) -> (Endpoint, Endpoint, Endpoint) {
    connected_with(server, client, address, options())
}

/// As [`connected`], with options for the listener and for the client.
pub fn connected_with(
    server: &mut Side,
    client: &mut Side,
    address: &str,
    (ours, theirs): (Options, Options),
) -> (Endpoint, Endpoint, Endpoint) {
    let listener = server.handle.listen_with(address, &ours).unwrap();
    let at = server.handle.local_address(listener).unwrap();
    let to = client.handle.connect_with(&at, &theirs).unwrap();
    until(server, client, "connected", |server, client| {
        server.seen.iter().any(|seen| matches!(seen, Seen::Accepted(_, from) if *from == listener))
            && client.seen.contains(&Seen::Connected(to))
    });
    let from = server.until("accepted", |seen| match seen {
        Seen::Accepted(endpoint, from) if *from == listener => Some(*endpoint),
        _ => None,
    });
    (from, to, listener)
}
