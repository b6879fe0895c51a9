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
/// A message gets at most this many times what has arrived of it from the spare memory.
const AHEAD: usize = 8;

/// The memory of a long message that was delivered, for the next one of any connection.
///
/// Otherwise each long message would get new memory from the system, zero it, and copy it as it
/// grows: for 1 MiB that took as long as receiving it. It is freed with the node and its handles.
#[derive(Debug, Default)]
pub(crate) struct SpareMemory(Mutex<Vec<u8>>);

impl SpareMemory {
    /// Takes memory with space for more than the `arrived` bytes of a message of `need` bytes.
    ///
    /// A peer that announces a long message and sends little of it does not get it. At least half
    /// of what it gets counts for the limit.
    fn take(&self, need: usize, arrived: usize) -> Option<Vec<u8>> {
        let mut spare = lock(&self.0);
        let len = spare.len().min(need);
        let fits = need <= MAX_SPARE && arrived < len && len <= AHEAD * arrived && spare.capacity() <= 2 * len;
        fits.then(|| {
            let mut bytes = mem::take(&mut *spare);
            bytes.truncate(len);
            bytes
        })
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

    /// Begins the memory of a long message with what has arrived, which is not in the shared buffer
    /// any more.
    pub(crate) fn begin_long(&mut self, begun: &[u8], spare: &SpareMemory) {
        self.bytes = match spare.take(self.need, begun.len()) {
            Some(mut bytes) => {
                bytes[..begun.len()].copy_from_slice(begun);
                bytes
            }
            None => begun.to_vec(),
        };
        self.filled = begun.len();
        self.left = 0;
    }

    /// Frees the memory of a delivered message, or keeps it for the next long one.
    pub(crate) fn release_delivered(&mut self, spare: &SpareMemory) {
        spare.put_back(mem::take(&mut self.bytes));
        self.filled = 0;
    }

    /// Makes space in the memory of a long message, if it has none. Returns whether it grew.
    pub(crate) fn grow(&mut self, spare: &SpareMemory) -> bool {
        let is_full = self.filled == self.bytes.len();
        if is_full {
            if let Some(mut bytes) = spare.take(self.need, self.filled) {
                bytes[..self.filled].copy_from_slice(&self.bytes);
                self.bytes = bytes;
            } else {
                let len = self.need.min(self.bytes.len().max(FIRST / 2) * 2);
                self.bytes.reserve_exact(len - self.bytes.len());
                self.bytes.resize(len, 0);
            }
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

    /// Updates the node's total of incomplete messages. `decoder` are the bytes that the decoder
    /// has.
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

    /// Receives a message of `need` bytes, of which 5 are here. Returns the sizes of its memory.
    fn receive(partial: &mut PartialMessage, need: usize, spare: &SpareMemory) -> Vec<usize> {
        partial.set_need(need);
        assert!(partial.is_long());
        partial.begin_long(b"begun", spare);
        let mut sizes = Vec::new();
        while partial.bytes().len() < need {
            if partial.grow(spare) {
                sizes.push(partial.bytes.len());
            }
            let space = partial.space(10_000).len();
            assert!((1..=10_000).contains(&space));
            partial.fill(space);
        }
        assert_eq!(partial.whole().len(), need);
        assert!(partial.whole().starts_with(b"begun"));
        sizes
    }

    #[test]
    fn a_long_message_grows_as_it_arrives_and_not_beyond_its_length() {
        let (mut partial, spare) = (PartialMessage::default(), SpareMemory::default());
        assert_eq!(receive(&mut partial, LONG + 10, &spare), [FIRST, 2 * FIRST, LONG + 10]);
        assert_eq!(partial.bytes.capacity(), LONG + 10);
    }

    #[test]
    fn spare_memory_is_for_what_arrives() {
        let (mut partial, spare) = (PartialMessage::default(), SpareMemory::default());
        receive(&mut partial, 8 * FIRST, &spare);
        partial.release_delivered(&spare);
        assert!(partial.is_empty());
        assert_eq!(receive(&mut partial, 8 * FIRST, &spare), [FIRST, 8 * FIRST], "after an eighth has arrived");
        assert!(spare.take(8 * FIRST, FIRST).is_none(), "it has one user at a time");
        partial.release_delivered(&spare);
        assert_eq!(receive(&mut partial, 4 * FIRST, &spare), [FIRST, 4 * FIRST], "half of it");
        partial.release_delivered(&spare);
        assert_eq!(receive(&mut partial, LONG + 1, &spare), [FIRST, 2 * FIRST, LONG + 1], "less than half");
        partial.release_delivered(&spare);
        partial.set_need(4 * FIRST);
        partial.begin_long(&[1; FIRST], &spare);
        assert_eq!((partial.filled, partial.bytes.len()), (FIRST, 4 * FIRST));
        // The rest has bytes of an earlier message, which nobody sees.
        assert_eq!(partial.bytes(), [1; FIRST]);
    }

    #[test]
    fn a_node_keeps_the_largest_spare_memory_up_to_a_limit() {
        let spare = SpareMemory::default();
        for (len, kept) in [(10, 10), (5, 10), (MAX_SPARE, MAX_SPARE), (MAX_SPARE + 1, MAX_SPARE), (0, MAX_SPARE)] {
            spare.put_back(vec![0; len]);
            assert_eq!(lock(&spare.0).len(), kept);
        }
        assert!(spare.take(MAX_SPARE + 1, MAX_SPARE / 2).is_none(), "it could not be put back");
        assert_eq!(spare.take(MAX_SPARE, MAX_SPARE / 2).map(|bytes| bytes.len()), Some(MAX_SPARE));
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
