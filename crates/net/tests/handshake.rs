//! WebSocket handshakes that fail, and what is reported about them.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENCE, Side};
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
            common::Seen::Closed(endpoint, why) => Some((*endpoint, why.clone())),
            _ => None,
        });
        assert!(why.starts_with(reason), "{why}");
        assert_eq!(side.handle.send(closed, b"late"), Outcome::Closed);
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
        assert_eq!(side.seen.iter().filter(|seen| matches!(seen, common::Seen::Closed(..))).count(), 1);
    }
}
