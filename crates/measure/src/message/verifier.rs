//! Verifies received messages: checks every byte and counts messages that are lost, duplicated,
//! reordered or damaged.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::bodies::{Key, is_shared_body, topic};
use super::tags::{
    END_BIT, INVERSE, MULTIPLIER, NEXT, PRODUCER_BITS, PRODUCER_SHIFT, SEQUENCE_BITS, SEQUENCE_SHIFT, raw,
};

/// The maximum number of gaps remembered per producer. The oldest gap is dropped first. A late
/// message from a dropped gap counts as lost and as duplicated.
const GAPS: usize = 1024;

/// What went wrong with the messages of one consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Adds the faults of another consumer.
    pub fn add(&mut self, other: Faults) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.reordered += other.reordered;
        self.damaged += other.damaged;
    }

    /// Whether nothing went wrong.
    pub fn is_empty(&self) -> bool {
        *self == Faults::default()
    }
}

/// What one consumer saw of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StreamCount {
    /// The producer.
    pub producer: usize,
    /// Different messages received whole.
    pub received: u64,
    /// The number of messages in the producer's end mark. `None` if that has not arrived.
    pub announced: Option<u64>,
    /// A checksum of the numbers of the received messages, if several consumers share a stream: see
    /// [`digest`].
    #[serde(default)]
    pub digest: u64,
}

/// The sum of the squares (mod 2^64) of the unseeded tags of `count` consecutive messages of
/// `producer`. The first one has the sequence number `from`.
///
/// Consumers that share a stream each report this sum for the messages that they received. Added
/// up, their sums must equal the sum for all messages that were sent. A duplicate cannot hide a
/// lost message, except with a probability of 2^-64.
pub fn digest(producer: usize, from: u64, count: u64) -> u64 {
    // With the first tag a and the step d between tags, the sum of (a + i·d)² for i < n is
    // n·a² + a·d·n(n-1) + d²·n(n-1)(2n-1)/6.
    let first = raw(producer, from, false).wrapping_mul(MULTIPLIER);
    let twice_sum = count.wrapping_mul(count.wrapping_sub(1));
    count
        .wrapping_mul(first.wrapping_mul(first))
        .wrapping_add(first.wrapping_mul(NEXT).wrapping_mul(twice_sum))
        .wrapping_add(NEXT.wrapping_mul(NEXT).wrapping_mul(sum_of_squares(count)))
}

/// Computes 0² + 1² + ... + (n-1)² = n(n-1)(2n-1)/6, modulo 2^64. It divides the factors before it
/// multiplies them, because a product modulo 2^64 cannot be divided.
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

/// What this consumer has received from one producer.
#[derive(Debug)]
struct ReceivedStream {
    /// The sequence number after the highest received.
    next: u64,
    received: u64,
    announced: Option<u64>,
    /// The [`digest`] of the received messages. Only if other consumers receive the rest.
    digest: u64,
    /// Ranges of sequence numbers below `next` that have not arrived, oldest first.
    gaps: VecDeque<(u64, u64)>,
}

/// Checks the messages of one or more producers as they arrive.
#[derive(Debug)]
pub struct Verifier {
    /// The tag of the next message of producer `current`, before the seed is mixed in. In the
    /// common case, one comparison with it is enough.
    expected: u64,
    seed: u64,
    key: Key,
    len: usize,
    /// Messages of producer `current` received on the fast path and not yet added to its stream.
    unsettled: u64,
    /// All other received messages: the sum of `received` of all streams.
    settled: u64,
    /// The producer that `expected` and `unsettled` belong to.
    current: usize,
    /// The first producer whose messages are verified here. Messages of lower producers count as
    /// damaged.
    first: usize,
    /// The number of producers that have ended. Producers below `first` are included.
    ended: usize,
    streams: Vec<ReceivedStream>,
    faults: Faults,
    /// Whether shared bodies are read and compared.
    reads_shared_bodies: bool,
    /// Whether other consumers receive the remaining messages of the same streams.
    competes: bool,
    /// The sequence number of the message received last, if a later one had arrived before it.
    overtaken: Option<u64>,
}

impl Verifier {
    /// A verifier for the messages of `producers` producers. Messages have `len` bytes. The seed
    /// must be the one of their [`Generator`](super::Generator)s.
    pub fn new(seed: u64, producers: usize, len: usize) -> Verifier {
        let stream = || ReceivedStream { next: 0, received: 0, announced: None, digest: 0, gaps: VecDeque::new() };
        Verifier {
            expected: 0,
            seed,
            key: Key::default(),
            len,
            unsettled: 0,
            settled: 0,
            current: 0,
            first: 0,
            ended: 0,
            streams: (0..producers).map(|_| stream()).collect(),
            faults: Faults::default(),
            reads_shared_bodies: true,
            competes: false,
            overtaken: None,
        }
    }

    /// A verifier for the messages of a single producer out of several. Messages of the others
    /// count as damaged.
    pub fn of_producer(seed: u64, producer: usize, len: usize) -> Verifier {
        let mut verifier = Verifier::new(seed, producer + 1, len);
        (verifier.first, verifier.ended) = (producer, producer);
        verifier.resume(producer);
        verifier
    }

    /// Sets the secret that bodies depend on.
    #[must_use]
    pub fn with_secret(self, secret: u64) -> Verifier {
        Verifier { key: Key::new(secret), ..self }
    }

    /// Sets whether the bodies of messages that share a buffer are read and compared. By default
    /// they are.
    #[must_use]
    pub fn with_body_checks(self, reads: bool) -> Verifier {
        Verifier { reads_shared_bodies: reads, ..self }
    }

    /// Sets whether other consumers receive from the same producers. If so, a message that is
    /// missing here may have arrived there. There are no end marks then: the streams end when
    /// their producers close.
    #[must_use]
    pub fn with_competitors(self, competes: bool) -> Verifier {
        Verifier { competes, ..self }
    }

    /// Whether a message was damaged. If so, all streams count as ended. The same cause may also
    /// damage the end marks, and then they would never be recognized.
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

    /// The number of different, undamaged messages received so far from all producers.
    #[inline]
    pub fn received(&self) -> u64 {
        self.unsettled + self.settled
    }

    /// For each producer that is verified here: the sequence number after the highest received, and
    /// the number of messages received.
    pub(crate) fn progress(&self) -> impl Iterator<Item = (u64, u64)> {
        self.streams.iter().enumerate().skip(self.first).map(|(producer, stream)| {
            let unsettled = if producer == self.current { self.unsettled } else { 0 };
            (stream.next + unsettled, stream.received + unsettled)
        })
    }

    /// The producer and the sequence number of the message received last. To be called after each
    /// message that counts as received.
    pub(crate) fn last(&mut self) -> (usize, u64) {
        let highest = (self.streams[self.current].next + self.unsettled).saturating_sub(1);
        (self.current, self.overtaken.take().unwrap_or(highest))
    }

    /// The number of producers that have ended. Includes those that are not verified here.
    #[inline(always)]
    pub(crate) fn ends(&self) -> usize {
        self.ended
    }

    /// The number of producers that have not ended.
    pub(crate) fn not_ended(&self) -> u64 {
        self.streams.len().saturating_sub(self.ended) as u64
    }

    /// Whether every producer's end mark has arrived, or a message was damaged.
    #[inline(always)]
    pub fn ended(&self) -> bool {
        self.ended >= self.streams.len()
    }

    /// Checks a message that consists of a tag and a body that all messages share.
    #[inline]
    pub fn shared(&mut self, tag: u64, body: &[u8]) {
        if self.reads_shared_bodies && !(body.len() == self.len && is_shared_body(body)) {
            self.unexpected(tag, false);
        } else {
            self.word(tag);
        }
    }

    /// Checks a message that consists of a topic and at least 8 bytes of data.
    #[inline]
    pub fn message(&mut self, received_topic: u32, data: &[u8]) {
        match data.first_chunk() {
            Some(tag) if topic(u64::from_le_bytes(*tag), self.key) == received_topic => self.bytes(data),
            // A topic that does not match the data, or data that is too short for a tag.
            tag => self.unexpected(tag.map_or(0, |tag| u64::from_le_bytes(*tag)), false),
        }
    }

    /// Checks a message that consists of the tag alone.
    #[inline(always)]
    pub fn word(&mut self, tag: u64) {
        if tag ^ self.seed == self.expected {
            self.expected = self.expected.wrapping_add(NEXT);
            self.unsettled += 1;
        } else if !self.switch_producer(tag) {
            self.unexpected(tag, true);
        }
    }

    /// Counts a message without bytes. There must be a single producer.
    #[inline(always)]
    pub fn empty_message(&mut self) {
        self.expected = self.expected.wrapping_add(NEXT);
        self.unsettled += 1;
    }

    /// Records that the single producer has ended after `total` messages without bytes.
    pub fn end_of_empty_messages(&mut self, total: u64) {
        self.note_end(0, total);
    }

    /// Accepts the tag if it is the next one of a producer other than `current`, and makes that
    /// producer the current one. This is common if several producers send at the same time.
    /// Returns `false` for any other tag.
    #[inline]
    fn switch_producer(&mut self, tag: u64) -> bool {
        let unseeded = tag ^ self.seed;
        let raw = unseeded.wrapping_mul(INVERSE);
        // If one of the high bits is set, which should be zero, no producer has this number.
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
        self.settled += self.unsettled + 1;
        let last = &mut self.streams[self.current];
        last.next += self.unsettled;
        last.received += self.unsettled;
        (self.unsettled, self.current) = (0, producer);
        self.expected = unseeded.wrapping_add(NEXT);
        true
    }

    /// Checks a message that consists of bytes.
    #[inline]
    pub fn bytes(&mut self, message: &[u8]) {
        match message.as_array() {
            Some(word) if self.len == 8 => self.word(u64::from_le_bytes(*word)),
            _ => self.bytes_of_any_length(message),
        }
    }

    /// As [`Verifier::bytes`], for messages of any length.
    #[inline]
    fn bytes_of_any_length(&mut self, message: &[u8]) {
        let (words, rest) = message.as_chunks::<8>();
        let Some(first) = words.first() else { return self.short_bytes(message) };
        let tag = u64::from_le_bytes(*first);
        let step = self.key.step(tag);
        let mut word = tag;
        let mut wrong = 0;
        for chunk in words {
            wrong |= u64::from_le_bytes(*chunk) ^ word;
            word = word.wrapping_add(step);
        }
        if wrong == 0 && rest == &word.to_le_bytes()[..rest.len()] && message.len() == self.len {
            self.word(tag);
        } else {
            self.unexpected(tag, false);
        }
    }

    /// Checks a message that is too short for a tag. It has no complete sequence number, so it must
    /// be the next message or the end mark.
    #[inline]
    fn short_bytes(&mut self, message: &[u8]) {
        let tag = (self.expected ^ self.seed).to_le_bytes();
        if message.len() == self.len && message == &tag[..message.len()] {
            self.expected = self.expected.wrapping_add(NEXT);
            self.unsettled += 1;
        } else {
            self.unexpected_short(message);
        }
    }

    /// As [`Verifier::unexpected`], for a message that is too short for a tag.
    #[cold]
    #[inline(never)]
    fn unexpected_short(&mut self, message: &[u8]) {
        self.settle();
        let (only, next) = (self.first, self.streams[self.first].next);
        let end = raw(only, next, true).wrapping_mul(MULTIPLIER) ^ self.seed;
        if message.len() == self.len && end.to_le_bytes().starts_with(message) {
            self.note_end(only, next);
        } else {
            self.note_damage();
            self.streams[only].next += 1;
        }
        self.resume(only);
    }

    /// Handles a message that is not the next one of producer `current`. `whole` says whether its
    /// body is undamaged.
    #[inline(never)]
    fn unexpected(&mut self, tag: u64, whole: bool) {
        self.settle();
        let raw = (tag ^ self.seed).wrapping_mul(INVERSE);
        let producer = (raw >> PRODUCER_SHIFT) as usize;
        let sequence = raw >> SEQUENCE_SHIFT & ((1 << SEQUENCE_BITS) - 1);
        // A tag that does not decode, or that names an unknown producer, is damaged.
        let known =
            raw >> (PRODUCER_SHIFT + PRODUCER_BITS) == 0 && (self.first..self.streams.len()).contains(&producer);
        if !whole || !known {
            self.note_damage();
            return;
        }
        if raw & END_BIT == END_BIT {
            self.note_end(producer, sequence);
        } else {
            self.accept(producer, sequence, tag ^ self.seed);
        }
        self.resume(producer);
    }

    fn note_damage(&mut self) {
        self.faults.damaged += 1;
        self.ended = self.streams.len();
    }

    /// Counts an undamaged message of a known producer. Its sequence number may be any.
    fn accept(&mut self, producer: usize, sequence: u64, unseeded: u64) {
        let stream = &mut self.streams[producer];
        let before = stream.received;
        if self.competes {
            // A missing message may have gone to another consumer, so gaps are not recorded. The
            // digest distinguishes late messages from duplicates.
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
            self.overtaken = Some(sequence);
        } else {
            self.faults.duplicated += 1;
        }
        self.settled += stream.received - before;
    }

    fn note_end(&mut self, producer: usize, total: u64) {
        let stream = &mut self.streams[producer];
        if stream.announced.replace(total).is_none() {
            self.ended += 1;
        }
    }

    /// Adds the messages of the fast path to the stream of producer `current`.
    fn settle(&mut self) {
        let stream = &mut self.streams[self.current];
        if self.competes && self.unsettled > 0 {
            stream.digest = stream.digest.wrapping_add(digest(self.current, stream.next, self.unsettled));
        }
        stream.next += self.unsettled;
        stream.received += self.unsettled;
        self.settled += self.unsettled;
        self.unsettled = 0;
        self.expected = raw(self.current, stream.next, false).wrapping_mul(MULTIPLIER);
    }

    /// Makes `producer` the current one, so that the fast path expects its next message.
    fn resume(&mut self, producer: usize) {
        self.current = producer;
        self.expected = raw(producer, self.streams[producer].next, false).wrapping_mul(MULTIPLIER);
    }

    /// Returns what was received from each producer, and the faults that this consumer can know of.
    /// Lost messages are only counted for producers whose end mark arrived.
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

impl ReceivedStream {
    /// Removes a sequence number from the gap that contains it. Returns `false` if no gap does.
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
