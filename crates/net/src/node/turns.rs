//! Which entries are to be read, and in which order.

use std::collections::VecDeque;

use crate::read_state::ReadState;
use crate::slab::Key;

/// The queue of entries to be read. Each is there at most once, as long as it exists: its
/// [`ReadState`] says whether it is. The key of a removed one stays, and its turn is skipped.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The entries to be read in this turn of the node.
    now: VecDeque<Key>,
    /// Those whose turn goes on behind all others that are ready.
    later: VecDeque<Key>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty()
    }

    /// Queues an entry that became ready, unless it is queued.
    pub(super) fn queue(&mut self, entry: &mut ReadState, key: Key) {
        if entry.queue() {
            debug_assert!(!self.contains(key), "it is queued already");
            self.now.push_back(key);
        }
    }

    /// Queues an entry behind those that become ready until [`Turns::add_later`], unless it is
    /// queued.
    pub(super) fn queue_later(&mut self, entry: &mut ReadState, key: Key) {
        if entry.queue() {
            debug_assert!(!self.contains(key), "it is queued already");
            self.later.push_back(key);
        }
    }

    fn contains(&self, key: Key) -> bool {
        self.now.contains(&key) || self.later.contains(&key)
    }

    /// Removes an entry that is replaced by another one with the same key.
    pub(super) fn remove(&mut self, key: Key) {
        self.now.retain(|queued| *queued != key);
        self.later.retain(|queued| *queued != key);
    }

    /// Queues the later ones behind those that have become ready.
    #[inline]
    pub(super) fn add_later(&mut self) {
        // Usually there is none.
        if !self.later.is_empty() {
            self.now.append(&mut self.later);
        }
    }

    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<Key> {
        self.now.pop_front()
    }

    /// Whether an entry has left its turn to others.
    #[cfg(feature = "tokio")]
    pub(super) fn has_later(&self) -> bool {
        !self.later.is_empty()
    }

    /// Whether another entry than this one is queued.
    pub(super) fn has_other_than(&self, index: usize) -> bool {
        // The entry itself is there at most once, so this looks at few.
        self.now.iter().chain(&self.later).any(|key| key.index as usize != index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn an_entry_that_goes_on_later_is_behind_those_that_become_ready() {
        let (mut slab, mut turns) = (Slab::new(), Turns::default());
        let [first, second] = [0, 1].map(|value| slab.insert_with(|_| value));
        let mut states = [ReadState::Waiting; 2];
        turns.queue_later(&mut states[0], first);
        turns.queue(&mut states[0], first);
        assert!(!turns.has_other_than(first.index as usize) && turns.has_other_than(second.index as usize));
        assert_eq!(turns.pop(), None);
        turns.queue(&mut states[1], second);
        assert!(turns.has_other_than(first.index as usize));
        turns.add_later();
        assert_eq!((turns.pop(), turns.pop(), turns.is_empty()), (Some(second), Some(first), true));
    }

    #[test]
    fn a_replaced_entry_is_queued_once() {
        let (mut slab, mut turns) = (Slab::new(), Turns::default());
        let key = slab.insert_with(|_| 0);
        turns.queue(&mut ReadState::Waiting, key);
        turns.remove(key);
        turns.queue_later(&mut ReadState::Waiting, key);
        turns.add_later();
        assert_eq!((turns.pop(), turns.pop()), (Some(key), None));
    }
}
