//! Reads messages: checks every byte and keeps account of what is missing, repeated, out of order or damaged.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shared::is_intact;
use super::typed::topic;
use super::{
    END_BIT, INVERSE, Key, MULTIPLIER, NEXT, PRODUCER_BITS, PRODUCER_SHIFT, SEQUENCE_BITS, SEQUENCE_SHIFT, raw,
};

/// Gaps remembered per producer. In older ones a message that comes late counts as lost and repeated.
const GAPS: usize = 1024;

/// What went wrong with the messages of one consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Faults {
    /// Sent, and never received.
    pub lost: u64,
    /// Received more than once.
    pub duplicated: u64,
    /// Received after one that was sent later.
    pub reordered: u64,
    /// Received with other bytes than were sent.
    pub damaged: u64,
}

impl Faults {
    /// Adds another consumer's.
    pub fn add(&mut self, other: Faults) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
    }

    /// Whether nothing went wrong.
    pub fn none(&self) -> bool {
        *self == Faults::default()
    }
}

/// What one consumer saw of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamCount {
    /// The producer.
    pub producer: usize,
    /// Different messages received whole.
    pub received: u64,
    /// How many the producer said it sent, where its end mark arrived.
    pub announced: Option<u64>,
    /// Which they were, in one number, where several consumers share a stream: see [`digest`].
    #[serde(default)]
    pub digest: u64,
}

/// The sum of the squares (mod 2^64) of the unseeded tags of so many messages of a producer, from this one on. Consumers
/// that share a stream each report the sum over what they received; all of them together must come to the sum over what
/// was sent. A message that came twice cannot make up for one that was lost, but by a chance of 2^-64.
pub fn digest(producer: usize, from: u64, count: u64) -> u64 {
    // The sum of (a + i·d)² for i below n is n·a² + a·d·n(n-1) + d²·n(n-1)(2n-1)/6.
    let first = raw(producer, from, false).wrapping_mul(MULTIPLIER);
    let twice_sum = count.wrapping_mul(count.wrapping_sub(1));
    count
        .wrapping_mul(first.wrapping_mul(first))
        .wrapping_add(first.wrapping_mul(NEXT).wrapping_mul(twice_sum))
        .wrapping_add(NEXT.wrapping_mul(NEXT).wrapping_mul(sum_of_squares(count)))
}

/// 0² + 1² + ... + (n-1)² = n(n-1)(2n-1)/6, modulo 2^64. The factors are divided before they are multiplied, as a product
/// modulo 2^64 cannot be.
fn sum_of_squares(n: u64) -> u64 {
    let mut factors = [n, n.wrapping_sub(1), (2 * n).wrapping_sub(1)];
    if n == 0 {
        return 0;
    }
    for divisor in [2, 3] {
        if let Some(factor) = factors.iter_mut().find(|factor| factor.is_multiple_of(divisor)) {
            *factor /= divisor;
        }
    }
    factors.into_iter().fold(1, u64::wrapping_mul)
}

/// One producer's messages as this consumer has seen them.
#[derive(Debug)]
struct Stream {
    /// The sequence number after the highest that has been seen.
    next: u64,
    received: u64,
    announced: Option<u64>,
    /// The [`digest`] of what was received, where others receive the rest.
    digest: u64,
    /// Ranges of sequence numbers below `source` that were skipped, oldest first.
    gaps: VecDeque<(u64, u64)>,
}

/// Checks the messages of one or more producers as they arrive.
#[derive(Debug)]
pub struct Verifier {
    /// The tag expected next, before the seed is mixed in, from the producer last heard. One comparison settles the
    /// common case.
    expected: u64,
    seed: u64,
    key: Key,
    len: usize,
    /// Messages that arrived in order since the last one that took the long way.
    run: u64,
    /// All that arrived before those: the sum of what the streams received.
    booked: u64,
    /// Whom `expected` and `run` belong to.
    current: usize,
    /// Producers before this one are others' to hear.
    first: usize,
    /// Producers that have ended, or are others' to hear.
    ended: usize,
    streams: Vec<Stream>,
    faults: Faults,
    /// Whether bodies that are shared are read.
    reads: bool,
    /// Whether other consumers receive the rest of the streams.
    competes: bool,
}

impl Verifier {
    /// For `producers` producers of a run of this seed, with messages of `len` bytes.
    pub fn new(seed: u64, producers: usize, len: usize) -> Verifier {
        let stream = || Stream { next: 0, received: 0, announced: None, digest: 0, gaps: VecDeque::new() };
        Verifier {
            expected: 0,
            seed,
            key: Key::default(),
            len,
            run: 0,
            booked: 0,
            current: 0,
            first: 0,
            ended: 0,
            streams: (0..producers).map(|_| stream()).collect(),
            faults: Faults::default(),
            reads: true,
            competes: false,
        }
    }

    /// For the messages of one producer of several, the others of which somebody else hears.
    pub fn only(seed: u64, producer: usize, len: usize) -> Verifier {
        let mut verifier = Verifier::new(seed, producer + 1, len);
        (verifier.first, verifier.ended) = (producer, producer);
        verifier.resume(producer);
        verifier
    }

    /// With the secret that bodies depend on.
    #[must_use]
    pub fn with_secret(self, secret: u64) -> Verifier {
        Verifier { key: Key::new(secret), ..self }
    }

    /// Whether the bodies of messages that share one are read; they are unless this says otherwise.
    #[must_use]
    pub fn reading(self, reads: bool) -> Verifier {
        Verifier { reads, ..self }
    }

    /// Whether other consumers receive from the same producers, so that what is missing here arrives there. Then there are
    /// no end marks: the stream ends as its producers go.
    #[must_use]
    pub fn competing(self, competes: bool) -> Verifier {
        Verifier { competes, ..self }
    }

    /// Whether a message was damaged. All streams have ended then: what damages one message may damage all, and the end marks
    /// among them.
    #[inline]
    pub fn found_damage(&self) -> bool {
        self.faults.damaged > 0
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

    /// Different messages received whole so far, of all producers.
    #[inline]
    pub fn received(&self) -> u64 {
        self.run + self.booked
    }

    /// Of each producer: the sequence number after the highest that arrived, and how many arrived.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (u64, u64)> {
        self.streams.iter().enumerate().skip(self.first).map(|(producer, stream)| {
            let run = if producer == self.current { self.run } else { 0 };
            (stream.next + run, stream.received + run)
        })
    }

    /// The producer and the number of the message that arrived last, of a mechanism that keeps each producer's order.
    pub(crate) fn last(&self) -> (usize, u64) {
        (self.current, (self.streams[self.current].next + self.run).saturating_sub(1))
    }

    /// How many producers have ended; those that others hear count among them.
    #[inline(always)]
    pub(crate) fn ends(&self) -> usize {
        self.ended
    }

    /// How many producers have not ended.
    pub(crate) fn not_ended(&self) -> u64 {
        self.streams.len().saturating_sub(self.ended) as u64
    }

    /// Whether every producer's end mark has arrived, or a message was damaged.
    #[inline(always)]
    pub fn ended(&self) -> bool {
        self.ended >= self.streams.len()
    }

    /// Checks a message that is a tag beside a body that all messages share.
    #[inline]
    pub fn shared(&mut self, tag: u64, body: &[u8]) {
        if self.reads && !(body.len() == self.len && is_intact(body)) {
            self.unexpected(tag, false);
        } else {
            self.word(tag);
        }
    }

    /// Checks a message that is a topic beside data of at least 8 bytes.
    #[inline]
    pub fn message(&mut self, of: u32, data: &[u8]) {
        match data.first_chunk() {
            Some(tag) if topic(u64::from_le_bytes(*tag), self.key) == of => self.bytes(data),
            // A topic that does not belong to its data is as wrong as data without a tag.
            tag => self.unexpected(tag.map_or(0, |tag| u64::from_le_bytes(*tag)), false),
        }
    }

    /// Checks a message that is a word.
    #[inline(always)]
    pub fn word(&mut self, tag: u64) {
        if tag ^ self.seed == self.expected {
            self.expected = self.expected.wrapping_add(NEXT);
            self.run += 1;
        } else if !self.turn_to(tag) {
            self.unexpected(tag, true);
        }
    }

    /// Counts a message that has no bytes, of the only producer.
    #[inline(always)]
    pub fn pulse(&mut self) {
        self.expected = self.expected.wrapping_add(NEXT);
        self.run += 1;
    }

    /// Notes that the only producer has ended after so many messages without bytes.
    pub fn last_pulse(&mut self, total: u64) {
        self.end(0, total);
    }

    /// The next message of a producer other than the one last heard, as where several send at once; false for all else.
    #[inline]
    fn turn_to(&mut self, tag: u64) -> bool {
        let unseeded = tag ^ self.seed;
        let raw = unseeded.wrapping_mul(INVERSE);
        // Whatever has high bits set is nobody's.
        let producer = (raw >> PRODUCER_SHIFT) as usize;
        let known = (self.first..self.streams.len()).contains(&producer);
        if !known || producer == self.current || raw & END_BIT != 0 || self.competes {
            return false;
        }
        let stream = &mut self.streams[producer];
        if raw >> SEQUENCE_SHIFT & ((1 << SEQUENCE_BITS) - 1) != stream.next {
            return false;
        }
        stream.next += 1;
        stream.received += 1;
        self.booked += self.run + 1;
        let last = &mut self.streams[self.current];
        last.next += self.run;
        last.received += self.run;
        (self.run, self.current) = (0, producer);
        self.expected = unseeded.wrapping_add(NEXT);
        true
    }

    /// Checks a message that is bytes.
    #[inline]
    pub fn bytes(&mut self, message: &[u8]) {
        match message.as_array() {
            Some(word) if self.len == 8 => self.word(u64::from_le_bytes(*word)),
            _ => self.any(message),
        }
    }

    /// As [`Verifier::bytes`], of any length.
    #[inline]
    fn any(&mut self, message: &[u8]) {
        let (words, rest) = message.as_chunks::<8>();
        let Some(first) = words.first() else { return self.short(message) };
        let tag = u64::from_le_bytes(*first);
        let step = self.key.step(tag);
        let mut word = tag;
        let mut wrong = 0;
        for place in words {
            wrong |= u64::from_le_bytes(*place) ^ word;
            word = word.wrapping_add(step);
        }
        if wrong == 0 && rest == &word.to_le_bytes()[..rest.len()] && message.len() == self.len {
            self.word(tag);
        } else {
            self.unexpected(tag, false);
        }
    }

    /// A message too short to say who it is: it can only be the next one or the end.
    #[inline]
    fn short(&mut self, message: &[u8]) {
        let tag = (self.expected ^ self.seed).to_le_bytes();
        if message.len() == self.len && message == &tag[..message.len()] {
            self.expected = self.expected.wrapping_add(NEXT);
            self.run += 1;
        } else {
            self.unexpected_short(message);
        }
    }

    /// As [`Verifier::unexpected`], of a short message.
    #[cold]
    #[inline(never)]
    fn unexpected_short(&mut self, message: &[u8]) {
        self.settle();
        let (only, next) = (self.first, self.streams[self.first].next);
        let end = raw(only, next, true).wrapping_mul(MULTIPLIER) ^ self.seed;
        if message.len() == self.len && end.to_le_bytes().starts_with(message) {
            self.end(only, next);
        } else {
            self.damaged();
            self.streams[only].next += 1;
        }
        self.resume(only);
    }

    /// Everything but the next message of the producer last heard.
    #[inline(never)]
    fn unexpected(&mut self, tag: u64, whole: bool) {
        self.settle();
        let raw = (tag ^ self.seed).wrapping_mul(INVERSE);
        let producer = (raw >> PRODUCER_SHIFT) as usize;
        let sequence = raw >> SEQUENCE_SHIFT & ((1 << SEQUENCE_BITS) - 1);
        // Whatever does not decode, or comes from nobody, was damaged on its way.
        let known =
            raw >> (PRODUCER_SHIFT + PRODUCER_BITS) == 0 && (self.first..self.streams.len()).contains(&producer);
        if !whole || !known {
            self.damaged();
            return;
        }
        if raw & END_BIT == END_BIT {
            self.end(producer, sequence);
        } else {
            self.accept(producer, sequence, tag ^ self.seed);
        }
        self.resume(producer);
    }

    fn damaged(&mut self) {
        self.faults.damaged += 1;
        self.ended = self.streams.len();
    }

    /// A whole message of a known producer, at its turn or not.
    fn accept(&mut self, producer: usize, sequence: u64, unseeded: u64) {
        let stream = &mut self.streams[producer];
        let before = stream.received;
        if self.competes {
            // What is missing may have gone to another. What comes late is told apart from what comes twice by the digest.
            stream.digest = stream.digest.wrapping_add(unseeded.wrapping_mul(unseeded));
            stream.received += 1;
            self.faults.reordered += u64::from(sequence < stream.next);
            stream.next = stream.next.max(sequence + 1);
        } else if sequence >= stream.next {
            if sequence > stream.next {
                stream.gaps.push_back((stream.next, sequence));
                if stream.gaps.len() > GAPS {
                    stream.gaps.pop_front();
                }
            }
            stream.next = sequence + 1;
            stream.received += 1;
        } else if stream.close_gap(sequence) {
            self.faults.reordered += 1;
            stream.received += 1;
        } else {
            self.faults.duplicated += 1;
        }
        self.booked += stream.received - before;
    }

    fn end(&mut self, producer: usize, total: u64) {
        let stream = &mut self.streams[producer];
        if stream.announced.replace(total).is_none() {
            self.ended += 1;
        }
    }

    /// Books the messages of the fast path with the producer they came from.
    fn settle(&mut self) {
        let stream = &mut self.streams[self.current];
        if self.competes && self.run > 0 {
            stream.digest = stream.digest.wrapping_add(digest(self.current, stream.next, self.run));
        }
        stream.next += self.run;
        stream.received += self.run;
        self.booked += self.run;
        self.run = 0;
        self.expected = raw(self.current, stream.next, false).wrapping_mul(MULTIPLIER);
    }

    /// Expects the next message of this producer on the fast path.
    fn resume(&mut self, producer: usize) {
        self.current = producer;
        self.expected = raw(producer, self.streams[producer].next, false).wrapping_mul(MULTIPLIER);
    }

    /// The account: what was seen of each producer and what went wrong, as far as this consumer can know. How many are
    /// lost it knows only of producers whose end mark arrived.
    pub fn finish(mut self) -> (Vec<StreamCount>, Faults) {
        self.settle();
        let counts = self.streams.iter().enumerate().skip(self.first).map(|(producer, stream)| StreamCount {
            producer,
            received: stream.received,
            announced: stream.announced,
            digest: stream.digest,
        });
        let mut faults = self.faults;
        for stream in &self.streams {
            let Some(announced) = stream.announced else { continue };
            faults.lost += announced.max(stream.next).saturating_sub(stream.received);
        }
        (counts.collect(), faults)
    }
}

impl Stream {
    /// Takes a sequence number out of the gap it was missing from; false where it was not missing.
    fn close_gap(&mut self, sequence: u64) -> bool {
        let Some(index) = self.gaps.iter().position(|&(from, to)| (from..to).contains(&sequence)) else { return false };
        let (from, to) = self.gaps[index];
        match (from < sequence, sequence + 1 < to) {
            (true, true) => {
                self.gaps[index] = (from, sequence);
                self.gaps.insert(index + 1, (sequence + 1, to));
                if self.gaps.len() > GAPS {
                    self.gaps.pop_front();
                }
            }
            (true, false) => self.gaps[index] = (from, sequence),
            (false, true) => self.gaps[index] = (sequence + 1, to),
            (false, false) => drop(self.gaps.remove(index)),
        }
        true
    }
}

#[cfg(test)]
mod tests;
