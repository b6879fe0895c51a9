//! Threads that send on one connection at the same time. Every accepted message is written once,
//! those of each thread in order. None is left when all threads have returned, even if the
//! connection ends meanwhile.

use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::line::Line;

/// What was written, as pairs of thread and message; what was left to a thread in line; whether the
/// connection has ended.
#[derive(Default)]
struct Outgoing {
    written: Vec<u8>,
    delegated: Vec<u8>,
    ended: bool,
}

/// A connection's sending half, for messages of two bytes.
struct Connection {
    line: Line,
    outgoing: Mutex<Outgoing>,
    /// How many bytes may be left.
    max: usize,
}

impl Connection {
    fn new(max: usize) -> Arc<Connection> {
        Arc::new(Connection { line: Line::new(), outgoing: Mutex::default(), max })
    }

    /// As `Connection::send` of the library. Returns whether the message was accepted.
    fn send(&self, message: [u8; 2]) -> bool {
        let mut out = self.outgoing.try_lock().unwrap_or_else(|_| {
            self.line.join();
            let out = self.outgoing.lock().unwrap();
            self.line.leave();
            out
        });
        let others = self.line.len() > 0;
        if out.delegated.len() + message.len() > self.max || out.ended {
            write_delegated(&mut out);
        }
        if out.ended {
            return false;
        }
        out.delegated.extend(message);
        if !others {
            write_delegated(&mut out);
        }
        true
    }

    /// As the library's other writes, such as a batch.
    fn write_apart(&self, message: [u8; 2]) -> bool {
        let mut out = self.outgoing.lock().unwrap();
        write_delegated(&mut out);
        if !out.ended {
            out.written.extend(message);
        }
        !out.ended
    }

    /// As the library ends a connection.
    fn end(&self) {
        let mut out = self.outgoing.lock().unwrap();
        write_delegated(&mut out);
        out.ended = true;
    }
}

fn write_delegated(out: &mut Outgoing) {
    let left = std::mem::take(&mut out.delegated);
    assert!(!out.ended || left.is_empty(), "something was left after the end");
    out.written.extend(left);
}

/// The messages of each thread, in the order in which they were written.
fn of_each(connection: &Connection) -> [Vec<u8>; 2] {
    let out = connection.outgoing.lock().unwrap();
    assert!(out.delegated.is_empty(), "something was left behind");
    let (written, rest) = out.written.as_chunks::<2>();
    assert!(rest.is_empty());
    [0, 1].map(|thread| written.iter().filter(|[of, _]| *of == thread).map(|[_, message]| *message).collect())
}

/// Each thread sends its messages by `send`. With `apart`, the last one of the first thread is sent
/// by `write_apart`.
fn all_arrive_in_order(max: usize, messages: [u8; 2], apart: bool) {
    crate::check_bounded(move || {
        let connection = Connection::new(max);
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
fn left_messages_are_written_once_and_in_order() {
    all_arrive_in_order(4, [2, 2], false);
}

#[test]
fn threads_may_send_different_numbers_of_messages() {
    all_arrive_in_order(4, [3, 1], false);
}

#[test]
fn without_space_for_more_each_thread_writes_what_was_left() {
    all_arrive_in_order(2, [2, 2], false);
}

#[test]
fn a_separate_write_follows_what_the_same_thread_left() {
    all_arrive_in_order(4, [2, 2], true);
}

#[test]
fn messages_before_the_end_are_written_and_later_ones_are_rejected() {
    crate::check_bounded(|| {
        let connection = Connection::new(4);
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
