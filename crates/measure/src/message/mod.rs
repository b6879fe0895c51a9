//! The contents of messages: both ends can compute them, so that every byte is written, read and
//! checked.
//!
//! A message is a *tag* and a *body*. The tag is a 64-bit word with the sequence number, the
//! producer, and whether the message is the end mark of the stream:
//!
//! ```text
//! bit  63          48 47      37 36                      1 0
//!      | always zero | producer | sequence number         |e|      raw
//!      tag = raw × 0x9E3779B97F4A7C15 (mod 2^64) xor seed
//! ```
//!
//! The multiplier is odd, so the tag decodes to exactly one raw word. A tag with a flipped bit
//! decodes to a word whose high bits are not zero, or whose sequence number is not expected. The
//! words after the tag are `tag + i × step` (mod 2^64), little-endian, cut off at the
//! message's length. The body is a function of the tag and the secret. So a comparison with the
//! computed body finds every flipped bit.
//!
//! The step depends on the tag and on a *secret* of the instance. The mechanism's code does not get
//! the secret:
//!
//! ```text
//! key = secret × 0x9E3779B97F4A7C15 (mod 2^64)
//! product = (tag xor key) × (key rotated by 32 bits, lowest bit set), 128 bits
//! step = upper half of product xor lower half of product, lowest bit set
//! ```
//!
//! So a receiver cannot compute a body from a tag or from other messages, and a mechanism that does
//! not move the bytes is detected. A message without a body has no such protection: 8 bytes are a
//! tag, and tags follow from each other.
//!
//! If a message has a topic and data, the data consists of the tag and the body. The topic is the
//! upper half of the word that would come before the tag: `(tag - step) >> 32`.
//!
//! A message shorter than 8 bytes consists of the tag's first bytes. It can only be compared with
//! the message that is expected next. So it needs one producer and an ordered mechanism.

mod bodies;
mod generator;
mod shared;
mod tags;
mod typed;
mod verifier;

pub use generator::Generator;
pub use shared::Shared;
pub use tags::{MAX_MESSAGES, MAX_PRODUCERS};
pub use typed::Message;
pub use verifier::{Faults, StreamCount, Verifier, digest};

const INLINE: usize = crate::case::Payload::INLINE;

/// A message as a value. Implemented for `u64`, `Vec<u8>`, [`Inline`], [`Shared`] and [`Message`].
pub trait Value: Clone + Default + Send + Sync + Unpin + Sized + 'static {
    /// Makes the next message and writes every byte of it.
    fn make(source: &mut Generator) -> Self;
    /// Passes every byte to the verifier.
    fn check(&self, verifier: &mut Verifier);
}

impl Value for u64 {
    #[inline(always)]
    fn make(source: &mut Generator) -> u64 {
        source.word()
    }
    #[inline(always)]
    fn check(&self, verifier: &mut Verifier) {
        verifier.word(*self);
    }
}

impl Value for Vec<u8> {
    #[inline]
    fn make(source: &mut Generator) -> Vec<u8> {
        let mut bytes = vec![0; source.len()];
        source.fill(&mut bytes);
        bytes
    }
    #[inline]
    fn check(&self, verifier: &mut Verifier) {
        verifier.bytes(self);
    }
}

/// A message that is an array of bytes, passed by value.
#[derive(Clone, Copy, Debug)]
pub struct Inline([u8; INLINE]);

impl Default for Inline {
    fn default() -> Inline {
        Inline([0; INLINE])
    }
}

impl Value for Inline {
    #[inline]
    fn make(source: &mut Generator) -> Inline {
        let mut message = Inline::default();
        source.fill(&mut message.0);
        message
    }
    #[inline]
    fn check(&self, verifier: &mut Verifier) {
        verifier.bytes(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_depend_on_the_secret_and_tags_do_not() {
        let message = |secret: u64| {
            let mut bytes = [0; 24];
            Generator::new(7, 0, 24).with_secret(secret).fill(&mut bytes);
            bytes
        };
        let [none, one, two] = [0, 1, 2].map(message);
        assert_eq!(none[..8], one[..8]);
        assert_eq!(one[..8], two[..8]);
        assert!(none[8..] != one[8..] && one[8..] != two[8..]);
        for (made, checked) in [(0, 0), (1, 1), (1, 2), (2, 0)] {
            let mut verifier = Verifier::new(7, 1, 24).with_secret(checked);
            verifier.bytes(&message(made));
            assert_eq!(verifier.found_damage(), made != checked);
        }
    }
}
