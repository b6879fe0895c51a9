//! What only WebSockets can do.

mod common;

use common::{Seen, Side, address, connected, connected_with, options, until};
use estafette_net::{Kind, Outcome};

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
