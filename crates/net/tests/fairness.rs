//! A busy connection does not keep others waiting for long.
//!
//! The tests count how many messages of one connection are delivered in a row while another one has
//! messages too. Everything is in the sockets' buffers before the node looks, so the counts do not
//! depend on the speed of the machine.

mod common;

use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::PATIENCE;
use estafette_net::{Endpoint, Event, Limits, Node};

/// A message of eight bytes, with its header.
const FRAME: usize = 12;

/// A node, and the peers whose messages wait in its sockets: each message is its number.
struct Scene {
    node: Node<()>,
    /// The sockets of the peers, and how many messages wait in each.
    peers: Vec<(UnixStream, u64)>,
    folder: tempfile::TempDir,
}

impl Scene {
    fn new(limits: Limits, peers: usize) -> Scene {
        let (node, folder) = (Node::with_limits(limits).unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("socket");
        node.handle().listen(format!("unix+msg://{}", path.display())).unwrap();
        let peers = (0..peers).map(|_| filled(UnixStream::connect(&path).unwrap())).collect();
        Scene { node, peers, folder }
    }

    /// Runs the node, and calls `on_message` with each message, until `stop` holds for the numbers
    /// of messages of each connection. Returns how many messages of one connection came in a row at
    /// most while all had more.
    fn longest_run(&mut self, mut on_message: impl FnMut(), stop: impl Fn(&[u64]) -> bool) -> usize {
        let waiting = self.peers.iter().map(|(_, count)| *count).min().unwrap();
        let (mut counts, mut last, mut run, mut longest) = (HashMap::<Endpoint, u64>::new(), None, 0, 0);
        let mut stopped = false;
        while !stopped {
            let on_event = |event: Event<'_, ()>| match event {
                Event::Message(from, message) => {
                    let count = counts.entry(from).or_default();
                    assert_eq!(message[..], count.to_be_bytes());
                    *count += 1;
                    run = if last == Some(from) { run + 1 } else { 1 };
                    last = Some(from);
                    let all: Vec<u64> = counts.values().copied().collect();
                    if !stopped && all.iter().all(|count| *count < waiting) {
                        longest = longest.max(run);
                    }
                    stopped = stopped || stop(&all);
                    if !stopped {
                        on_message();
                    }
                }
                Event::Accepted { .. } => {}
                other => panic!("{other:?}"),
            };
            assert!(self.node.poll(Some(PATIENCE), on_event).unwrap() > 0, "nothing comes any more");
        }
        longest
    }
}

/// Writes numbered messages until the socket is full. Returns their number.
fn filled(mut peer: UnixStream) -> (UnixStream, u64) {
    peer.set_nonblocking(true).unwrap();
    let mut messages = 0;
    loop {
        let many: Vec<u8> = (messages..messages + 1000)
            .flat_map(|number: u64| [&8_u32.to_be_bytes()[..], &number.to_be_bytes()].concat())
            .collect();
        match peer.write(&many) {
            // A part of a message may have been written. It is never completed.
            Ok(written) if written < many.len() => return (peer, messages + (written / FRAME) as u64),
            Ok(_) => messages += 1000,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (peer, messages),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Limits under which time does not matter.
fn untimed() -> Limits {
    let mut limits = Limits::default();
    limits.time_slice = Duration::MAX;
    limits
}

#[test]
fn a_read_budget_below_the_size_of_the_buffer_is_respected() {
    let mut limits = untimed();
    limits.read_budget = 8 << 10;
    let mut scene = Scene::new(limits, 2);
    assert!(scene.peers.iter().all(|(_, count)| *count > 2000));
    let longest = scene.longest_run(|| {}, |counts| counts.iter().any(|count| *count > 2000));
    assert!(longest <= (8 << 10) / FRAME + 1, "{longest} messages in a row");
}

#[test]
fn messages_that_take_time_give_way_to_others_by_default() {
    // A slice of 500 us has 10 of these messages. Before and after the first look at the clock there
    // are up to 16 more.
    let mut scene = Scene::new(Limits::default(), 2);
    let longest =
        scene.longest_run(|| thread::sleep(Duration::from_micros(50)), |counts| counts.iter().sum::<u64>() > 400);
    assert!(longest <= 50, "{longest} messages in a row");
}

#[test]
fn messages_stay_in_order_and_complete_when_turns_end_early() {
    for unfinished in [1 << 20, 100] {
        let mut limits = Limits::default();
        limits.time_slice = Duration::ZERO;
        // With little memory for what is kept, turns are not cut, and nobody is disconnected.
        limits.unfinished = unfinished;
        let mut scene = Scene::new(limits, 3);
        let all = scene.peers.iter().map(|(_, count)| *count).sum::<u64>();
        scene.longest_run(|| {}, |counts| counts.iter().sum::<u64>() == all);
    }
}

#[test]
fn a_turn_goes_on_while_nobody_else_waits() {
    let mut limits = Limits::default();
    limits.time_slice = Duration::ZERO;
    let mut scene = Scene::new(limits, 1);
    let (_, waiting) = scene.peers[0];
    // One call to `poll` delivers one turn of each connection.
    let (mut longest, mut all) = (0, 0);
    while all < waiting {
        let mut messages = 0;
        let count = |event: Event<'_, ()>| messages += u64::from(matches!(event, Event::Message(..)));
        assert!(scene.node.poll(Some(PATIENCE), count).unwrap() > 0, "nothing comes any more");
        (longest, all) = (longest.max(messages), all + messages);
    }
    assert!(longest > 1000, "a turn of {longest} messages");
}

#[test]
fn a_connection_that_becomes_ready_gets_its_turn_while_another_one_is_delivered() {
    let mut limits = Limits::default();
    limits.time_slice = Duration::ZERO;
    let mut scene = Scene::new(limits, 1);
    let folder = scene.folder.path().join("socket");
    let (mut late, mut messages, mut until) = (None, 0, None);
    // The second peer connects and sends when the first one's messages are being delivered.
    while until.is_none() {
        let on_event = |event: Event<'_, ()>| match event {
            Event::Message(_, message) if *message == *b"late" => until = until.or(Some(messages)),
            Event::Message(..) => {
                messages += 1;
                if messages == 500 {
                    let mut peer = UnixStream::connect(&folder).unwrap();
                    peer.write_all(b"\0\0\0\x04late").unwrap();
                    late = Some(peer);
                }
            }
            _ => {}
        };
        assert!(scene.node.poll(Some(PATIENCE), on_event).unwrap() > 0, "nothing comes any more");
    }
    let waited = until.unwrap() - 500;
    assert!(waited <= 100, "the message waited for {waited} others");
}

/// A node with one connection whose peer, a thread, sends without end. `stop` ends it.
struct Flood {
    node: Node<()>,
    folder: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    peer: thread::JoinHandle<()>,
}

impl Flood {
    fn new() -> Flood {
        let mut limits = Limits::default();
        limits.time_slice = Duration::ZERO;
        let (node, folder) = (Node::with_limits(limits).unwrap(), tempfile::tempdir().unwrap());
        let path = folder.path().join("socket");
        node.handle().listen(format!("unix+msg://{}", path.display())).unwrap();
        let mut peer = UnixStream::connect(&path).unwrap();
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let peer = thread::spawn(move || {
            let messages = b"\0\0\0\x08flooding".repeat(100);
            while !stopped.load(Ordering::Relaxed) && peer.write_all(&messages).is_ok() {}
        });
        Flood { node, folder, stop, peer }
    }

    /// Ends the flood.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.node);
        self.peer.join().unwrap();
    }
}

#[test]
fn a_poll_returns_while_a_peer_sends_without_end() {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let mut flood = Flood::new();
        for _ in 0..200 {
            flood.node.poll(Some(PATIENCE), |_| {}).unwrap();
        }
        flood.end();
        done.send(()).unwrap();
    });
    is_done.recv_timeout(2 * PATIENCE).expect("a call to poll does not return");
}

#[test]
fn a_long_flood_delays_others_no_more_than_a_short_one() {
    let mut flood = Flood::new();
    let mut other = UnixStream::connect(flood.folder.path().join("socket")).unwrap();
    let mut longest = 0;
    for round in 0_u32..300 {
        // While the flood is being delivered, the other one sends a message.
        let (mut sent_at, mut messages, mut arrived) = (None, 0, false);
        while !arrived {
            let on_event = |event: Event<'_, ()>| match event {
                Event::Message(_, message) if *message == round.to_be_bytes() => arrived = true,
                Event::Message(..) if !arrived => {
                    messages += 1;
                    if messages == 100 {
                        other.write_all(&[&4_u32.to_be_bytes()[..], &round.to_be_bytes()].concat()).unwrap();
                        sent_at = Some(messages);
                    }
                }
                _ => {}
            };
            assert!(flood.node.poll(Some(PATIENCE), on_event).unwrap() > 0, "nothing comes any more");
        }
        longest = longest.max(messages - sent_at.unwrap());
    }
    // Two slices of 16 messages, and what is left of a read that may not be kept.
    assert!(longest <= 200, "the message waited for {longest} others");
    flood.end();
}
