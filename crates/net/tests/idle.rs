//! The cost of idle connections. `examples/idle.rs` measures many more.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::memory::resident;
use estafette_net::conformance::Usage;
use estafette_net::{Event, Limits, Node, Outcome};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const CONNECTIONS: usize = 500;
/// More than enough for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// A WebSocket handshake request: RFC 6455, section 1.2.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A node that has accepted all connections, its peers, which have sent `first`, and how much
/// memory that took.
fn accepted(scheme: &str, first: &[u8]) -> (Node, Vec<TcpStream>, usize) {
    let mut limits = Limits::default();
    // This deadline passes while the node is being watched.
    limits.handshake = Duration::from_secs(1);
    let mut node = Node::with_limits(limits).unwrap();
    let handle = node.handle();
    let listener = handle.listen(format!("{scheme}://127.0.0.1:0")).unwrap();
    let port = handle.local_address(listener).unwrap().port().unwrap();
    let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    peers.iter_mut().for_each(|peer| peer.write_all(first).unwrap());
    let before = resident().unwrap();
    let mut accepted = 0;
    while accepted < CONNECTIONS {
        let on_event = |event: Event<'_, ()>| accepted += usize::from(matches!(event, Event::Accepted { .. }));
        assert!(node.poll(Some(PATIENCE), on_event).unwrap() > 0, "{accepted} were accepted");
    }
    // No edge remains for any connection.
    assert_eq!(node.poll(Some(Duration::ZERO), |_| {}).unwrap(), 0);
    (node, peers, resident().unwrap().saturating_sub(before))
}

/// As [`accepted`], with a node that did not wake up for three seconds.
fn undisturbed(scheme: &str, first: &[u8]) -> (Node, Vec<TcpStream>) {
    // Both ends of each connection are in this process.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();

    let mut slept = Vec::new();
    loop {
        let (mut node, peers, memory) = accepted(scheme, first);
        assert!(memory < CONNECTIONS * 4096, "{} bytes for each", memory / CONNECTIONS);
        let before = Usage::of_this_thread().unwrap();
        assert_eq!(node.poll(Some(Duration::from_secs(3)), |event| panic!("{event:?}")).unwrap(), 0);
        let spent = Usage::of_this_thread().unwrap() - before;
        slept.push(spent.sleeps);
        // One sleep for the whole time. The kernel itself may add a context switch, but not every
        // time.
        if spent.sleeps == 1 {
            return (node, peers);
        }
        assert!(slept.len() < 5, "sleeps of each attempt: {slept:?}");
    }
}

#[test]
fn many_idle_connections_take_little_memory_cause_no_wakeups_and_still_work() {
    let (mut node, mut peers) = undisturbed("tcp", b"");
    let handle = node.handle();
    peers.iter_mut().for_each(|peer| peer.write_all(b"ping").unwrap());
    let mut answered = 0;
    while answered < CONNECTIONS {
        let on_event = |event: Event<'_, ()>| {
            let Event::Message(from, message) = event else { panic!("{event:?}") };
            assert_eq!((&message[..], handle.send(from, &message)), (&b"ping"[..], Outcome::Sent));
            answered += 1;
        };
        assert!(node.poll(Some(PATIENCE), on_event).unwrap() > 0, "{answered} were answered");
    }
    for mut peer in peers {
        let mut answer = [0; 4];
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"ping");
    }
    drop(node);

    // WebSockets cause no wake-up either when their handshake deadline passes. They come second,
    // because they reuse the memory.
    for mut peer in undisturbed("ws", REQUEST).1 {
        let mut answer = [0; 12];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 101");
    }
}
