//! What the flags of a channel's records mean.

use crate::error::Violation;
use crate::record::HEADER;

/// A record is there. Without it the word would be zero for a message of no bytes.
const PRESENT: u64 = 1 << 32;

/// The message lies in a file of the pool; the payload says in which.
const LARGE: u64 = 1 << 33;

/// The header of a message that lies in the ring.
#[inline]
pub(super) fn plain(len: usize) -> u64 {
    (len as u64 | PRESENT).to_le()
}

/// The header of a message that lies in the pool.
pub(super) fn large() -> u64 {
    (Announcement::LEN as u64 | PRESENT | LARGE).to_le()
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A message of so many bytes lies in the ring.
    Plain(usize),
    /// An [`Announcement`] lies in the ring.
    Large,
}

impl Found {
    /// Reads a header that is not zero, of a record at `position` that is no longer than `max`.
    #[inline]
    pub(super) fn parse(word: u64, position: u64, max: u64) -> Result<Self, Violation> {
        let word = u64::from_le(word);
        let len = word & u64::from(u32::MAX);
        match word >> 32 {
            1 if len + HEADER as u64 <= max => Ok(Self::Plain(len as usize)),
            3 if len == Announcement::LEN as u64 => Ok(Self::Large),
            _ => Err(Violation::Record { len, position }),
        }
    }
}

/// Where a large message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// The number of the file in the pool.
    pub(super) file: usize,
    /// Whether the file is new, and its descriptor is in the socket.
    pub(super) is_new: bool,
    /// The bytes of the message.
    pub(super) len: usize,
}

impl Announcement {
    pub(super) const LEN: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.file as u8;
        bytes[1] = self.is_new.into();
        bytes[8..].copy_from_slice(&(self.len as u64).to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let [file, is_new, .., a, b, c, d, e, f, g, h] = bytes;
        let len = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Self { file: file.into(), is_new: is_new != 0, len: usize::try_from(len).unwrap_or(usize::MAX) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::{Announcement, Found, large, plain};

    proptest! {
        #[test]
        fn any_word_is_an_error_or_fits(word: u64, position: u64, max in 64u64..1 << 33) {
            if let Ok(Found::Plain(len)) = Found::parse(word, position, max) {
                prop_assert!(len as u64 + 8 <= max);
            }
        }

        #[test]
        fn a_header_is_read_as_written(len in 0usize..4000) {
            prop_assert_eq!(Found::parse(plain(len), 0, 4088), Ok(Found::Plain(len)));
            prop_assert_ne!(plain(len), 0);
            prop_assert_eq!(Found::parse(large(), 0, 4088), Ok(Found::Large));
        }

        #[test]
        fn an_announcement_is_read_as_written(file in 0usize..256, is_new: bool, len: usize) {
            let announcement = Announcement { file, is_new, len };
            prop_assert_eq!(Announcement::from_bytes(announcement.to_bytes()), announcement);
        }
    }
}
