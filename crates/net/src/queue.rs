//! A byte queue, for data that waits until a connection is writable.

/// A vector that is filled at its end and emptied at its start.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    head: usize,
}

/// How much capacity an empty queue keeps, in bytes.
const KEPT: usize = 4 << 10;

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.head
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn front(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// Appends bytes, and returns the slice of them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> &mut [u8] {
        // Move the rest to the front once that costs less than what has been written since.
        if self.head > self.bytes.len() / 2 {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        &mut self.bytes[at..]
    }

    /// Removes bytes from the start.
    pub(crate) fn advance(&mut self, by: usize) {
        self.head += by;
        debug_assert!(self.head <= self.bytes.len());
        if self.is_empty() {
            self.clear();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.head = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_behaves_like_a_deque(steps in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..20), 0_usize..30), 0..100)) {
            let (mut queue, mut model) = (Queue::default(), VecDeque::new());
            for (bytes, gone) in steps {
                prop_assert_eq!(queue.push(&bytes), &bytes[..]);
                model.extend(bytes);
                let gone = gone.min(model.len());
                queue.advance(gone);
                model.drain(..gone);
                prop_assert_eq!(queue.front(), &*model.make_contiguous());
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
            }
        }
    }
}
