//! A byte queue, for data that waits until a connection is writable.
//!
//! It is a list of chunks. So nothing is moved while it grows, and one system call writes many of
//! them. Chunks of full length go back to [`SpareChunks`] when they are written: without that, a
//! connection whose peer is slower than its senders would get new memory from the kernel again and
//! again, and its page faults would cost more than the copies.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::mem;
use std::sync::Mutex;

use crate::codec::websocket::mask;
use crate::lock::lock;

/// The length of a chunk, in bytes. The first one of a queue starts shorter and grows up to it.
pub(crate) const CHUNK: usize = 64 << 10;
/// How many spare chunks a node keeps: as many as fill the queue of one connection by default.
const SPARES: usize = 16;
/// How much capacity an empty queue keeps, in bytes.
const KEPT: usize = 4 << 10;
/// How many chunks one system call writes at most.
const SLICES: usize = 16;

/// Chunks that no connection of a node uses now.
#[derive(Debug, Default)]
pub(crate) struct SpareChunks(Mutex<Vec<Vec<u8>>>);

impl SpareChunks {
    /// Returns an empty chunk with its full capacity.
    pub(crate) fn take_or_allocate(&self) -> Vec<u8> {
        lock(&self.0).pop().unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    /// Returns an empty chunk. It has its full capacity if there is a spare one, and none
    /// otherwise.
    fn take_if_any(&self) -> Vec<u8> {
        lock(&self.0).pop().unwrap_or_default()
    }

    /// Keeps a chunk for later, unless there are enough.
    pub(crate) fn put_back(&self, mut chunk: Vec<u8>) {
        chunk.clear();
        let mut spares = lock(&self.0);
        if spares.len() < SPARES && chunk.capacity() >= CHUNK {
            spares.push(chunk);
        }
    }
}

/// Bytes in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    chunks: VecDeque<Vec<u8>>,
    /// How many bytes of the first chunk were removed.
    head: usize,
    len: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first bytes, at most [`SLICES`] chunks of them.
    pub(crate) fn slices(&self) -> ([IoSlice<'_>; SLICES], usize) {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slice = IoSlice::new(if count == 0 { &chunk[self.head..] } else { chunk });
            count += 1;
        }
        (slices, count)
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], spares: &SpareChunks) {
        self.push_with(bytes, spares, |_, _| {});
    }

    /// Appends a frame.
    #[inline]
    pub(crate) fn push_frame(&mut self, header: &[u8], payload: &[u8], spares: &SpareChunks) {
        let len = header.len() + payload.len();
        match self.chunks.back_mut() {
            Some(chunk) if len <= CHUNK - chunk.len() => {
                chunk.extend_from_slice(header);
                chunk.extend_from_slice(payload);
                self.len += len;
            }
            _ => {
                self.push(header, spares);
                self.push(payload, spares);
            }
        }
    }

    /// Appends the payload of a WebSocket frame, masked.
    pub(crate) fn push_masked(&mut self, payload: &[u8], key: [u8; 4], spares: &SpareChunks) {
        self.push_with(payload, spares, |part, offset| mask::apply(part, key, offset));
    }

    /// Appends bytes. Calls `change` with each part in its place, and the part's offset.
    fn push_with(&mut self, bytes: &[u8], spares: &SpareChunks, mut change: impl FnMut(&mut [u8], usize)) {
        let mut done = 0;
        while done < bytes.len() {
            let chunk = match self.chunks.back_mut() {
                Some(chunk) if chunk.len() < CHUNK => chunk,
                Some(_) => self.chunks.push_back_mut(spares.take_or_allocate()),
                None => self.chunks.push_back_mut(spares.take_if_any()),
            };
            let (at, taken) = (chunk.len(), (CHUNK - chunk.len()).min(bytes.len() - done));
            chunk.extend_from_slice(&bytes[done..done + taken]);
            change(&mut chunk[at..], done);
            done += taken;
        }
        self.len += bytes.len();
    }

    /// Appends another queue.
    pub(crate) fn append(&mut self, mut other: Queue) {
        if let Some(first) = other.chunks.front_mut() {
            first.drain(..other.head);
        }
        if self.is_empty() {
            // An empty queue keeps a short chunk.
            self.chunks.clear();
        }
        self.len += other.len;
        self.chunks.append(&mut other.chunks);
    }

    /// Removes bytes from the start.
    pub(crate) fn advance(&mut self, by: usize, spares: &SpareChunks) {
        debug_assert!(by <= self.len);
        self.len -= by;
        self.head += by;
        if self.is_empty() {
            return self.clear(spares);
        }
        while let Some(first) = self.chunks.front_mut()
            && first.len() <= self.head
        {
            self.head -= first.len();
            spares.put_back(mem::take(first));
            self.chunks.pop_front();
        }
    }

    pub(crate) fn clear(&mut self, spares: &SpareChunks) {
        (self.head, self.len) = (0, 0);
        let kept = self.chunks.pop_back_if(|last| last.capacity() <= KEPT);
        self.chunks.drain(..).for_each(|chunk| spares.put_back(chunk));
        self.chunks.shrink_to(SLICES);
        if let Some(mut kept) = kept {
            kept.clear();
            self.chunks.push_back(kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Queue {
        fn bytes(&self) -> Vec<u8> {
            let (slices, count) = self.slices();
            slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect()
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(Vec<u8>),
        PushFrame(Vec<u8>, Vec<u8>),
        PushMasked(Vec<u8>, [u8; 4]),
        Append(Vec<u8>, usize),
        Advance(usize),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Mostly short ones, and some that fill several chunks.
        let bytes = || {
            let long = (0..3 * CHUNK, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
            prop_oneof![8 => prop::collection::vec(any::<u8>(), 0..20), 1 => long]
        };
        prop_oneof![
            4 => bytes().prop_map(Step::Push),
            4 => (bytes(), bytes()).prop_map(|(header, payload)| Step::PushFrame(header, payload)),
            2 => (bytes(), any::<[u8; 4]>()).prop_map(|(bytes, key)| Step::PushMasked(bytes, key)),
            1 => (bytes(), 0..40_usize).prop_map(|(bytes, gone)| Step::Append(bytes, gone)),
            4 => prop_oneof![0..30_usize, 0..2 * CHUNK].prop_map(Step::Advance),
            1 => Just(Step::Clear),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_behaves_like_a_deque(steps in prop::collection::vec(step(), 0..60)) {
            let (mut queue, mut model, spares) = (Queue::default(), VecDeque::new(), SpareChunks::default());
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        queue.push(&bytes, &spares);
                        model.extend(bytes);
                    }
                    Step::PushFrame(header, payload) => {
                        queue.push_frame(&header, &payload, &spares);
                        model.extend(header);
                        model.extend(payload);
                    }
                    Step::PushMasked(mut bytes, key) => {
                        queue.push_masked(&bytes, key, &spares);
                        mask::apply(&mut bytes, key, 0);
                        model.extend(bytes);
                    }
                    Step::Append(mut bytes, gone) => {
                        let (mut other, gone) = (Queue::default(), gone.min(bytes.len()));
                        other.push(&bytes, &spares);
                        other.advance(gone, &spares);
                        queue.append(other);
                        model.extend(bytes.split_off(gone));
                    }
                    Step::Advance(by) => {
                        let by = by.min(model.len());
                        queue.advance(by, &spares);
                        model.drain(..by);
                    }
                    Step::Clear => {
                        queue.clear(&spares);
                        model.clear();
                    }
                }
                let seen = queue.bytes();
                prop_assert!(model.iter().take(seen.len()).eq(&seen), "other bytes");
                prop_assert!(seen.len() == model.len() || queue.slices().1 == SLICES);
                prop_assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
                prop_assert!(lock(&spares.0).len() <= SPARES);
            }
        }
    }

    #[test]
    fn an_empty_queue_keeps_little_memory_and_a_node_keeps_the_chunks() {
        let (mut queue, spares) = (Queue::default(), SpareChunks::default());
        queue.push(&vec![1; 20 * CHUNK + 1], &spares);
        queue.advance(20 * CHUNK, &spares);
        assert_eq!((queue.len(), lock(&spares.0).len()), (1, SPARES));
        queue.advance(1, &spares);
        assert!(queue.chunks.iter().all(|chunk| chunk.capacity() <= KEPT));
        // They are used again.
        queue.push(&vec![1; 10 * CHUNK], &spares);
        assert_eq!(lock(&spares.0).len(), SPARES - 10);
    }
}
