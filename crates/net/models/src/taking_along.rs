//! Threads that send by one connection at the same time: every message that is sent is written once, those of each thread in its order,
//! and none is left behind when all have returned, also where somebody ends the connection meanwhile.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::gate::{Brought, Gate};

/// What was written: the thread's number and the message's; and whether the connection has ended.
#[derive(Default)]
struct Outgoing {
    written: Vec<u8>,
    ended: bool,
}

/// A connection's sending half, of messages of two bytes.
struct Connection {
    gate: Gate,
    outgoing: Mutex<Outgoing>,
    /// Whether others may bring anything: not, while the peer has to read first.
    open: bool,
}

impl Connection {
    fn new(open: bool) -> Arc<Connection> {
        let gate = Gate::new();
        gate.set_open(open);
        Arc::new(Connection { gate, outgoing: Mutex::default(), open })
    }

    /// As `connection.rs` sends. Whether it is sent.
    fn send(&self, message: [u8; 2]) -> bool {
        let mut first = self.gate.enter();
        if !first {
            match self.gate.bring(&message[..1], &message[1..]) {
                Brought::TakenAlong => return true,
                Brought::First => first = true,
                Brought::NoRoom => {}
            }
        }
        let mut out = self.outgoing.lock().unwrap();
        let sent = self.write(&mut out, message);
        if first {
            self.leave(&mut out);
        }
        sent
    }

    /// As it writes for other reasons: a batch.
    fn write_apart(&self, message: [u8; 2]) -> bool {
        self.write(&mut self.outgoing.lock().unwrap(), message)
    }

    /// As it ends.
    fn end(&self) {
        let mut out = self.outgoing.lock().unwrap();
        out.written.extend(self.gate.shut());
        out.ended = true;
    }

    fn write(&self, out: &mut Outgoing, message: [u8; 2]) -> bool {
        if self.gate.has_any() {
            self.write_brought(out, &self.gate.take());
        }
        if !out.ended {
            out.written.extend(message);
        }
        !out.ended
    }

    fn write_brought(&self, out: &mut Outgoing, frames: &[u8]) {
        assert!(!out.ended || frames.is_empty(), "something was brought after the end");
        out.written.extend(frames);
    }

    fn leave(&self, out: &mut Outgoing) {
        loop {
            self.gate.set_open(self.open && !out.ended);
            let Some(frames) = self.gate.leave() else { return };
            self.write_brought(out, &frames);
        }
    }
}

/// The messages of each thread, in the order in which they were written.
fn of_each(connection: &Connection) -> [Vec<u8>; 2] {
    assert!(!connection.gate.has_any() && connection.gate.take().is_empty(), "something was left behind");
    let out = connection.outgoing.lock().unwrap();
    let (written, rest) = out.written.as_chunks::<2>();
    assert!(rest.is_empty());
    [0, 1].map(|thread| written.iter().filter(|[of, _]| *of == thread).map(|[_, message]| *message).collect())
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
                    let sent = match apart && last && thread == 0 {
                        true => connection.write_apart([thread, message]),
                        false => connection.send([thread, message]),
                    };
                    assert!(sent);
                }
            })
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(of_each(&connection), messages.map(|count| (0..count).collect::<Vec<_>>()));
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

#[test]
fn what_is_sent_before_the_end_is_written_and_what_comes_later_is_refused() {
    crate::most(|| {
        let connection = Connection::new(true);
        let threads = [0, 1].map(|thread| {
            let connection = connection.clone();
            thread::spawn(move || (0..2).filter(|message| connection.send([thread, *message])).collect::<Vec<u8>>())
        });
        connection.end();
        let after = connection.send([2, 0]);
        let sent = threads.map(|thread| thread.join().unwrap());
        assert!(!after, "it is sent after the end");
        assert_eq!(of_each(&connection), sent);
    });
}
