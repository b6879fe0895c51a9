//! The start of an incomplete message, between two turns of its connection.

use std::mem;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::buffer_totals::BufferTotals;
use crate::event::Reason;
use crate::limits::Limits;
use crate::lock::lock;

/// A longer message is read into memory of its own, in bytes.
pub(crate) const LONG: usize = 128 << 10;
/// The initial size of that memory, without spare memory. It doubles as the message arrives.
const FIRST: usize = 64 << 10;
/// The most spare memory that a node keeps, in bytes.
const MAX_SPARE: usize = 2 << 20;

/// The memory of the last long message that was delivered, for the next one of any connection.
///
/// Otherwise each long message would get new memory from the system, zero it, and copy it as it grows:
/// for 1 MiB that took longer than to receive it.
#[derive(Debug, Default)]
pub(crate) struct SpareMemory(Mutex<Vec<u8>>);

impl SpareMemory {
    fn take(&self) -> Vec<u8> {
        mem::take(&mut *lock(&self.0))
    }

    /// Keeps memory, unless it is too much or less than what is here.
    fn put_back(&self, bytes: Vec<u8>) {
        let mut spare = lock(&self.0);
        if bytes.capacity() <= MAX_SPARE && bytes.len() > spare.len() {
            *spare = bytes;
        }
    }
}

/// The start of an incomplete message of one connection.
#[derive(Debug, Default)]
pub(crate) struct PartialMessage {
    /// When it began.
    pub(crate) since: Option<Instant>,
    /// Its bytes: the first `filled` ones. The rest is space.
    bytes: Vec<u8>,
    filled: usize,
    /// How many bytes of it are still in the shared buffer.
    left: usize,
    /// How many bytes the decoder needs, including those that are here.
    need: usize,
    /// What was added to [`BufferTotals::unfinished`].
    counted: usize,
}

impl PartialMessage {
    /// Whether the message is read into memory of its own.
    pub(crate) fn is_long(&self) -> bool {
        self.need > LONG
    }

    /// Whether nothing of a message is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.filled + self.left == 0
    }

    /// Whether nothing is kept or counted here.
    pub(crate) fn is_released(&self) -> bool {
        self.filled == 0 && self.counted == 0
    }

    pub(crate) fn need(&self) -> usize {
        self.need
    }

    pub(crate) fn set_need(&mut self, bytes: usize) {
        self.need = bytes;
    }

    /// Sets how many bytes stay in the shared buffer.
    pub(crate) fn set_left(&mut self, bytes: usize) {
        self.left = bytes;
    }

    /// The message is complete.
    pub(crate) fn complete(&mut self) {
        (self.since, self.need) = (None, 0);
    }

    /// The bytes that are here.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.filled]
    }

    /// All bytes, of a complete message.
    pub(crate) fn whole(&mut self) -> &mut Vec<u8> {
        self.bytes.truncate(self.filled);
        &mut self.bytes
    }

    /// Keeps these bytes, which are not in the shared buffer any more.
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.bytes = bytes.to_vec();
        self.filled = bytes.len();
        self.left = 0;
    }

    /// Begins the memory of a long message with what has arrived, which is not in the shared buffer any more.
    pub(crate) fn begin_long(&mut self, begun: &[u8], spare: &SpareMemory) {
        self.bytes = spare.take();
        // What it has counts for the limit: no more than the message needs.
        self.bytes.truncate(self.need);
        match self.bytes.get_mut(..begun.len()) {
            Some(place) => place.copy_from_slice(begun),
            None => {
                self.bytes = Vec::with_capacity(FIRST.max(begun.len()));
                self.bytes.extend_from_slice(begun);
            }
        }
        self.filled = begun.len();
        self.left = 0;
    }

    /// Frees the memory of a delivered message, or keeps it for the next long one.
    pub(crate) fn release_delivered(&mut self, spare: &SpareMemory) {
        spare.put_back(mem::take(&mut self.bytes));
        self.filled = 0;
    }

    /// Makes space in the memory of a long message, if it has none. Returns whether it grew.
    pub(crate) fn grow(&mut self) -> bool {
        let is_full = self.filled == self.bytes.len();
        if is_full {
            let len = self.need.min(self.bytes.len().max(FIRST / 2) * 2);
            self.bytes.resize(len, 0);
        }
        is_full
    }

    /// The space behind what is here, at most `most` bytes of it.
    pub(crate) fn space(&mut self, max: usize) -> &mut [u8] {
        let end = self.bytes.len().min(self.filled.saturating_add(max));
        &mut self.bytes[self.filled..end]
    }

    /// Bytes were read into the space.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Frees the memory.
    pub(crate) fn release(&mut self) {
        self.bytes = Vec::new();
        self.filled = 0;
    }

    /// Frees the memory, and forgets what was needed.
    pub(crate) fn discard(&mut self, totals: &BufferTotals) {
        (self.need, self.left) = (0, 0);
        self.release();
        self.uncount(totals);
    }

    /// Updates the node's total of incomplete messages. `decoder` are the bytes that the decoder has.
    ///
    /// # Errors
    ///
    /// If the total exceeds the limit. The connection that exceeds it ends.
    pub(crate) fn count(&mut self, decoder: usize, totals: &BufferTotals, limits: &Limits) -> Result<(), Reason> {
        let holds = self.bytes.len() + self.left + decoder;
        let before = mem::replace(&mut self.counted, holds);
        if holds == before {
            return Ok(());
        }
        if holds < before {
            totals.unfinished.fetch_sub(before - holds, Ordering::Relaxed);
            return Ok(());
        }
        let all = totals.unfinished.fetch_add(holds - before, Ordering::Relaxed) + (holds - before);
        if all > limits.unfinished { Err(Reason::NoRoom) } else { Ok(()) }
    }

    /// Removes it from the node's total.
    pub(crate) fn uncount(&mut self, totals: &BufferTotals) {
        totals.unfinished.fetch_sub(mem::take(&mut self.counted), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_grows_as_it_arrives_and_not_beyond_its_length() {
        let mut partial = PartialMessage::default();
        partial.set_need(LONG + 10);
        assert!(partial.is_long());
        let spare = SpareMemory::default();
        partial.begin_long(b"begun", &spare);
        let mut sizes = Vec::new();
        while partial.bytes().len() < LONG + 10 {
            if partial.grow() {
                sizes.push(partial.bytes.len());
            }
            let space = partial.space(10_000).len();
            assert!((1..=10_000).contains(&space));
            partial.fill(space);
        }
        assert_eq!(sizes, [FIRST, 2 * FIRST, LONG + 10]);
        assert_eq!(partial.whole().len(), LONG + 10);
        assert!(partial.whole().starts_with(b"begun"));
        partial.release_delivered(&spare);
        assert!(partial.is_empty());

        // The next one has all of its memory at once, and no more.
        partial.set_need(LONG + 1);
        partial.begin_long(b"next", &spare);
        assert!(!partial.grow());
        assert_eq!(partial.bytes.len(), LONG + 1);
        assert_eq!(partial.bytes(), b"next");
        assert!(spare.take().is_empty(), "it has one user at a time");
    }

    #[test]
    fn a_node_keeps_the_largest_spare_memory_up_to_a_limit() {
        let spare = SpareMemory::default();
        for (len, kept) in [(10, 10), (5, 10), (MAX_SPARE, MAX_SPARE), (MAX_SPARE + 1, MAX_SPARE), (0, MAX_SPARE)] {
            spare.put_back(vec![0; len]);
            assert_eq!(lock(&spare.0).len(), kept);
        }
    }

    #[test]
    fn what_is_kept_counts_until_it_is_freed() {
        let (totals, limits) = (BufferTotals::default(), Limits { unfinished: 10, ..Limits::default() });
        let unfinished = || totals.unfinished.load(Ordering::Relaxed);
        let mut partial = PartialMessage::default();
        partial.set_left(4);
        assert!(partial.count(3, &totals, &limits).is_ok() && unfinished() == 7);
        partial.keep(b"four");
        assert!(partial.count(3, &totals, &limits).is_ok() && unfinished() == 7);
        assert!(matches!(partial.count(7, &totals, &limits), Err(Reason::NoRoom)));
        partial.discard(&totals);
        assert!(partial.is_empty() && partial.is_released() && unfinished() == 0);
    }
}
