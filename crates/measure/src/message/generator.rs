//! Writes messages: one producer's stream of them, in sequence.

use bytes::Bytes;

use super::{END_BIT, Key, MAX_MESSAGES, MAX_PRODUCERS, MULTIPLIER, NEXT, raw};

/// The messages of one producer, in order. A mechanism asks it for the next one, in whichever shape it sends.
#[derive(Clone, Debug)]
pub struct Generator {
    /// The next tag, before the seed is mixed in.
    next: u64,
    seed: u64,
    key: Key,
    len: usize,
    made: u64,
    producer: usize,
    /// What messages that share a buffer are clones of, once one was made.
    template: Option<Bytes>,
}

impl Generator {
    /// The stream of `producer` in a run of this seed, with messages of `len` bytes.
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
            template: None,
        }
    }

    /// With a secret that bodies depend on; [`Verifier::with_secret`](super::Verifier::with_secret) has to have the same.
    #[must_use]
    pub fn with_secret(self, secret: u64) -> Generator {
        Generator { key: Key::new(secret), ..self }
    }

    /// Whose stream it is. A server of several clients answers each with that client's own, so this says whom.
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

    /// How many messages have been made.
    #[inline]
    pub fn made(&self) -> u64 {
        self.made
    }

    /// All of it, leaving one behind that says what it said and is not to be used.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Generator {
        Generator { template: self.template.take(), ..*self }
    }

    /// The stream of another producer, from its beginning.
    pub(crate) fn of(&self, producer: usize) -> Generator {
        Generator { key: self.key, ..Generator::new(self.seed, producer, self.len) }
    }

    /// Turns the next message into the mark that ends the stream; it carries the number of messages before it.
    pub fn end(&mut self) {
        debug_assert!(self.made < MAX_MESSAGES, "sequence numbers repeat");
        self.next = self.next.wrapping_mul(super::INVERSE).wrapping_add(END_BIT).wrapping_mul(MULTIPLIER);
    }

    /// The next message as a word.
    #[inline(always)]
    pub fn word(&mut self) -> u64 {
        let tag = self.next ^ self.seed;
        self.next = self.next.wrapping_add(NEXT);
        self.made += 1;
        tag
    }

    /// The next message where it has no bytes: nothing, or of the mark that ends the stream, the number of messages before
    /// it.
    #[inline(always)]
    pub fn pulse(&mut self) -> Option<u64> {
        // The multiplier is odd: a tag's last bit is that of the raw word.
        let ends = self.next & END_BIT != 0;
        self.word();
        ends.then(|| self.made - 1)
    }

    /// The buffer that messages share, where they do.
    #[inline]
    pub(super) fn template(&mut self) -> &Bytes {
        let len = self.len;
        self.template.get_or_insert_with(|| super::shared::template(len))
    }

    /// The next message as bytes: writes every byte of `out`, whose length is [`Generator::len`].
    #[inline]
    pub fn fill(&mut self, out: &mut [u8]) {
        let word = self.word();
        match out.as_mut_array() {
            Some(out) => *out = word.to_le_bytes(),
            None => Generator::spread(word, self.key.step(word), out),
        }
    }

    /// The next message as a topic, which is returned, and data: writes every byte of `data`, whose length is
    /// [`Generator::len`].
    #[inline]
    pub fn message(&mut self, data: &mut [u8]) -> u32 {
        let tag = self.next ^ self.seed;
        self.fill(data);
        super::typed::topic(tag, self.key)
    }

    /// Writes a message of any length that begins with this word.
    #[inline]
    fn spread(mut word: u64, step: u64, out: &mut [u8]) {
        let (words, rest) = out.as_chunks_mut::<8>();
        for place in words {
            *place = word.to_le_bytes();
            word = word.wrapping_add(step);
        }
        let left = rest.len();
        rest.copy_from_slice(&word.to_le_bytes()[..left]);
    }
}
