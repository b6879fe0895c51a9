//! Counters of a node, a listener or a connection, and how they are counted.
//!
//! Each counter has one writer at a time: the node's thread, or the thread that has the lock of a
//! connection. So adding is a load, an addition and a store, as for a plain integer. The counters
//! that other threads read without that lock are atomic in type only.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a node, a listener, a connection or a datagram socket has done so far:
/// [`Handle::counters`](crate::Handle::counters) and
/// [`Handle::counters_of`](crate::Handle::counters_of).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Messages delivered; of a stream without framing, pieces. Those of one read are counted when
    /// the last of them has been delivered.
    pub received_messages: u64,
    /// Bytes that reads returned, with frame headers and handshakes. With TLS, after decryption.
    pub received_bytes: u64,
    /// Messages accepted by a send: [`Outcome::is_accepted`](crate::Outcome::is_accepted).
    pub sent_messages: u64,
    /// Bytes passed to the kernel, with frame headers and handshakes. With TLS, before encryption.
    pub sent_bytes: u64,
    /// Bytes that are queued now, with frame headers.
    pub queued_bytes: usize,
    /// Sends that returned [`Outcome::Full`](crate::Outcome::Full); of a datagram socket also those
    /// that returned [`Outcome::Refused`](crate::Outcome::Refused). A refused batch counts once.
    pub refused_sends: u64,
    /// Connections that listeners reported as `Accepted`.
    pub accepted: u64,
    /// Connections that were reported as `Connected`, each time they reconnected too.
    pub connected: u64,
    /// Connections that ended before they were open, unless they were closed on this side. At a
    /// connection that reconnects, the attempts that failed.
    pub failed: u64,
}

impl Counters {
    /// Adds those of another endpoint.
    pub(crate) fn add(&mut self, other: &Counters) {
        self.received_messages += other.received_messages;
        self.received_bytes += other.received_bytes;
        self.sent_messages += other.sent_messages;
        self.sent_bytes += other.sent_bytes;
        self.queued_bytes += other.queued_bytes;
        self.refused_sends += other.refused_sends;
        self.accepted += other.accepted;
        self.connected += other.connected;
        self.failed += other.failed;
    }
}

/// A counter with one writer at a time, which any thread may read.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Messages and their bytes, in one direction.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) messages: Tally,
    pub(crate) bytes: Tally,
}

/// How connections opened. Written by the node's thread.
#[derive(Debug, Default)]
pub(crate) struct Openings {
    pub(crate) accepted: Tally,
    pub(crate) connected: Tally,
    pub(crate) failed: Tally,
}

impl Openings {
    pub(crate) fn add_to(&self, counters: &mut Counters) {
        counters.accepted += self.accepted.get();
        counters.connected += self.connected.get();
        counters.failed += self.failed.get();
    }
}

/// The sum of the counters of endpoints that have ended.
#[derive(Debug, Default)]
pub(crate) struct Total(Mutex<Counters>);

impl Total {
    pub(crate) fn add(&self, counters: &Counters) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(counters);
    }

    pub(crate) fn get(&self) -> Counters {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The counters of a datagram socket. Several threads may send on it at the same time, and no lock
/// is held then.
///
/// The first thread that sends owns `own` and adds to it as to a [`Tally`]. Only further threads
/// pay for atomic additions, to `others`.
#[derive(Debug, Default)]
pub(crate) struct SocketTally {
    /// Written by the node's thread.
    pub(crate) received: Traffic,
    /// The [`thread_mark`] of the owner; 0: nobody has sent yet.
    owner: AtomicUsize,
    own: Traffic,
    /// Messages and bytes.
    others: [AtomicU64; 2],
    refused: AtomicU64,
}

impl SocketTally {
    /// Counts what one system call has sent.
    #[inline]
    pub(crate) fn add_sent(&self, messages: u64, bytes: u64) {
        if self.is_owner() {
            self.own.messages.add(messages);
            self.own.bytes.add(bytes);
        } else {
            self.others[0].fetch_add(messages, Ordering::Relaxed);
            self.others[1].fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a datagram that was not accepted.
    #[cold]
    pub(crate) fn add_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    fn is_owner(&self) -> bool {
        let mark = thread_mark();
        match self.owner.load(Ordering::Relaxed) {
            0 => self.owner.compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
            owner => owner == mark,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            received_messages: self.received.messages.get(),
            received_bytes: self.received.bytes.get(),
            sent_messages: self.own.messages.get() + self.others[0].load(Ordering::Relaxed),
            sent_bytes: self.own.bytes.get() + self.others[1].load(Ordering::Relaxed),
            refused_sends: self.refused.load(Ordering::Relaxed),
            ..Counters::default()
        }
    }
}

/// A number that no other living thread has. A later thread may get that of one that has ended; it
/// is then the only writer in its place.
#[inline(always)]
fn thread_mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_socket_counts_what_all_threads_send() {
        let tally = SocketTally::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| tally.add_sent(1, 10)));
            }
        });
        let counters = tally.counters();
        assert_eq!((counters.sent_messages, counters.sent_bytes), (40_000, 400_000));
    }
}
