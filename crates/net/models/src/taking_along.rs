//! Threads that send by one connection at the same time: every message is written once, those of each thread in its order, and none
//! is left behind when all have returned.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::gate::{Brought, Gate};

/// What was written: the thread's number and the message's.
type Written = Vec<u8>;

/// A connection's sending half, of messages of two bytes.
struct Connection {
    gate: Gate,
    outgoing: Mutex<Written>,
    /// Whether others may bring anything: not, while the peer has to read first.
    open: bool,
}

impl Connection {
    fn new(open: bool) -> Arc<Connection> {
        let gate = Gate::new();
        gate.set_open(open);
        Arc::new(Connection { gate, outgoing: Mutex::new(Vec::new()), open })
    }

    /// As `connection.rs` sends.
    fn send(&self, message: [u8; 2]) {
        let first = self.gate.enter();
        if !first {
            match self.gate.bring(&message[..1], &message[1..]) {
                Brought::TakenAlong => return,
                Brought::First => {
                    let mut out = self.outgoing.lock().unwrap();
                    out.extend(self.gate.take());
                    return self.leave(&mut out);
                }
                Brought::NoRoom => {}
            }
        }
        let mut out = self.outgoing.lock().unwrap();
        self.write(&mut out, message);
        if first {
            self.leave(&mut out);
        }
    }

    /// As it writes for other reasons, a batch or the end.
    fn write_apart(&self, message: [u8; 2]) {
        self.write(&mut self.outgoing.lock().unwrap(), message);
    }

    fn write(&self, out: &mut Written, message: [u8; 2]) {
        if self.gate.has_any() {
            out.extend(self.gate.take());
        }
        out.extend(message);
    }

    fn leave(&self, out: &mut Written) {
        let mut spare = Vec::new();
        loop {
            self.gate.set_open(self.open);
            let Some(frames) = self.gate.leave(spare) else { return };
            out.extend(&frames);
            spare = frames;
            spare.clear();
        }
    }
}

/// Each thread sends its messages by `send`, the last one of the first thread apart from the others.
fn all_arrive_in_order(open: bool, messages: [u8; 2], apart: bool) {
    crate::most(move || {
        let connection = Connection::new(open);
        let threads = [0, 1].map(|thread| {
            let connection = connection.clone();
            thread::spawn(move || {
                for message in 0..messages[usize::from(thread)] {
                    let last = message + 1 == messages[usize::from(thread)];
                    if apart && last && thread == 0 {
                        connection.write_apart([thread, message]);
                    } else {
                        connection.send([thread, message]);
                    }
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(!connection.gate.has_any() && connection.gate.take().is_empty(), "something was left behind");
        let written = connection.outgoing.lock().unwrap();
        let (written, rest) = written.as_chunks::<2>();
        assert!(rest.is_empty());
        for thread in [0, 1] {
            let of: Vec<u8> = written.iter().filter(|[of, _]| *of == thread).map(|[_, message]| *message).collect();
            assert_eq!(of, (0..messages[usize::from(thread)]).collect::<Vec<_>>(), "thread {thread}");
        }
    });
}

#[test]
fn what_is_brought_is_written_once_and_in_order() {
    all_arrive_in_order(true, [2, 2], false);
}

#[test]
fn one_that_sends_much_and_one_that_sends_little() {
    all_arrive_in_order(true, [3, 1], false);
}

#[test]
fn where_nothing_may_be_brought_each_has_its_turn() {
    all_arrive_in_order(false, [2, 2], false);
}

#[test]
fn what_is_written_apart_comes_behind_what_the_same_thread_brought() {
    all_arrive_in_order(true, [2, 2], true);
}
