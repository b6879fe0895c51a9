//! Tests the loops of several senders in one process, with a mechanism that passes bytes in memory.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::case::Place;
use crate::case::{Cell, Load, Pattern, Payload};
use crate::clock::now_ns;
use crate::mechanism::{Mechanism, Raw, Rx, Tx};
use crate::message::{Generator, Verifier};
use crate::pattern::TURN;
use crate::pauses::Pauses;
use crate::protocol::{self, ToChild, ToCoordinator};
use crate::spec::{Runtime, Scope, Spec, Wait};
use crate::window::{TAIL_NS, Window};

const LEN: usize = 24;

/// A byte queue to the consumer.
#[derive(Default)]
struct ByteQueue {
    bytes: Mutex<VecDeque<u8>>,
    written: Condvar,
}

impl ByteQueue {
    fn write(&self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend(bytes);
        self.written.notify_one();
    }
}

/// How the senders of a case are connected.
#[derive(Clone, Copy, PartialEq)]
enum Senders {
    /// Each sender has its own end.
    Ends,
    /// One end sends on all connections.
    OneEnd,
    /// Each sender has its own end, and the bytes of their first messages are interleaved.
    Mixing,
}

struct Memory {
    queue: Arc<ByteQueue>,
    senders: Senders,
}

impl Mechanism for Memory {
    fn spec(&self) -> Spec {
        Spec::new("process/memory").patterns(&[Pattern::Writers, Pattern::Connections]).max_producers(None)
    }
}

impl Transport<Raw> for Memory {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, _: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        if role == Role::Consumer(0) {
            return Ok(Ends::consumer(0, Receiving(Arc::clone(&self.queue))));
        }
        let buffers = case.pattern == Pattern::Connections;
        let halfway = (self.senders == Senders::Mixing).then(|| Arc::new(Barrier::new(case.producers)));
        let tx = || Sending {
            queue: Arc::clone(&self.queue),
            halfway: halfway.clone(),
            buffers,
            buffered: Vec::new(),
            producers: Vec::new(),
        };
        let ends = if self.senders == Senders::OneEnd { 1 } else { case.producers };
        Ok(Ends::many((0..ends).map(|_| tx()), []))
    }
}

struct Sending {
    queue: Arc<ByteQueue>,
    /// Where all senders wait after the first half of their first message.
    halfway: Option<Arc<Barrier>>,
    /// Whether messages are buffered until a flush.
    buffers: bool,
    buffered: Vec<u8>,
    /// The producer of each buffered message.
    producers: Vec<usize>,
}

impl Tx for Sending {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let mut message = [0; LEN];
        self.producers.push(source.producer());
        source.fill(&mut message);
        self.buffered.extend(message);
        if let Some(halfway) = self.halfway.take() {
            self.queue.write(&self.buffered[..LEN / 2]);
            halfway.wait();
            self.buffered.drain(..LEN / 2);
        }
        if self.buffers { Ok(()) } else { self.write_buffered() }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffered()
    }
}

impl Sending {
    fn write_buffered(&mut self) -> io::Result<()> {
        self.queue.write(&self.buffered);
        let producers = &self.producers;
        assert!(producers.iter().all(|one| *one == producers[0]), "a turn has one connection: {producers:?}");
        assert!(producers.len() as u64 <= TURN, "{} messages in a turn", producers.len());
        self.buffered.clear();
        self.producers.clear();
        Ok(())
    }
}

struct Receiving(Arc<ByteQueue>);

impl Rx for Receiving {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let bytes = self.0.bytes.lock().unwrap();
        let mut bytes = self.0.written.wait_while(bytes, |bytes| bytes.len() < LEN).unwrap();
        let message: Vec<u8> = bytes.drain(..LEN).collect();
        verifier.bytes(&message);
        Ok(())
    }
}

/// Runs a case to its end, with a thread for each child. Returns the reports of the sending and
/// the receiving child.
fn play(pattern: Pattern, producers: usize, senders: Senders, messages: u64) -> [Report; 2] {
    let (scope, payload, capacity) = (Scope::Process, Payload::Bytes(LEN), 1);
    let (runtime, wait, place, load) = (Runtime::Thread, Wait::Block, Place::Free, Load::Saturated);
    let cell = Cell { scope, pattern, payload, producers, capacity, runtime, wait, place, load };
    let case = Case { mechanism: String::from("process/memory"), cell };
    let memory = Memory { queue: Arc::default(), senders };
    assert_eq!(memory.roles(&case), [Role::Consumer(0), Role::Producer(0)]);
    let (case, memory) = (&case, &memory);
    thread::scope(|scope| {
        let children = [Role::Producer(0), Role::Consumer(0)].map(|role| {
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let (ours, theirs) = pair.unwrap();
            let rendezvous = Rendezvous::new(theirs, std::env::temp_dir(), crate::protocol::loopback());
            let window = Window::Count { warmup: messages / 10, messages: messages - messages / 10 };
            let cpus = vec![None; if role == Role::Producer(0) { case.senders() } else { 1 }];
            let mut ctx = Ctx {
                rendezvous,
                window,
                tail_ns: TAIL_NS,
                link: None,
                seed: 7,
                secret: 8,
                cpus,
                pauses: Pauses::default(),
            };
            (ours, scope.spawn(move || drive::<Memory, Raw>(memory, case, role, &mut ctx).unwrap()))
        });
        let all: Vec<&OwnedFd> = children.iter().map(|(socket, _)| socket).collect();
        for socket in &all {
            let packet = protocol::receive::<ToCoordinator>(socket).unwrap();
            assert!(matches!(packet, Some((ToCoordinator::Ready { .. }, _))), "{packet:?}");
        }
        for socket in &all {
            protocol::send(socket, &ToChild::Go { start_ns: now_ns() }, &[]).unwrap();
        }
        children.map(|(_socket, child)| child.join().unwrap())
    })
}

#[test]
fn each_writer_of_a_connection_is_a_party_and_all_messages_arrive() {
    let [sent, received] = play(Pattern::Writers, 3, Senders::Ends, 1_000);
    let each: Vec<_> = sent.parties.iter().map(|party| (party.role, party.sent)).collect();
    assert_eq!(each, [(Role::Producer(0), 334), (Role::Producer(1), 333), (Role::Producer(2), 333)]);
    let [consumer] = &received.parties[..] else { panic!("{received:?}") };
    assert!(consumer.faults.is_empty(), "{:?}", consumer.faults);
    assert_eq!(consumer.messages, 900);
    let counts = consumer.received.iter().map(|count| (count.received, count.announced));
    assert!(counts.eq([334, 333, 333].map(|sent| (sent, Some(sent)))), "{:?}", consumer.received);
}

#[test]
fn interleaved_bytes_of_writers_are_damage_and_end_the_consumer() {
    let [_, received] = play(Pattern::Writers, 2, Senders::Mixing, 1_000);
    let [consumer] = &received.parties[..] else { panic!("{received:?}") };
    assert_eq!(consumer.faults.damaged, 1);
    assert!(consumer.received.iter().all(|count| (count.received, count.announced) == (0, None)), "{consumer:?}");
}

#[test]
fn a_sender_switches_between_connections_and_each_has_its_own_stream() {
    for (connections, senders) in [(1, Senders::Ends), (5, Senders::Ends), (5, Senders::OneEnd), (300, Senders::OneEnd)]
    {
        let [sent, received] = play(Pattern::Connections, connections, senders, 1_000);
        let [sender] = &sent.parties[..] else { panic!("{sent:?}") };
        assert_eq!((sender.role, sender.sent), (Role::Producer(0), 1_000));
        let [consumer] = &received.parties[..] else { panic!("{received:?}") };
        assert!(consumer.faults.is_empty(), "{:?}", consumer.faults);
        let mut expected = vec![0; connections];
        (0..1_000).for_each(|message| expected[(message / TURN) as usize % connections] += 1);
        let counts = consumer.received.iter().map(|count| (count.received, count.announced));
        assert!(counts.eq(expected.iter().map(|&sent| (sent, Some(sent)))), "{connections}: {:?}", consumer.received);
    }
}
