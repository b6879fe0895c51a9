//! WebSocket handshakes that fail, and what is reported about them.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side};
use estafette_net::{Endpoint, Event, HandshakeError, Limits, Node, Options, Outcome, Reason, Reconnect, Violation};

/// Limits under which an event that waits for the peer comes too late for a test.
fn patient() -> Limits {
    let mut limits = Limits::default();
    limits.flush = 10 * PATIENCE;
    limits.handshake = 10 * PATIENCE;
    limits
}

/// The next event.
fn next(node: &mut Node<()>) -> Event<'_, ()> {
    node.next(Some(PATIENCE)).unwrap().expect("an event comes in time")
}

/// A server that reads a request, answers it, and keeps the connection open.
struct Server {
    listener: TcpListener,
    /// The connection of the last request.
    accepted: Option<TcpStream>,
}

impl Server {
    fn new() -> Server {
        Server { listener: TcpListener::bind("127.0.0.1:0").unwrap(), accepted: None }
    }

    fn url(&self) -> String {
        format!("ws://{}/path", self.listener.local_addr().unwrap())
    }

    /// Accepts a connection and answers its request. Returns the request.
    fn answer(&mut self, answer: &str) -> String {
        let (mut stream, _) = self.listener.accept().unwrap();
        let request = read_head(&mut stream);
        stream.write_all(answer.as_bytes()).unwrap();
        self.accepted = Some(stream);
        request
    }
}

/// Reads the head of a request or a response.
fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

fn handshake_error(reason: Reason) -> HandshakeError {
    match reason {
        Reason::Violation(Violation::Handshake(error)) => *error,
        other => panic!("{other:?}"),
    }
}

/// Connects to a server that answers and stays. Returns what `Closed` reports.
fn refused(answer: &'static str) -> HandshakeError {
    let mut server = Server::new();
    let mut node = Node::with_limits(patient()).unwrap();
    let endpoint = node.handle().connect(server.url()).unwrap();
    let server = thread::spawn(move || {
        server.answer(answer);
        server
    });
    let error = match next(&mut node) {
        Event::Closed { endpoint: closed, reason } => {
            assert_eq!(closed, endpoint);
            handshake_error(reason)
        }
        other => panic!("{other:?}"),
    };
    drop(server.join().unwrap());
    error
}

#[test]
fn a_server_that_refuses_and_stays_is_reported_at_once_with_status_and_headers() {
    let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"a\"\r\nSet-Cookie: a=1\r\n\
                  set-cookie: b=2\r\nContent-Length: 3\r\n\r\nno\n";
    let error = refused(answer);
    assert_eq!(error.to_string(), "the server answered 401 Unauthorized");
    assert_eq!(error.status, Some(401));
    assert_eq!(error.headers.get("www-authenticate"), Some("Basic realm=\"a\""));
    assert_eq!(error.headers.get_all("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(error.headers.get("location"), None);
    assert_eq!(error.headers.iter().count(), 4);
}

#[test]
fn a_server_with_a_wrong_accept_key_that_stays_is_reported_at_once() {
    let error = refused(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nServer: old\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
    );
    assert!(error.to_string().contains("does not belong to this request"), "{error}");
    assert_eq!((error.status, error.headers.get("server")), (Some(101), Some("old")));
}

#[test]
fn a_server_that_does_not_speak_http_is_reported_at_once() {
    let error = refused("SSH-2.0-OpenSSH_9.6\r\n");
    assert!(error.to_string().starts_with("invalid HTTP"), "{error}");
    assert_eq!((error.status, error.headers.iter().count()), (None, 0));
}

#[test]
fn a_refusal_is_reported_as_lost_at_once_if_the_client_reconnects() {
    let mut server = Server::new();
    let mut node = Node::<()>::with_limits(patient()).unwrap();
    let plan = Reconnect::default().initial_delay(Duration::from_millis(1)).max_attempts(1);
    node.handle().connect_with(server.url(), &Options::default().reconnect(plan)).unwrap();
    let driven = thread::spawn(move || {
        let mut statuses = Vec::new();
        while let Event::Lost { reason, .. } | Event::Closed { reason, .. } = next(&mut node) {
            statuses.push(handshake_error(reason).status);
            if statuses.len() == 2 {
                break;
            }
        }
        statuses
    });
    server.answer("HTTP/1.1 503 Service Unavailable\r\n\r\n");
    let first = server.accepted.take();
    server.answer("HTTP/1.1 403 Forbidden\r\n\r\n");
    assert_eq!(driven.join().unwrap(), [Some(503), Some(403)]);
    drop(first);
}

/// A node that listens, and a raw peer.
fn listening(scheme: &str) -> (Side, Endpoint, TcpStream) {
    let side = Side::with(patient());
    let listener = side.handle.listen(format!("{scheme}://127.0.0.1:0")).unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    (side, listener, peer)
}

#[test]
fn a_malformed_peer_that_stays_is_reported_at_once_and_still_gets_its_answer() {
    let upgrade = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    for (scheme, sent, reason, end_of_answer) in [
        ("ws", "GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), "WebSocket handshake: ", &b"connect by ws://\n"[..]),
        ("ws", format!("{upgrade}\u{2}\u{1}x"), "WebSocket protocol: ", &[0x88, 2, 3, 234]),
        ("tcp+msg", "\u{7f}\u{7f}\u{7f}\u{7f}".to_owned(), "a message of 2139062143 bytes", b""),
    ] {
        let (mut side, _, mut peer) = listening(scheme);
        peer.write_all(sent.as_bytes()).unwrap();
        let (closed, why) = side.until("reported", |seen| match seen {
            Seen::Closed(endpoint, why) => Some((Some(*endpoint), why.clone())),
            Seen::AcceptFailed(_, _, why) => Some((None, why.clone())),
            _ => None,
        });
        assert!(why.starts_with(reason), "{why}");
        if let Some(closed) = closed {
            assert_eq!(side.handle.send(closed, b"late"), Outcome::Closed);
        }
        // The peer has not ended yet, and gets the answer up to its end.
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).unwrap();
        assert!(answer.ends_with(end_of_answer), "{answer:?}");
        drop(peer);
        // The connection is released, and nothing else is reported.
        let begun = Instant::now();
        while !format!("{:?}", side.handle).contains("endpoints: 1") {
            assert!(begun.elapsed() < PATIENCE, "the connection is not released");
            side.step();
        }
        let ends = |seen: &&Seen| matches!(seen, Seen::Closed(..) | Seen::AcceptFailed(..));
        assert_eq!(side.seen.iter().filter(ends).count(), 1);
    }
}

/// What a listener reports about the only peer, which it does not accept.
fn not_accepted(side: &mut Side, listener: Endpoint, peer: &TcpStream) -> String {
    let (by, from, reason) = side.until("reported", |seen| match seen {
        Seen::AcceptFailed(listener, peer, reason) => Some((*listener, peer.clone(), reason.clone())),
        _ => None,
    });
    assert_eq!(by, listener);
    let (host, port) = (peer.local_addr().unwrap().ip().to_string(), peer.local_addr().unwrap().port());
    let from = from.expect("it has an address");
    assert_eq!((from.host(), from.port()), (Some(&*host), Some(port)));
    assert_eq!(side.seen.len(), 1, "{:?}", side.seen);
    reason
}

#[test]
fn a_failed_handshake_is_reported_with_its_listener_and_peer() {
    let (mut side, listener, mut peer) = listening("ws");
    peer.write_all(b"GET /path HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    assert!(not_accepted(&mut side, listener, &peer).starts_with("WebSocket handshake: this is a WebSocket"));
    // It leaves before it has sent a request.
    let (mut side, listener, mut peer) = listening("ws");
    peer.write_all(b"GET /").unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(not_accepted(&mut side, listener, &peer), "ended by the peer in the middle of a message");
}

#[test]
fn a_failed_handshake_is_reported_with_the_peers_address_after_a_reset() {
    let (mut side, listener, peer) = listening("ws");
    // The node accepts it.
    let begun = Instant::now();
    while !format!("{:?}", side.handle).contains("endpoints: 2") {
        assert!(begun.elapsed() < PATIENCE, "it is not accepted");
        side.step();
    }
    // With `SO_LINGER` of 0, closing sends a reset.
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
    let at = peer.local_addr().unwrap();
    drop(peer);
    let (by, from, reason) = side.until("reported", |seen| match seen {
        Seen::AcceptFailed(listener, peer, reason) => Some((*listener, peer.clone(), reason.clone())),
        _ => None,
    });
    assert_eq!((by, from.map(|from| from.to_string())), (listener, Some(format!("tcp://{at}"))));
    assert!(reason.contains("reset"), "{reason}");
}

#[test]
fn a_silent_peer_is_reported_with_its_listener_and_address() {
    let mut limits = patient();
    limits.handshake = Duration::from_millis(100);
    let mut side = Side::with(limits);
    let listener = side.handle.listen("ws://127.0.0.1:0").unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    let peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(not_accepted(&mut side, listener, &peer), "timed out before the connection was open");
}

#[cfg(feature = "tls")]
#[test]
fn a_failed_tls_handshake_is_reported_with_its_listener_and_peer() {
    let mut side = Side::with(patient());
    for scheme in ["tls", "tls+msg", "wss"] {
        side.seen.clear();
        let listener = side.handle.listen_with(format!("{scheme}://127.0.0.1:0"), &common::options().0).unwrap();
        let port = side.handle.local_address(listener).unwrap().port().unwrap();
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let reason = not_accepted(&mut side, listener, &peer);
        assert!(reason.starts_with("not connected: "), "{reason}");
    }
}

#[test]
fn an_accept_failure_prints_who_failed_and_why() {
    let mut node = Node::<()>::new().unwrap();
    let listener = node.handle().listen("ws://127.0.0.1:0").unwrap();
    let port = node.handle().local_address(listener).unwrap().port().unwrap();
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.write_all(b"HELO\r\n\r\n").unwrap();
    match next(&mut node) {
        Event::AcceptFailed(failure) => {
            let text = format!("tcp://{} was not accepted: WebSocket handshake: ", peer.local_addr().unwrap());
            assert!(failure.to_string().starts_with(&text), "{failure}");
            match &failure.reason {
                Reason::Violation(Violation::Handshake(error)) => assert_eq!(error.status, Some(400)),
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}
