//! Which entries are to be read, and in which order.

use std::collections::VecDeque;

/// The queue of entries to be read.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The entries to be read in this turn of the node.
    now: VecDeque<usize>,
    /// Those whose turn goes on behind all others that are ready.
    later: VecDeque<usize>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.later.is_empty()
    }

    /// Queues an entry that became ready.
    pub(super) fn push(&mut self, index: usize) {
        self.now.push_back(index);
    }

    /// Queues an entry behind those that become ready until [`Turns::add_later`].
    pub(super) fn push_later(&mut self, index: usize) {
        self.later.push_back(index);
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
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.now.pop_front()
    }

    /// Whether an entry has left its turn to others.
    #[cfg(feature = "tokio")]
    pub(super) fn has_later(&self) -> bool {
        !self.later.is_empty()
    }

    /// Whether another entry than this one is queued.
    pub(super) fn has_other_than(&self, index: usize) -> bool {
        self.now.iter().chain(&self.later).any(|entry| *entry != index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_goes_on_later_is_behind_those_that_become_ready() {
        let mut turns = Turns::default();
        turns.push(1);
        turns.push_later(1);
        assert!(!turns.has_other_than(1) && turns.has_other_than(2));
        assert_eq!((turns.pop(), turns.pop()), (Some(1), None));
        turns.push(2);
        assert!(turns.has_other_than(1));
        turns.add_later();
        assert_eq!((turns.pop(), turns.pop(), turns.is_empty()), (Some(2), Some(1), true));
    }
}
