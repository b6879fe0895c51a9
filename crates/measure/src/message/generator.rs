//! Generates messages: the stream of one producer, in sequence.

use bytes::Bytes;

use super::bodies::{Key, shared_body, topic};
use super::tags::{END_BIT, INVERSE, MAX_MESSAGES, MAX_PRODUCERS, MULTIPLIER, NEXT, raw};

/// Generates the messages of one producer, in order. A mechanism calls the method for the type of
/// message that it sends: [`word`](Generator::word), [`fill`](Generator::fill),
/// [`message`](Generator::message) or [`empty_message`](Generator::empty_message).
#[derive(Clone, Debug)]
pub struct Generator {
    /// The next tag, before the seed is mixed in.
    next: u64,
    seed: u64,
    key: Key,
    len: usize,
    /// The number of messages made so far.
    made: u64,
    producer: usize,
    /// The buffer that the messages of this producer share. `None` until the first such message.
    shared: Option<Bytes>,
}

impl Generator {
    /// A generator for the stream of `producer`, with messages of `len` bytes. The
    /// [`Verifier`](super::Verifier) must have the same seed.
    ///
    /// # Panics
    /// If `producer` is not below [`MAX_PRODUCERS`].
    pub fn new(seed: u64, producer: usize, len: usize) -> Generator {
        assert!(producer < MAX_PRODUCERS, "producer {producer}: there can be {MAX_PRODUCERS}");
        Generator {
            next: raw(producer, 0, false).wrapping_mul(MULTIPLIER),
            seed,
            key: Key::default(),
            len,
            made: 0,
            producer,
            shared: None,
        }
    }

    /// Sets the secret that bodies depend on. The verifier must have the same: see
    /// [`Verifier::with_secret`](super::Verifier::with_secret).
    #[must_use]
    pub fn with_secret(self, secret: u64) -> Generator {
        Generator { key: Key::new(secret), ..self }
    }

    /// The producer of this stream. A server has one generator for each client, and replies to the
    /// client with this number.
    #[inline]
    pub fn producer(&self) -> usize {
        self.producer
    }

    /// The length of every message in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether messages have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of messages made so far.
    #[inline]
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Moves the generator out. The one that stays behind still returns the same producer, length
    /// and count, but must not make more messages.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Generator {
        Generator { shared: self.shared.take(), ..*self }
    }

    /// A generator for the stream of another producer, from its beginning.
    pub(crate) fn of(&self, producer: usize) -> Generator {
        Generator { key: self.key, ..Generator::new(self.seed, producer, self.len) }
    }

    /// Leaves out this number of messages, as if they had been made and lost.
    pub(crate) fn skip(&mut self, messages: u64) {
        self.next = self.next.wrapping_add(NEXT.wrapping_mul(messages));
        self.made += messages;
    }

    /// Turns the next message into the end mark of the stream. Its sequence number is the number of
    /// messages before it.
    pub fn end(&mut self) {
        debug_assert!(self.made < MAX_MESSAGES, "sequence numbers repeat");
        self.next = self.next.wrapping_mul(INVERSE).wrapping_add(END_BIT).wrapping_mul(MULTIPLIER);
    }

    /// Makes the next message as a word: the tag alone.
    #[inline(always)]
    pub fn word(&mut self) -> u64 {
        let tag = self.next ^ self.seed;
        self.next = self.next.wrapping_add(NEXT);
        self.made += 1;
        tag
    }

    /// Makes the next message without bytes. Returns `None`, or for the end mark the number of
    /// messages before it.
    #[inline(always)]
    pub fn empty_message(&mut self) -> Option<u64> {
        // The multiplier is odd, so the lowest bits of the tag and of the raw word are equal.
        let is_end = self.next & END_BIT != 0;
        self.word();
        is_end.then(|| self.made - 1)
    }

    /// The buffer that the messages of this producer share.
    #[inline]
    pub(super) fn shared(&mut self) -> &Bytes {
        let len = self.len;
        self.shared.get_or_insert_with(|| shared_body(len))
    }

    /// Makes the next message as bytes. Writes every byte of `out`, which must be
    /// [`Generator::len`] bytes long: a message of another length counts as damaged at the receiver.
    #[inline]
    pub fn fill(&mut self, out: &mut [u8]) {
        let word = self.word();
        match out.as_mut_array() {
            Some(out) => *out = word.to_le_bytes(),
            None => Generator::spread(word, self.key.step(word), out),
        }
    }

    /// Makes the next message as a topic and data. Returns the topic and writes every byte of
    /// `data`, which must be [`Generator::len`] bytes long.
    #[inline]
    pub fn message(&mut self, data: &mut [u8]) -> u32 {
        let tag = self.next ^ self.seed;
        self.fill(data);
        topic(tag, self.key)
    }

    /// Writes a message of any length. `word` is its first word, `step` the difference between
    /// words.
    #[inline]
    fn spread(mut word: u64, step: u64, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for chunk in words {
            *chunk = word.to_le_bytes();
            word = word.wrapping_add(step);
        }
        let left = rest.len();
        rest.copy_from_slice(&word.to_le_bytes()[..left]);
    }
}
