//! The times at which an entry has something to do, the earliest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::slab::Key;

/// How many times may be outdated before they are removed, besides four for each entry.
const MAX_OUTDATED: usize = 1024;

/// A heap of times. A time is not removed when it becomes outdated: whoever takes it asks the entry
/// whether it still means something.
#[derive(Debug, Default)]
pub(super) struct DeadlineHeap {
    heap: BinaryHeap<Reverse<(Instant, Key)>>,
}

impl DeadlineHeap {
    pub(super) fn push(&mut self, at: Instant, key: Key) {
        self.heap.push(Reverse((at, key)));
    }

    /// The earliest time, and whose it is.
    pub(super) fn earliest(&self) -> Option<(Instant, Key)> {
        self.heap.peek().map(|Reverse(earliest)| *earliest)
    }

    /// Removes the earliest time.
    pub(super) fn pop(&mut self) {
        self.heap.pop();
    }

    /// Removes outdated times if there are many for this number of entries: those of removed
    /// entries would otherwise stay here until they are due.
    pub(super) fn prune(&mut self, entries: usize, mut is_valid: impl FnMut(Instant, Key) -> bool) {
        if self.heap.len() > MAX_OUTDATED + 4 * entries {
            self.heap.retain(|Reverse((at, key))| is_valid(*at, *key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::slab::Slab;

    #[test]
    fn outdated_times_are_removed_when_there_are_many() {
        let begun = Instant::now();
        let mut deadlines = DeadlineHeap::default();
        let mut slab = Slab::new();
        let (valid, gone) = (slab.insert_with(|_| ()), slab.insert_with(|_| ()));
        deadlines.push(begun + Duration::from_secs(9), valid);
        for _ in 0..MAX_OUTDATED + 4 {
            deadlines.push(begun, gone);
        }
        deadlines.prune(2, |_, key| key == valid);
        assert_eq!(deadlines.earliest(), Some((begun, gone)));
        deadlines.prune(1, |_, key| key == valid);
        assert_eq!(deadlines.earliest(), Some((begun + Duration::from_secs(9), valid)));
        deadlines.pop();
        assert_eq!(deadlines.earliest(), None);
    }
}
