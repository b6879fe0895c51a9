//! Connecting to hosts by name.

mod common;

use std::time::Duration;

use common::{Seen, Side, address, options, until};
use estafette_net::{Limits, Outcome};

const SCHEMES: &[&str] =
    if cfg!(feature = "tls") { &["tcp", "tcp+msg", "ws", "tls+msg", "wss"] } else { &["tcp", "tcp+msg", "ws"] };

#[test]
fn a_name_works_like_a_numeric_address() {
    for scheme in SCHEMES.iter().copied() {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (ours, theirs) = options();
        let listener = server.handle.listen_with(address(scheme, &folder).as_str(), &ours).unwrap();
        let port = server.handle.local_address(listener).unwrap().port().unwrap();
        let endpoint = client.handle.connect_with(format!("{scheme}://localhost:{port}"), &theirs).unwrap();
        assert_eq!(client.handle.peer_address(endpoint), None, "{scheme}: it was waited for");
        assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued, "{scheme}");
        until(&mut server, &mut client, "there", |server, client| {
            server.seen.iter().any(|seen| matches!(seen, Seen::Message(_, _, message) if message == b"early"))
                && client.seen.contains(&Seen::Connected(endpoint))
        });
        let peer = client.handle.peer_address(endpoint).unwrap();
        assert_eq!((peer.host(), peer.port()), (Some("127.0.0.1"), Some(port)), "{scheme}");
    }
}

#[test]
fn a_udp_socket_can_send_once_its_peers_name_is_resolved() {
    let (mut server, mut client) = (Side::new(), Side::new());
    // Both sides use the first of the name's addresses.
    let listener = server.handle.listen("udp://localhost:0").unwrap();
    let port = server.handle.local_address(listener).unwrap().port().unwrap();
    let endpoint = client.handle.connect(format!("udp://localhost:{port}")).unwrap();
    assert_eq!(client.handle.send(endpoint, b"datagram"), Outcome::Full);
    client.until("room", |seen| (*seen == Seen::Drained(endpoint)).then_some(()));
    assert_eq!(client.handle.send(endpoint, b"datagram"), Outcome::Sent);
    server.until("a datagram", |seen| matches!(seen, Seen::Message(..)).then_some(()));
}

#[test]
fn the_error_of_an_unknown_name_contains_the_name() {
    let mut limits = Limits::default();
    limits.handshake = Duration::from_secs(600);
    let mut side = Side::with(limits);
    // Longer than a label may be, so that no DNS server is asked.
    let name = "a".repeat(64);
    let endpoint = side.handle.connect(format!("tcp://{name}:80")).unwrap();
    let reason = side.until_closed(endpoint);
    assert!(reason.starts_with(&format!("not connected: looking up {name}: ")), "{reason}");
    let error = side.handle.listen(format!("tcp://{name}:80")).unwrap_err().to_string();
    assert!(error.contains(&format!("looking up {name}: ")), "{error}");
}
