//! The layout of a message in a ring: a header of eight bytes, the payload, padding to eight bytes.
//!
//! ```text
//! 0            4             8                    8 + length
//! | u32 length | u32 flags   | payload ...        | padding |
//! ```
//!
//! All numbers are little-endian. `length` is the length of the payload. The lowest byte of `flags`
//! counts how many consumers died while they had claimed the message. The other bytes are zero.

/// The length of a header in bytes. Records begin at multiples of it.
pub const HEADER: usize = 8;

/// The bytes that a message with a payload of `payload` bytes takes in a ring.
#[inline]
#[must_use]
pub const fn record_len(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(HEADER)
}

/// The first word of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The length of the payload in bytes.
    pub(crate) len: u32,
    /// The number of consumers that died while they had claimed the message.
    pub(crate) attempts: u8,
}

impl Header {
    #[inline]
    pub(crate) fn new(len: u32) -> Self {
        Self { len, attempts: 0 }
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        let word = u64::from_le(word);
        Self { len: word as u32, attempts: (word >> 32) as u8 }
    }

    #[inline]
    pub(crate) fn word(self) -> u64 {
        (u64::from(self.len) | u64::from(self.attempts) << 32).to_le()
    }

    /// The length of the record in bytes. It cannot overflow, as `len` has 32 bits.
    #[inline]
    pub(crate) fn record(self) -> u64 {
        (HEADER as u64 + u64::from(self.len)).next_multiple_of(HEADER as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::{HEADER, Header, record_len};

    proptest! {
        #[test]
        fn any_word_is_a_header_of_sane_length(word: u64) {
            let header = Header::from_word(word);
            prop_assert!(header.record() >= HEADER as u64 + u64::from(header.len));
            prop_assert!(header.record() < 2 * HEADER as u64 + u64::from(header.len));
            prop_assert_eq!(header.record() % HEADER as u64, 0);
            prop_assert_eq!(header.record(), record_len(header.len as usize) as u64);
        }

        #[test]
        fn a_header_is_read_as_written(len: u32, attempts: u8) {
            let header = Header { len, attempts };
            prop_assert_eq!(Header::from_word(header.word()), header);
        }
    }

    #[test]
    fn a_header_has_the_documented_bytes() {
        let header = Header { len: 0x0102_0304, attempts: 5 };
        assert_eq!(header.word().to_ne_bytes(), [4, 3, 2, 1, 5, 0, 0, 0]);
    }
}
