//! Accepting and rejecting WebSockets by their request.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{PATIENCE, Seen, Side, until};
use estafette_net::{Endpoint, Event, Node, Options, Outcome, Reason, UpgradeRequest, UpgradeResponse, Violation};

/// What a hook has seen of a request.
#[derive(Debug, PartialEq)]
struct Request {
    endpoint: Endpoint,
    peer: Option<String>,
    target: String,
    path: String,
    query: Option<String>,
    token: Option<String>,
    origin: Option<String>,
    cookies: [Option<String>; 3],
    subprotocols: Vec<String>,
}

impl Request {
    fn of(request: &UpgradeRequest<'_>) -> Request {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Request {
            endpoint: request.endpoint(),
            peer: request.peer().map(ToString::to_string),
            target: request.target().to_owned(),
            path: request.path().to_owned(),
            query: owned(request.query()),
            token: owned(request.header("authorization")),
            origin: owned(request.origin()),
            cookies: ["a", "b", "c"].map(|name| owned(request.cookie(name))),
            subprotocols: request.subprotocols().map(str::to_owned).collect(),
        }
    }
}

/// A listener with this hook. Returns it and its port.
fn listening(
    options: Options,
    decide: impl Fn(&UpgradeRequest<'_>) -> UpgradeResponse + Send + Sync + 'static,
) -> (Side, Endpoint, u16) {
    let side = Side::new();
    let listener = side.handle.listen_with("ws://127.0.0.1:0", &options.on_upgrade(decide)).unwrap();
    let port = side.handle.local_address(listener).unwrap().port().unwrap();
    (side, listener, port)
}

#[test]
fn a_hook_sees_the_whole_request_and_the_endpoint_of_the_event() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = requests.clone();
    let (mut server, listener, port) = listening(Options::default(), move |request| {
        noted.lock().unwrap().push(Request::of(request));
        UpgradeResponse::accept().subprotocol("second")
    });
    let mut client = Side::new();
    let options = Options::default()
        .subprotocols(["first", "second"])
        .header("Authorization", "Bearer secret")
        .header("Origin", "https://example.org")
        .header("Cookie", "a=1; b=x=y")
        .header("Cookie", "a=2");
    let endpoint = client.handle.connect_with(format!("ws://127.0.0.1:{port}/a%20b/c?d=e?f"), &options).unwrap();
    until(&mut server, &mut client, "open", |_, client| client.seen.contains(&Seen::Connected(endpoint)));
    assert_eq!(client.handle.subprotocol(endpoint).as_deref(), Some("second"));
    let owned = |text: &str| Some(text.to_owned());
    let accepted = server.accepted(listener)[0];
    let expected = Request {
        endpoint: accepted,
        peer: client.handle.local_address(endpoint).map(|address| address.to_string()),
        target: "/a%20b/c?d=e?f".to_owned(),
        path: "/a%20b/c".to_owned(),
        query: owned("d=e?f"),
        token: owned("Bearer secret"),
        origin: owned("https://example.org"),
        cookies: [owned("1"), owned("x=y"), None],
        subprotocols: vec!["first".to_owned(), "second".to_owned()],
    };
    assert_eq!(*requests.lock().unwrap(), [expected]);
    assert_eq!(server.handle.subprotocol(accepted).as_deref(), Some("second"));
}

#[test]
fn a_rejection_reaches_the_client_and_is_reported_on_both_sides() {
    let (mut server, listener, port) = listening(Options::default(), |_| {
        UpgradeResponse::reject(401, "a token is needed").header("WWW-Authenticate", "Bearer").header("X-A", "b")
    });
    let mut client = Node::<()>::new().unwrap();
    let endpoint = client.handle().connect(format!("ws://127.0.0.1:{port}")).unwrap();
    let begun = Instant::now();
    let error = loop {
        server.step();
        match client.next(Some(Duration::ZERO)).unwrap() {
            None => assert!(begun.elapsed() < PATIENCE, "the client is not answered"),
            Some(Event::Closed { endpoint: closed, reason: Reason::Violation(Violation::Handshake(error)) }) => {
                assert_eq!(closed, endpoint);
                break error;
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((error.to_string().as_str(), error.status), ("the server answered 401 Unauthorized", Some(401)));
    assert_eq!(error.headers.get("WWW-Authenticate"), Some("Bearer"));
    assert_eq!(error.headers.get("x-a"), Some("b"));
    match &server.seen[..] {
        [Seen::AcceptFailed(by, Some(_), reason)] => {
            assert_eq!((*by, &**reason), (listener, "WebSocket handshake: a token is needed"));
        }
        other => panic!("{other:?}"),
    }
}

/// The whole response to a request that offers the subprotocols `a` and `b`.
fn response(side: &mut Side, port: u16) -> String {
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer.write_all(
        b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: a, b\r\n\r\n",
    )
    .unwrap();
    side.seen.clear();
    side.step_until("answered", |seen| !seen.is_empty());
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && peer.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn an_accepted_request_gets_the_chosen_subprotocol_and_headers() {
    let (mut side, _, port) = listening(Options::default().subprotocols(["b"]), |_| {
        UpgradeResponse::accept().header("Set-Cookie", "seen=1").header("Set-Cookie", "x=y")
    });
    let response = response(&mut side, port);
    assert!(response.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{response}");
    // The listener's list decides, because the hook does not.
    assert!(response.contains("\r\nSec-WebSocket-Protocol: b\r\n"), "{response}");
    assert!(response.contains("\r\nSet-Cookie: seen=1\r\nSet-Cookie: x=y\r\n"), "{response}");
}

#[test]
fn an_invalid_response_of_a_hook_is_answered_with_500_and_says_what_is_wrong() {
    let responses: [(UpgradeResponse, &str); _] = [
        (UpgradeResponse::accept().subprotocol("c"), "\"c\" was not offered"),
        (UpgradeResponse::accept().header("A", "b\r\nC: d"), "control character"),
        (UpgradeResponse::accept().header("Sec-WebSocket-Accept", "b"), "belongs to the handshake"),
        (UpgradeResponse::reject(401, "no").header("Content-Length", "0"), "belongs to the handshake"),
        (UpgradeResponse::reject(200, "no"), "200 is not a status of 300 to 599"),
        (UpgradeResponse::reject(600, "no"), "600 is not a status"),
    ];
    for (answer, error) in responses {
        let (mut side, _, port) = listening(Options::default(), move |_| answer.clone());
        let response = response(&mut side, port);
        assert!(response.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{response}");
        assert!(!response.contains("\r\nC: d"), "{response}");
        match &side.seen[..] {
            [Seen::AcceptFailed(_, _, reason)] => assert!(reason.contains(error), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_invalid_request_is_refused_before_the_hook_is_asked() {
    let (mut side, _, port) = listening(Options::default(), |request| panic!("{request:?}"));
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    side.step_until("refused", |seen| matches!(seen, [Seen::AcceptFailed(..)]));
}

#[test]
fn messages_follow_an_accepted_request() {
    let (mut server, listener, port) = listening(Options::default(), |_| UpgradeResponse::accept());
    let mut client = Side::new();
    let endpoint = client.handle.connect(format!("ws://127.0.0.1:{port}")).unwrap();
    assert_eq!(client.handle.send(endpoint, b"early"), Outcome::Queued);
    until(&mut server, &mut client, "a message", |server, _| {
        server.accepted(listener).first().is_some_and(|accepted| server.messages(*accepted) == [b"early"])
    });
}
