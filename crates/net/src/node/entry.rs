//! What an index of the node stands for: a connection, a datagram socket or a listener.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::datagrams::Socket;
use crate::incoming::Incoming;
use crate::new_endpoint::PendingPeer;
use crate::read_state::ReadState;
use crate::resource::BoundListener;
use crate::slab::Key;

/// What an index of the node stands for.
pub(super) enum Entry {
    Stream(Box<Incoming>),
    Datagrams(DatagramEntry),
    Listener(ListenerEntry),
}

/// A datagram socket.
pub(super) struct DatagramEntry {
    pub(super) key: Key,
    pub(super) socket: Arc<Socket>,
    pub(super) reading: ReadState,
    /// Set while the peer's host name is being resolved.
    pub(super) peer: Option<Box<PendingPeer>>,
}

/// A listener.
pub(super) struct ListenerEntry {
    pub(super) key: Key,
    pub(super) bound: Arc<BoundListener>,
    pub(super) reading: ReadState,
    pub(super) accepting: Accepting,
    pub(super) rate: AcceptRate,
}

/// Whether a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accepting {
    /// It accepts all that wait.
    Freely,
    /// It waits, because a limit was reached or the system is out of resources. A timer ends that.
    BackingOff,
    /// It accepts again after it backed off, and has not accepted all that waited since.
    CatchingUp,
}

/// How many connections a listener has accepted in the current second.
#[derive(Debug)]
pub(super) struct AcceptRate {
    since: Instant,
    accepted: u32,
}

impl Entry {
    pub(super) fn key(&self) -> Key {
        match self {
            Entry::Stream(incoming) => incoming.key,
            Entry::Datagrams(socket) => socket.key,
            Entry::Listener(listener) => listener.key,
        }
    }

    /// Its place in the queue of turns, unless the user has paused it.
    pub(super) fn unpaused(&mut self) -> Option<&mut ReadState> {
        match self {
            Entry::Stream(incoming) => (!incoming.is_paused()).then_some(&mut incoming.reading),
            Entry::Datagrams(DatagramEntry { reading, .. }) | Entry::Listener(ListenerEntry { reading, .. }) => {
                (!reading.is_paused()).then_some(reading)
            }
        }
    }

    /// Whether it is in the queue of turns.
    pub(super) fn is_queued(&self) -> bool {
        match self {
            Entry::Stream(incoming) => incoming.reading.is_queued(),
            Entry::Datagrams(DatagramEntry { reading, .. }) | Entry::Listener(ListenerEntry { reading, .. }) => {
                reading.is_queued()
            }
        }
    }

    /// Pauses (`true`) or resumes (`false`) reading.
    pub(super) fn set_paused(&mut self, pauses: bool, now: Instant) {
        match self {
            Entry::Stream(incoming) => incoming.set_paused(pauses, now),
            Entry::Datagrams(DatagramEntry { reading, .. }) | Entry::Listener(ListenerEntry { reading, .. }) => {
                reading.set_paused(pauses);
            }
        }
    }

    /// Whether this time, which was scheduled for this key, still means something to the entry.
    pub(super) fn awaits(&self, key: Key, at: Instant) -> bool {
        self.key() == key
            && match self {
                Entry::Stream(incoming) => incoming.armed.at() == Some(at),
                Entry::Datagrams(socket) => socket.peer.is_some(),
                Entry::Listener(listener) => listener.accepting == Accepting::BackingOff,
            }
    }
}

impl DatagramEntry {
    pub(super) fn new(key: Key, socket: Arc<Socket>) -> DatagramEntry {
        DatagramEntry { key, socket, reading: ReadState::Waiting, peer: None }
    }
}

impl ListenerEntry {
    pub(super) fn new(key: Key, bound: Arc<BoundListener>, now: Instant) -> ListenerEntry {
        let rate = AcceptRate { since: now, accepted: 0 };
        ListenerEntry { key, bound, reading: ReadState::Waiting, accepting: Accepting::Freely, rate }
    }

    /// Stops accepting for a while. Returns what it did before.
    pub(super) fn back_off(&mut self) -> Accepting {
        mem::replace(&mut self.accepting, Accepting::BackingOff)
    }
}

impl AcceptRate {
    /// How many more connections may be accepted in this second, of so many in each.
    pub(super) fn left(&mut self, now: Instant, limit: u32) -> u32 {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = AcceptRate { since: now, accepted: 0 };
        }
        limit.saturating_sub(self.accepted)
    }

    pub(super) fn count(&mut self, accepted: u32) {
        self.accepted += accepted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_own_accepts() {
        let begun = Instant::now();
        let mut rate = AcceptRate { since: begun, accepted: 0 };
        assert_eq!(rate.left(begun, 3), 3);
        rate.count(2);
        assert_eq!(rate.left(begun + Duration::from_millis(999), 3), 1);
        rate.count(2);
        assert_eq!(rate.left(begun + Duration::from_millis(999), 3), 0);
        assert_eq!(rate.left(begun + Duration::from_secs(1), 3), 3);
    }
}
