//! The loops of several that send in one process, over bytes in memory.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::case::{Cell, Load, Payload, TURN};
use crate::clock::now_ns;
use crate::mechanism::{Mechanism, Raw, Rx, Tx};
use crate::message::{Generator, Verifier};
use crate::protocol::{self, ToChild, ToCoordinator};
use crate::spec::{Scope, Spec, Wait};

const LEN: usize = 24;

/// Bytes on their way to the consumer.
#[derive(Default)]
struct Way {
    bytes: Mutex<VecDeque<u8>>,
    come: Condvar,
}

impl Way {
    fn write(&self, bytes: &[u8]) {
        self.bytes.lock().unwrap().extend(bytes);
        self.come.notify_one();
    }
}

/// What the senders of a case are.
#[derive(Clone, Copy, PartialEq)]
enum Senders {
    /// Each has an end.
    Ends,
    /// One end sends on all connections.
    OneEnd,
    /// Each has an end; the first messages of two get into each other.
    Mixing,
}

struct Memory {
    way: Arc<Way>,
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
            return Ok(Ends::consumer(0, Receiving(Arc::clone(&self.way))));
        }
        let waits = case.pattern == Pattern::Connections;
        let mixed = (self.senders == Senders::Mixing).then(|| Arc::new(Barrier::new(case.producers)));
        let tx =
            || Sending { way: Arc::clone(&self.way), mixed: mixed.clone(), waits, filled: Vec::new(), of: Vec::new() };
        let ends = if self.senders == Senders::OneEnd { 1 } else { case.producers };
        Ok(Ends::many((0..ends).map(|_| tx()), []))
    }
}

struct Sending {
    way: Arc<Way>,
    /// Where all are halfway through a message.
    mixed: Option<Arc<Barrier>>,
    /// Whether messages wait until they are flushed.
    waits: bool,
    filled: Vec<u8>,
    /// Whose they are.
    of: Vec<usize>,
}

impl Tx for Sending {
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        let mut message = [0; LEN];
        self.of.push(source.producer());
        source.fill(&mut message);
        self.filled.extend(message);
        if let Some(halfway) = self.mixed.take() {
            self.way.write(&self.filled[..LEN / 2]);
            halfway.wait();
            self.filled.drain(..LEN / 2);
        }
        ready(if self.waits { Ok(()) } else { self.leave() })
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.leave())
    }
}

impl Sending {
    fn leave(&mut self) -> io::Result<()> {
        self.way.write(&self.filled);
        assert!(self.of.iter().all(|of| *of == self.of[0]), "a turn is one connection's: {:?}", self.of);
        assert!(self.of.len() as u64 <= TURN, "{} messages in a turn", self.of.len());
        self.filled.clear();
        self.of.clear();
        Ok(())
    }
}

struct Receiving(Arc<Way>);

impl Rx for Receiving {
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        let bytes = self.0.bytes.lock().unwrap();
        let mut bytes = self.0.come.wait_while(bytes, |bytes| bytes.len() < LEN).unwrap();
        let message: Vec<u8> = bytes.drain(..LEN).collect();
        verifier.bytes(&message);
        ready(Ok(()))
    }
}

/// Plays a case to its end, in a thread for each child. Returns what the sending and the receiving one reported.
fn play(pattern: Pattern, producers: usize, senders: Senders, messages: u64) -> [Report; 2] {
    let (scope, payload, capacity) = (Scope::Process, Payload::Bytes(LEN), 1);
    let (runtime, wait, place, load) = (Runtime::Thread, Wait::Block, Place::Free, Load::Saturated);
    let cell = Cell { scope, pattern, payload, producers, capacity, runtime, wait, place, load };
    let case = Case { mechanism: String::from("process/memory"), cell };
    let memory = Memory { way: Arc::default(), senders };
    assert_eq!(memory.roles(&case), [Role::Consumer(0), Role::Producer(0)]);
    let (case, memory) = (&case, &memory);
    thread::scope(|scope| {
        let children = [Role::Producer(0), Role::Consumer(0)].map(|role| {
            let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let (ours, theirs) = pair.unwrap();
            let rendezvous = Rendezvous::new(theirs, std::env::temp_dir());
            let window = Window::Count { warmup: messages / 10, messages: messages - messages / 10 };
            let cpus = vec![None; if role == Role::Producer(0) { case.sending() } else { 1 }];
            let mut ctx = Ctx { rendezvous, window, seed: 7, cpus, pauses: Pauses::default() };
            (ours, scope.spawn(move || drive::<Memory, Raw>(memory, case, role, &mut ctx).unwrap()))
        });
        let all: Vec<&OwnedFd> = children.iter().map(|(socket, _)| socket).collect();
        for socket in &all {
            let said = protocol::receive::<ToCoordinator>(socket).unwrap();
            assert!(matches!(said, Some((ToCoordinator::Ready {}, _))), "{said:?}");
        }
        for socket in &all {
            protocol::send(socket, &ToChild::Go { start_ns: now_ns() }, &[]).unwrap();
        }
        children.map(|(_socket, child)| child.join().unwrap())
    })
}

#[test]
fn each_writer_of_a_connection_is_a_party_and_all_that_they_send_arrives() {
    let [sent, heard] = play(Pattern::Writers, 3, Senders::Ends, 1_000);
    let each: Vec<_> = sent.parties.iter().map(|party| (party.role, party.sent)).collect();
    assert_eq!(each, [(Role::Producer(0), 334), (Role::Producer(1), 333), (Role::Producer(2), 333)]);
    let [consumer] = &heard.parties[..] else { panic!("{heard:?}") };
    assert!(consumer.faults.none(), "{:?}", consumer.faults);
    assert_eq!(consumer.messages, 900);
    let counts = consumer.received.iter().map(|count| (count.received, count.announced));
    assert!(counts.eq([334, 333, 333].map(|sent| (sent, Some(sent)))), "{:?}", consumer.received);
}

#[test]
fn writers_whose_bytes_mix_are_found_out_and_nothing_is_waited_for_behind_that() {
    let [_, heard] = play(Pattern::Writers, 2, Senders::Mixing, 1_000);
    let [consumer] = &heard.parties[..] else { panic!("{heard:?}") };
    assert_eq!(consumer.faults.damaged, 1);
    assert!(consumer.received.iter().all(|count| (count.received, count.announced) == (0, None)), "{consumer:?}");
}

#[test]
fn connections_are_sent_on_in_turn_each_with_a_stream_of_its_own() {
    for (connections, senders) in [(1, Senders::Ends), (5, Senders::Ends), (5, Senders::OneEnd), (300, Senders::OneEnd)]
    {
        let [sent, heard] = play(Pattern::Connections, connections, senders, 1_000);
        let [sender] = &sent.parties[..] else { panic!("{sent:?}") };
        assert_eq!((sender.role, sender.sent), (Role::Producer(0), 1_000));
        let [consumer] = &heard.parties[..] else { panic!("{heard:?}") };
        assert!(consumer.faults.none(), "{:?}", consumer.faults);
        let mut expected = vec![0; connections];
        (0..1_000).for_each(|message| expected[(message / TURN) as usize % connections] += 1);
        let counts = consumer.received.iter().map(|count| (count.received, count.announced));
        assert!(counts.eq(expected.iter().map(|&sent| (sent, Some(sent)))), "{connections}: {:?}", consumer.received);
    }
}
