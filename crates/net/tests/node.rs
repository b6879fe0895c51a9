//! The node itself: signals, stopping, socket files, errors.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use common::{Seen, Side, address, connected, until};
use estafette_net::{Event, Limits, Node, Options, Outcome};

#[test]
fn signals_arrive_in_order_urgent_ones_first_and_never_early() {
    let mut side = Side::new();
    let begun = Instant::now();
    side.handle.signal_after(Duration::from_millis(400), 5);
    side.handle.signal_after(Duration::from_millis(20), 4);
    side.handle.signal_after(Duration::from_millis(400), 6);
    side.handle.signal(2);
    side.handle.signal(3);
    side.handle.signal_first(0);
    side.handle.signal_first(1);
    side.until("the last", |seen| (*seen == Seen::Signal(6)).then_some(()));
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert_eq!(side.seen, (0..7).map(Seen::Signal).collect::<Vec<_>>());
}

#[test]
fn a_sleeping_node_is_woken_by_signals_and_stopped_from_another_thread() {
    let mut node = Node::<u32>::new().unwrap();
    let handle = node.handle();
    let other = std::thread::spawn(move || {
        for i in 0..1000 {
            handle.signal(i);
            if i % 10 == 0 {
                std::thread::yield_now();
            }
        }
        handle
    });
    let mut next = 0;
    while next < 1000 {
        node.poll(None, |event| {
            let Event::Signal(signal) = event else { panic!("{event:?}") };
            assert_eq!(signal, next);
            next += 1;
        })
        .unwrap();
    }
    let handle = other.join().unwrap();
    let stop = std::thread::spawn(move || handle.stop());
    node.run(|event| panic!("{event:?}")).unwrap();
    stop.join().unwrap();
}

#[test]
fn a_wait_ends_at_its_timeout() {
    let mut node = Node::<()>::new().unwrap();
    assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
    let begun = Instant::now();
    assert!(node.next(Some(Duration::from_millis(30))).unwrap().is_none());
    assert!(begun.elapsed() >= Duration::from_millis(30));
}

#[test]
fn a_socket_file_is_removed_with_its_listener_and_a_stale_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let address = address("unix+msg", &folder);
    // A stale file: bound, and nobody listens any more.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let mut side = Side::new();
    let listener = side.handle.listen(address.as_str()).unwrap();
    let taken = Side::new().handle.listen(address.as_str()).unwrap_err().to_string();
    assert!(taken.contains("listening at unix+msg://") && taken.contains("in use"), "{taken}");
    side.handle.close(listener);
    assert_eq!(side.until_closed(listener), "closed here");
    assert!(!path.exists());
    // A dropped node removes its file too. A file that is not a socket is left alone.
    let side = Side::new();
    side.handle.listen(address.as_str()).unwrap();
    drop(side);
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(Side::new().handle.listen(address.as_str()).is_err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}

#[test]
fn a_dropped_node_accepts_nothing_and_its_connections_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    let handle = server.handle.clone();
    drop(server);
    assert_eq!(handle.send(accepted, b"late"), Outcome::Closed);
    assert_eq!(handle.connect("tcp://127.0.0.1:1").unwrap_err().to_string(), "the node is gone");
    assert_eq!(client.until_closed(endpoint), "ended by the peer");
}

#[test]
fn endpoints_are_not_reused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (_, first, listener) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    client.handle.close(first);
    client.until("closed", |seen| matches!(seen, Seen::Closed(which, _) if *which == first).then_some(()));
    let second = client.handle.connect(server.handle.local_address(listener).unwrap()).unwrap();
    client.until("connected", |seen| (*seen == Seen::Connected(second)).then_some(()));
    assert_ne!(first, second);
    assert_eq!(client.handle.send(first, b"to nobody"), Outcome::Closed);
    assert_eq!(client.handle.send(second, b"to somebody"), Outcome::Sent);
}

#[test]
fn a_listener_at_its_limit_resumes_by_itself() {
    let mut limits = Limits::default();
    limits.connections = 1;
    let mut node = Node::<()>::with_limits(limits).unwrap();
    let handle = node.handle();
    let listener = handle.listen("tcp://127.0.0.1:0").unwrap();
    let port = handle.local_address(listener).unwrap().port().unwrap();
    let echo = handle.clone();
    let server = std::thread::spawn(move || {
        node.run(|event| {
            if let Event::Message(from, message) = event {
                assert_eq!(echo.send(from, &message), Outcome::Sent);
            }
        })
        .unwrap();
    });
    let ask = |stream: &mut TcpStream| {
        let mut answer = [0; 4];
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut answer).map(|()| assert_eq!(&answer, b"ping"))
    };
    let mut first = TcpStream::connect(("127.0.0.1", port)).unwrap();
    ask(&mut first).unwrap();
    let mut second = TcpStream::connect(("127.0.0.1", port)).unwrap();
    second.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(ask(&mut second).is_err(), "more connections than the limit");
    drop(first);
    // No event wakes the node, only the listener's timer.
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = [0; 4];
    second.read_exact(&mut answer).unwrap();
    handle.stop();
    server.join().unwrap();
}

#[test]
fn errors_say_what_failed_where_and_what_is_possible() {
    let node = Node::<()>::new().unwrap();
    let handle = node.handle();
    let error = handle.connect("carrier-pigeon://loft").unwrap_err().to_string();
    assert!(
        error.starts_with("no transport for the scheme of carrier-pigeon://loft; available: inproc, tcp, "),
        "{error}"
    );
    let error = handle.listen("tcp://192.0.2.1:0").unwrap_err().to_string();
    assert!(error.starts_with("listening at tcp://192.0.2.1:0: "), "{error}");
    assert!(handle.connect("tcp://nowhere").unwrap_err().to_string().contains("no port"));
    let error = handle.connect_with("tcp://127.0.0.1:1", &Options::default().records(0)).unwrap_err().to_string();
    assert!(error.contains("records of 0 bytes"), "{error}");
}

#[test]
fn connecting_where_nobody_listens_reports_the_systems_error() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in ["tcp", "tcp+msg", "ws"] {
        let (mut server, mut client) = (Side::new(), Side::new());
        let listener = server.handle.listen(address(scheme, &folder).as_str()).unwrap();
        let at = server.handle.local_address(listener).unwrap();
        server.handle.close(listener);
        assert_eq!(server.until_closed(listener), "closed here");
        let endpoint = client.handle.connect(&at).unwrap();
        let reason = client.until_closed(endpoint);
        assert!(reason.starts_with("not connected: Connection refused"), "{reason}");
    }
    let error = Side::new().handle.connect(address("inproc", &folder).as_str()).unwrap_err().to_string();
    assert!(error.contains("inproc://") && error.contains("nobody in this process listens"), "{error}");
    let error = Side::new().handle.connect(address("unix", &folder).as_str()).unwrap_err().to_string();
    assert!(error.contains("unix://") && error.contains("No such file"), "{error}");
}

#[test]
fn an_endpoint_of_another_node_is_an_error_and_reaches_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, mut client) = (Side::new(), Side::new());
    let (accepted, endpoint, _) = connected(&mut server, &mut client, &address("tcp+msg", &folder));
    // A third node has the same number of endpoints, in the same places.
    let (mut other_server, mut other) = (Side::new(), Side::new());
    let (_, foreign, _) = connected(&mut other_server, &mut other, &address("tcp+msg", &folder));
    assert_ne!(endpoint, foreign);
    assert_eq!(client.handle.send(foreign, b"astray"), Outcome::ForeignEndpoint);
    assert_eq!(client.handle.send_text(foreign, "astray"), Outcome::ForeignEndpoint);
    let mut batch = client.handle.batch(foreign);
    assert_eq!(batch.push(b"astray"), Outcome::ForeignEndpoint);
    assert_eq!(batch.flush(), Outcome::Sent, "nothing was collected");
    assert!(!Outcome::ForeignEndpoint.is_accepted());
    assert_eq!((client.handle.local_address(foreign), client.handle.peer_address(foreign)), (None, None));
    // These do nothing.
    client.handle.pause(foreign);
    client.handle.finish(foreign);
    client.handle.close(foreign);
    assert_eq!(client.handle.send(endpoint, b"the first"), Outcome::Sent);
    assert_eq!(server.handle.send(accepted, b"the answer"), Outcome::Sent);
    until(&mut server, &mut client, "both messages", |server, client| {
        server.messages(accepted) == [b"the first"] && client.messages(endpoint) == [b"the answer"]
    });
    assert!(client.closed(endpoint).is_none());
}

#[test]
fn an_endpoint_prints_its_node_its_place_and_its_peer() {
    let mut side = Side::new();
    let socket = side.handle.listen("udp://127.0.0.1:0").unwrap();
    let to = side.handle.connect(side.handle.local_address(socket).unwrap()).unwrap();
    let node = socket.to_string().split(':').next().unwrap().to_owned();
    assert_eq!((socket.to_string(), to.to_string()), (format!("{node}:0.0"), format!("{node}:1.0")));
    assert_eq!(format!("{to:?}"), format!("Endpoint({node}:1.0)"));
    assert_eq!(side.handle.send(to, b"hello"), Outcome::Sent);
    let peer = side.until("a message", |seen| match seen {
        Seen::Message(from, ..) => Some(*from),
        _ => None,
    });
    let at = side.handle.local_address(to).unwrap().to_string().replace("udp://", "");
    assert_eq!(peer.to_string(), format!("{node}:0.0[{at}]"));
}

#[test]
fn a_second_listener_at_a_live_socket_file_is_refused_and_the_first_one_does_not_notice() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let error = Side::new().handle.listen(address("unix", &folder).as_str()).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_message_longer_than_the_queue_is_accepted_while_the_queue_has_space() {
    let folder = tempfile::tempdir().unwrap();
    let mut limits = Limits::default();
    limits.queue = 1000;
    let (mut server, mut client) = (Side::new(), Side::with(limits));
    let listener = server.handle.listen(address("tcp+msg", &folder).as_str()).unwrap();
    let endpoint = client.handle.connect(server.handle.local_address(listener).unwrap()).unwrap();
    // Everything is queued until the connection is open.
    let messages = [vec![1; 500], vec![2; 50_000], vec![3; 1]];
    let outcomes = messages.each_ref().map(|message| client.handle.send(endpoint, message));
    assert_eq!(outcomes, [Outcome::Queued, Outcome::Queued, Outcome::Full]);
    until(&mut server, &mut client, "drained", |_, client| client.seen.contains(&Seen::Drained(endpoint)));
    assert!(client.handle.send(endpoint, &messages[2]).is_accepted());
    until(&mut server, &mut client, "all", |server, _| {
        server.accepted(listener).first().is_some_and(|accepted| server.messages(*accepted) == messages)
    });
}

#[test]
fn the_limit_of_connections_is_the_number_of_connections() {
    let mut limits = Limits::default();
    limits.connections = 10;
    let mut side = Side::with(limits);
    let listeners: Vec<_> = (0..3).map(|_| side.handle.listen("tcp://127.0.0.1:0").unwrap()).collect();
    side.handle.listen("udp://127.0.0.1:0").unwrap();
    let port = side.handle.local_address(listeners[0]).unwrap().port().unwrap();
    let peers: Vec<_> = (0..12).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    side.step_until("ten connections", |seen| seen.len() >= 10);
    (0..10).for_each(|_| side.step());
    assert_eq!(side.accepted(listeners[0]).len(), 10);
    let error = side.handle.connect(format!("tcp://127.0.0.1:{port}")).unwrap_err().to_string();
    assert!(error.contains("the limit of 10 connections is reached"), "{error}");
    drop(peers);
}
