//! What only WebSockets can do.

mod common;

use std::time::Duration;

use common::{Seen, Side, address, connected, connected_with, options, until};
use estafette_net::{Close, CloseError, Kind, Options, Outcome, Reconnect};

#[test]
fn text_and_binary_messages_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    assert_eq!(client.handle.send_text(endpoint, "grün"), Outcome::Sent);
    assert_eq!(server.handle.send(accepted, b"\xff"), Outcome::Sent);
    let text = Seen::Message(accepted, Kind::Text, "grün".as_bytes().to_vec());
    let bytes = Seen::Message(endpoint, Kind::Binary, vec![0xff]);
    until(&mut server, &mut client, "both", |server, client| {
        server.seen.contains(&text) && client.seen.contains(&bytes)
    });
}

#[test]
fn a_finished_websocket_still_receives_messages_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (ours, theirs) = options();
    // A WebSocket ignores `half_open`.
    let (accepted, endpoint, _) =
        connected_with(&mut server, &mut client, &address("ws", &folder), &(ours.half_open(true), theirs));
    assert_eq!(server.handle.send(accepted, &vec![1; 8 << 20]), Outcome::Queued);
    assert_eq!(client.handle.send(endpoint, b"the last"), Outcome::Sent);
    client.handle.finish(endpoint);
    assert_eq!(client.handle.send(endpoint, b"more"), Outcome::Closed);
    until(&mut server, &mut client, "closed", |server, client| {
        server.closed(accepted).is_some() && client.closed(endpoint).is_some()
    });
    assert_eq!(server.messages(accepted), [b"the last"]);
    assert_eq!(client.messages(endpoint).concat().len(), 8 << 20);
    assert_eq!(server.until_closed(accepted), "closed by the peer: 1000");
    assert_eq!(client.until_closed(endpoint), "closed by the peer: 1000");
}

#[test]
fn invalid_subprotocols_and_headers_are_errors_that_say_what_is_wrong() {
    let side = Side::new();
    let error = |options: &Options| {
        let connecting = side.handle.connect_with("ws://127.0.0.1:1", options).unwrap_err().to_string();
        let listening = side.handle.listen_with("ws://127.0.0.1:0", options).unwrap_err().to_string();
        assert_eq!(connecting.rsplit("1: ").next(), listening.rsplit("0: ").next());
        connecting
    };
    let options = Options::default;
    assert!(error(&options().subprotocols(["a b"])).contains("the subprotocol \"a b\" is not a token of HTTP"));
    assert!(error(&options().subprotocols([""])).contains("is not a token"));
    assert!(error(&options().subprotocols(["a", "a"])).contains("is listed twice"));
    assert!(error(&options().header("A\r\nB", "c")).contains("is not a token"));
    assert!(error(&options().header("Sec-WebSocket-Protocol", "a")).contains("Options::subprotocols"));
    assert!(error(&options().header("Sec-WebSocket-Key", "a")).contains("belongs to the handshake"));
    assert!(error(&options().header("HOST", "a")).contains("belongs to the handshake"));
    let secret = error(&options().header("Authorization", "secret\r\nX: y"));
    assert!(secret.contains("the header Authorization contains the control character"), "{secret}");
    assert!(!secret.contains("secret"), "{secret}");
}

#[test]
fn a_reconnecting_client_sends_its_headers_and_subprotocols_again() {
    let mut server = Side::new();
    let listener = server.handle.listen_with("ws://127.0.0.1:0", &Options::default().subprotocols(["b"])).unwrap();
    let plan = Reconnect::default().initial_delay(Duration::from_millis(1));
    let options = Options::default().subprotocols(["a", "b"]).reconnect(plan);
    let mut client = Side::new();
    let endpoint = client.handle.connect_with(server.handle.local_address(listener).unwrap(), &options).unwrap();
    for i in 1..=2 {
        until(&mut server, &mut client, "connected", |server, client| {
            client.count(&Seen::Connected(endpoint)) == i && server.accepted(listener).len() == i
        });
        let accepted = server.accepted(listener)[i - 1];
        assert_eq!(client.handle.subprotocol(endpoint).as_deref(), Some("b"));
        assert_eq!(server.handle.subprotocol(accepted).as_deref(), Some("b"));
        server.handle.close(accepted);
    }
}

#[test]
fn a_code_that_a_closing_frame_cannot_carry_is_an_error_and_closes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    let close = |code, reason: &str| {
        let why = Close { code, reason: reason.to_owned() };
        client.handle.close_with(endpoint, &why)
    };
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65_535] {
        assert_eq!(close(Some(code), "why"), Err(CloseError::Code(code)));
    }
    assert_eq!(close(None, "why"), Err(CloseError::ReasonWithoutCode));
    assert!(close(Some(999), "").unwrap_err().to_string().contains("3000 to 4999"));
    assert_eq!(client.handle.send(endpoint, b"still open"), Outcome::Sent);
    assert_eq!(close(Some(1011), "why"), Ok(()));
    until(&mut server, &mut client, "closed", |server, _| server.closed(accepted).is_some());
    assert_eq!(server.messages(accepted), [b"still open"]);
    assert_eq!(server.closed(accepted), Some("closed by the peer: 1011: why"));
}

#[test]
fn a_close_without_a_code_sends_an_empty_frame() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("ws", &folder));
    client.handle.close_with(endpoint, &Close { code: None, reason: String::new() }).unwrap();
    until(&mut server, &mut client, "closed", |server, _| server.closed(accepted).is_some());
    assert_eq!(server.closed(accepted), Some("closed by the peer: no code"));
}
