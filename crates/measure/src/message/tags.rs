//! Tags: how the sequence number, the producer and the end mark are encoded in one word. `mod.rs`
//! describes the format.

/// 2^64 ÷ the golden ratio, odd (Knuth, The Art of Computer Programming, vol. 3, 6.4).
pub(super) const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// The inverse of [`MULTIPLIER`] modulo 2^64.
pub(super) const INVERSE: u64 = inverse(MULTIPLIER);
pub(super) const END_BIT: u64 = 1;
pub(super) const SEQUENCE_SHIFT: u32 = 1;
pub(super) const SEQUENCE_BITS: u32 = 36;
pub(super) const PRODUCER_SHIFT: u32 = SEQUENCE_SHIFT + SEQUENCE_BITS;
pub(super) const PRODUCER_BITS: u32 = 11;
/// The difference between the tags of successive sequence numbers, before the seed is mixed in.
pub(super) const NEXT: u64 = MULTIPLIER.wrapping_mul(1 << SEQUENCE_SHIFT);

/// The maximum number of producers that messages can distinguish.
pub const MAX_PRODUCERS: usize = 1 << PRODUCER_BITS;
/// The maximum number of messages of one producer. After that its sequence numbers would repeat.
pub const MAX_MESSAGES: u64 = 1 << SEQUENCE_BITS;

/// The inverse of an odd number modulo 2^64. Newton's iteration doubles the number of correct low
/// bits: 3, 6, 12, 24, 48, 96.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

pub(super) const fn raw(producer: usize, sequence: u64, end: bool) -> u64 {
    (producer as u64) << PRODUCER_SHIFT | sequence << SEQUENCE_SHIFT | end as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiplier_times_inverse_is_one() {
        assert_eq!(MULTIPLIER.wrapping_mul(INVERSE), 1);
    }
}
