//! Property tests: a node keeps its guarantees in whatever order readiness is reported.
//!
//! Two nodes run in one thread, and nothing waits. When no event is left, everything must have been
//! delivered: what is missing then would never arrive.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::Node;
use crate::backend::scrambled;
use crate::{Endpoint, Event, Handle, Limits, Options, Outcome};

/// An action at one end of one connection: which connection, and which side.
#[derive(Debug, Clone)]
enum Step {
    Connect,
    Send {
        which: usize,
        side: usize,
        len: usize,
    },
    Pause {
        which: usize,
        side: usize,
    },
    Resume {
        which: usize,
        side: usize,
    },
    Finish {
        which: usize,
        side: usize,
    },
    Close {
        which: usize,
        side: usize,
    },
    /// Both sides poll this many times.
    Look {
        times: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let end = || (0..8_usize, 0..2_usize);
    let len = prop_oneof![0..20_usize, 0..3_000_usize];
    prop_oneof![
        2 => Just(Step::Connect),
        12 => (end(), len).prop_map(|((which, side), len)| Step::Send { which, side, len }),
        1 => end().prop_map(|(which, side)| Step::Pause { which, side }),
        1 => end().prop_map(|(which, side)| Step::Resume { which, side }),
        1 => end().prop_map(|(which, side)| Step::Finish { which, side }),
        1 => end().prop_map(|(which, side)| Step::Close { which, side }),
        4 => (1..8_usize).prop_map(|times| Step::Look { times }),
    ]
}

/// One end of a connection, and what is known of it.
#[derive(Debug, Default)]
struct End {
    endpoint: Option<Endpoint>,
    /// The messages that were accepted for sending, and those that were received.
    sent: Vec<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
    open: bool,
    /// A send found the connection full or was queued, and `Drained` has not arrived yet.
    waits: bool,
    /// The test called `finish` or `close` on it.
    finished: bool,
    closed_here: bool,
    /// The reason of its `Closed` event.
    closed: Option<String>,
}

/// Two nodes: the first listens, the second connects.
struct World {
    nodes: [Node<()>; 2],
    handles: [Handle<()>; 2],
    address: String,
    options: Options,
    /// Both ends of each connection. The listening side's end is known once its first message, the
    /// connection's number, has arrived.
    connections: Vec<[End; 2]>,
    /// Maps an endpoint to its connection, for each side.
    known: [HashMap<Endpoint, usize>; 2],
    listener: Endpoint,
    /// Accepted connections that have not received their first message yet.
    nameless: HashMap<Endpoint, End>,
}

impl World {
    fn new(address: String, seed: u64, vain: bool) -> World {
        // Limits so long that no deadline passes.
        let long = Duration::from_secs(1_000_000);
        let limits = Limits {
            queue: 4_000,
            read_budget: 500,
            handshake: long,
            message_timeout: long,
            flush: long,
            ..Limits::default()
        };
        // One of them ends the turns of its connections as early as possible.
        let nodes = [seed, !seed].map(|seed| {
            let time_slice = if seed & 1 == 0 { Duration::ZERO } else { long };
            let limits = Limits { time_slice, ..limits.clone() };
            Node::<()>::with_backend(scrambled(seed, vain).unwrap(), limits)
        });
        let handles = [nodes[0].handle(), nodes[1].handle()];
        let options = Options::default().buffer(1_000);
        let listener = handles[0].listen_with(address.as_str(), &options).unwrap();
        World {
            nodes,
            handles,
            address,
            options,
            connections: Vec::new(),
            known: [HashMap::new(), HashMap::new()],
            listener,
            nameless: HashMap::new(),
        }
    }

    /// Connects and sends the connection's number as its first message.
    fn connect(&mut self) {
        let name = self.connections.len();
        let endpoint = self.handles[1].connect_with(self.address.as_str(), &self.options).unwrap();
        self.known[1].insert(endpoint, name);
        let end = End { endpoint: Some(endpoint), ..End::default() };
        self.connections.push([End::default(), end]);
        self.send(name, 1, name.to_be_bytes().to_vec());
    }

    fn send(&mut self, which: usize, side: usize, message: Vec<u8>) {
        let end = &mut self.connections[which][side];
        let Some(endpoint) = end.endpoint else { return };
        match self.handles[side].send(endpoint, &message) {
            Outcome::Sent => end.sent.push(message),
            Outcome::Queued => {
                end.sent.push(message);
                end.waits = true;
            }
            Outcome::Full => end.waits = true,
            Outcome::Closed => assert!(end.finished || end.closed_here || end.closed.is_some() || self.ends(which)),
            other => panic!("{other:?}"),
        }
    }

    /// Whether the test finished or closed either end of a connection.
    fn ends(&self, which: usize) -> bool {
        self.connections[which].iter().any(|end| end.finished || end.closed_here)
    }

    fn take(&mut self, step: &Step) {
        let count = self.connections.len().max(1);
        match *step {
            Step::Connect => self.connect(),
            Step::Send { which, side, len } => {
                if let Some(ends) = self.connections.get(which % count) {
                    let message = (0..len).map(|i| (i + ends[side].sent.len()) as u8).collect();
                    self.send(which % count, side, message);
                }
            }
            Step::Pause { which, side } => self.at(which % count, side, |handle, _, to| handle.pause(to)),
            Step::Resume { which, side } => self.at(which % count, side, |handle, _, to| handle.resume(to)),
            Step::Finish { which, side } => self.at(which % count, side, |handle, end, to| {
                end.finished = true;
                handle.finish(to);
            }),
            Step::Close { which, side } => self.at(which % count, side, |handle, end, to| {
                end.closed_here = true;
                handle.close(to);
            }),
            Step::Look { times } => {
                for _ in 0..times {
                    self.look();
                }
            }
        }
    }

    fn at(&mut self, which: usize, side: usize, what: impl FnOnce(&Handle<()>, &mut End, Endpoint)) {
        if let Some(end) = self.connections.get_mut(which).map(|ends| &mut ends[side])
            && let Some(endpoint) = end.endpoint
        {
            what(&self.handles[side], end, endpoint);
        }
    }

    /// Polls both nodes once and records their events. Returns how many there were.
    fn look(&mut self) -> usize {
        let mut count = 0;
        for side in 0..2 {
            let mut events = Vec::new();
            let look = self.nodes[side].poll(Some(Duration::ZERO), |event| {
                events.push(match event {
                    Event::Message(from, message) => (from, Seen::Message(message.take())),
                    Event::Connected(endpoint) | Event::Accepted { endpoint, .. } => (endpoint, Seen::Open),
                    Event::Drained(endpoint) => (endpoint, Seen::Drained),
                    Event::Closed { endpoint, reason } => (endpoint, Seen::Closed(reason.to_string())),
                    other => panic!("{other:?}"),
                });
            });
            count += look.unwrap();
            events.into_iter().for_each(|(endpoint, what)| self.note(side, endpoint, what));
        }
        count
    }

    fn note(&mut self, side: usize, endpoint: Endpoint, what: Seen) {
        assert!(side == 1 || endpoint != self.listener, "{what:?}");
        if side == 0
            && let Seen::Message(name) = &what
            && let Some(end) = self.nameless.remove(&endpoint)
        {
            let name = usize::from_be_bytes(name.as_slice().try_into().unwrap());
            assert!(self.connections[name][0].endpoint.is_none());
            self.connections[name][0] = End { endpoint: Some(endpoint), ..end };
            assert!(self.known[0].insert(endpoint, name).is_none());
        }
        let end = match self.known[side].get(&endpoint) {
            Some(name) => &mut self.connections[*name][side],
            None => self.nameless.entry(endpoint).or_default(),
        };
        assert_eq!(end.closed, None, "{what:?} after the end");
        assert_ne!(end.open, matches!(what, Seen::Open), "{what:?}");
        match what {
            Seen::Open => end.open = true,
            Seen::Message(message) => end.received.push_back(message),
            Seen::Drained => assert!(std::mem::take(&mut end.waits), "nothing waited at {end:?}"),
            Seen::Closed(reason) => end.closed = Some(reason),
        }
    }

    /// Polls until nothing more happens. On average every second poll delivers an edge, so 200
    /// quiet polls in a row mean that none is held back.
    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 200 {
            quiet = if self.look() == 0 { quiet + 1 } else { 0 };
        }
    }

    /// Checks the guarantees after everything has settled.
    fn check(&self) {
        for (which, ends) in self.connections.iter().enumerate() {
            for (side, end) in ends.iter().enumerate() {
                let other = &ends[1 - side];
                let context = |what: &str| format!("connection {which}, side {side}, {what}: {ends:?}");
                let whole = !end.closed_here && end.endpoint.is_some();
                let received = end.received.len();
                assert!(
                    received <= other.sent.len() && end.received.iter().eq(&other.sent[..received]),
                    "{}",
                    context("messages")
                );
                assert!(!whole || received == other.sent.len(), "{}", context("lost some"));
                assert!(end.closed.is_some() || !end.waits, "{}", context("never drained"));
                assert!(end.endpoint.is_none() || end.closed.is_some() == self.ends(which), "{}", context("closed"));
            }
        }
    }
}

#[derive(Debug)]
enum Seen {
    Open,
    Message(Vec<u8>),
    Drained,
    Closed(String),
}

fn holds(scheme: &str, steps: &[Step], seed: u64, vain: bool) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut world = World::new(format!("{scheme}://{}", path.display()), seed, vain);
    steps.iter().for_each(|step| world.take(step));
    for which in 0..world.connections.len() {
        (0..2).for_each(|side| world.take(&Step::Resume { which, side }));
    }
    world.settle();
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn in_process_pipes_keep_their_guarantees_in_any_order(steps in prop::collection::vec(step(), 1..80), seed: u64, vain: bool) {
        holds("inproc+msg", &steps, seed, vain);
    }

    #[test]
    fn unix_sockets_keep_their_guarantees_in_any_order(steps in prop::collection::vec(step(), 1..80), seed: u64, vain: bool) {
        holds("unix+msg", &steps, seed, vain);
    }
}
