//! The body and the topic of a message, which are computed from its tag and the secret, and the
//! body that messages share.

use bytes::Bytes;

use super::tags::MULTIPLIER;

/// The step from word to word of a body that messages share: another odd constant with well-mixed
/// bits.
const STEP: u64 = 0xD1B5_4A32_D192_ED03;

/// The key that the bodies of an instance are computed with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key(u64);

impl Key {
    pub(super) const fn new(secret: u64) -> Key {
        Key(secret.wrapping_mul(MULTIPLIER))
    }

    /// The step from word to word of the message with this tag.
    #[inline(always)]
    pub(super) const fn step(self, tag: u64) -> u64 {
        // The product is folded in half, as in wyhash. This takes one multiplication. Unlike a sum,
        // it cannot easily be solved for the key.
        let product = (tag ^ self.0) as u128 * (self.0.rotate_left(32) | 1) as u128;
        ((product >> 64) as u64 ^ product as u64) | 1
    }
}

/// The topic of the message with this tag.
#[inline]
pub(super) fn topic(tag: u64, key: Key) -> u32 {
    (tag.wrapping_sub(key.step(tag)) >> 32) as u32
}

/// The contents of a buffer of `len` bytes that messages share.
pub(super) fn shared_body(len: usize) -> Bytes {
    (1..).map(|word: u64| STEP.wrapping_mul(word)).flat_map(u64::to_le_bytes).take(len).collect()
}

/// Whether these bytes equal [`shared_body`]. Reads every byte.
#[inline]
pub(super) fn is_shared_body(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut word = STEP;
    let mut wrong = 0;
    for chunk in words {
        wrong |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_add(STEP);
    }
    wrong == 0 && rest == &word.to_le_bytes()[..rest.len()]
}
