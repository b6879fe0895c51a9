//! What a node says about its endpoints.

mod common;

use std::net::TcpListener;
use std::time::Duration;

use common::{Side, address, connected, until};
use estafette_net::{ConnectionState, Endpoint, EndpointInfo, EndpointKind, EndpointMap, Event, Options, Reconnect};

fn info(side: &Side, of: Endpoint) -> EndpointInfo {
    let mut found = side.handle.endpoints();
    found.retain(|info| info.endpoint == of);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn every_endpoint_is_listed_with_its_kind_and_addresses() {
    for scheme in ["tcp+msg", "unix+msg", "inproc+msg", "ws"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut server, mut client) = (Side::new(), Side::new());
        let (accepted, endpoint, listener) = connected(&mut server, &mut client, &address(scheme, &folder));
        let datagrams = server.handle.listen("udp://127.0.0.1:0").unwrap();
        assert_eq!((server.handle.endpoints().len(), client.handle.endpoints().len()), (3, 1), "{scheme}");
        let state = ConnectionState::Open;
        assert_eq!(info(&server, listener).kind, EndpointKind::Listener);
        assert_eq!(info(&server, accepted).kind, EndpointKind::Accepted { listener, state });
        assert_eq!(info(&server, datagrams).kind, EndpointKind::Datagrams);
        assert_eq!(info(&client, endpoint).kind, EndpointKind::Outgoing { state });
        for (side, of) in [(&server, listener), (&server, accepted), (&server, datagrams), (&client, endpoint)] {
            let info = info(side, of);
            assert_eq!(info.local, side.handle.local_address(of), "{scheme}");
            assert_eq!(info.peer, side.handle.peer_address(of), "{scheme}");
        }
        assert!(info(&server, listener).local.is_some() && info(&client, endpoint).peer.is_some(), "{scheme}");
        server.handle.close(accepted);
        assert_eq!(
            info(&server, accepted).kind,
            EndpointKind::Accepted { listener, state: ConnectionState::Closing },
            "{scheme}"
        );
        server.handle.close(datagrams);
        server.handle.close(listener);
        until(&mut server, &mut client, "closed", |server, client| {
            server.handle.endpoints().is_empty() && client.handle.endpoints().is_empty()
        });
    }
}

#[test]
fn the_state_follows_the_connection() {
    let state = |side: &Side, of| match info(side, of).kind {
        EndpointKind::Outgoing { state } => state,
        other => panic!("{other:?}"),
    };
    let (mut server, mut client) = (Side::new(), Side::new());
    let listener = server.handle.listen_with("tcp://127.0.0.1:0", &Options::default().half_open(true)).unwrap();
    let at = server.handle.local_address(listener).unwrap();
    let endpoint = client.handle.connect(&at).unwrap();
    assert_eq!(state(&client, endpoint), ConnectionState::Opening);
    until(&mut server, &mut client, "open", |server, client| {
        !client.seen.is_empty() && !server.accepted(listener).is_empty()
    });
    assert_eq!(state(&client, endpoint), ConnectionState::Open);
    client.handle.finish(endpoint);
    assert_eq!(state(&client, endpoint), ConnectionState::Finishing);
    client.handle.close(endpoint);
    assert_eq!(state(&client, endpoint), ConnectionState::Closing);
    // Nobody listens there.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = Options::default().reconnect(Reconnect::default().initial_delay(Duration::from_secs(1000)));
    let lost = client.handle.connect_with(format!("tcp://{nobody}"), &options).unwrap();
    client.step_until("lost", |seen| seen.iter().any(|seen| matches!(seen, common::Seen::Lost(..))));
    assert_eq!(state(&client, lost), ConnectionState::Opening);
}

#[test]
fn a_table_forgets_what_has_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, listener) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let mut users = EndpointMap::new();
    assert_eq!(users.insert(accepted, "Zoe"), None);
    client.handle.close(endpoint);
    let mut forgotten = Vec::new();
    while !users.is_empty() {
        let on_event = |event: Event<'_, u32>| forgotten.extend(users.forget(&event));
        server.node.poll(Some(Duration::from_millis(1)), on_event).unwrap();
        client.step();
    }
    assert_eq!(forgotten, ["Zoe"]);
    // The next connection has the same place in the table.
    let at = server.handle.local_address(listener).unwrap();
    client.handle.connect(&at).unwrap();
    until(&mut server, &mut client, "accepted", |server, _| server.accepted(listener).len() == 2);
    assert_eq!((users.get(accepted), users.get(server.accepted(listener)[1])), (None, None));
}
