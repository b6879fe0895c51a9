//! The descriptor of a message: the word that says that the message is published, and its length.
//!
//! ```text
//! bit 0            32          63
//! | length         | lap       | large |
//! ```

use super::ring::{LAPS, stride};
use crate::error::Violation;

/// The message lies in a file of the pool. The ring contains an [`Announcement`].
const LARGE: u64 = 1 << 63;

/// The descriptor of a message of `len` bytes in the ring, without the lap.
#[inline]
pub(super) fn plain(len: usize) -> u64 {
    len as u64
}

/// The descriptor of a message in the pool, without the lap.
pub(super) fn large() -> u64 {
    Announcement::LEN as u64 | LARGE
}

/// The content of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A message of this length lies in the ring.
    Plain(usize),
    /// An [`Announcement`] lies in the ring.
    Large,
}

impl Found {
    /// Parses the descriptor of the message at `position` of a ring of `capacity` bytes.
    #[inline]
    pub(super) fn parse(word: u64, position: u64, capacity: u64) -> Result<Self, Violation> {
        let len = word & u64::from(u32::MAX);
        match word & !LAPS & !u64::from(u32::MAX) {
            0 if stride(len as usize) <= capacity => Ok(Self::Plain(len as usize)),
            LARGE if len == Announcement::LEN as u64 => Ok(Self::Large),
            _ => Err(Violation::Record { len, position }),
        }
    }
}

/// Where a large message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// The index of the file in the pool.
    pub(super) file: usize,
    /// Whether the file is new, so that its file descriptor is in the socket.
    pub(super) is_new: bool,
    /// The length of the message in bytes.
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

    use super::{Announcement, Found, LAPS, large, plain};

    proptest! {
        #[test]
        fn any_word_is_an_error_or_fits(word: u64, position: u64, capacity in 64u64..1 << 33) {
            if let Ok(Found::Plain(len)) = Found::parse(word, position, capacity) {
                prop_assert!(len as u64 <= capacity);
            }
        }

        #[test]
        fn a_descriptor_is_read_as_written(len in 0usize..=4096, lap: u64) {
            let lap = lap & LAPS;
            prop_assert_eq!(Found::parse(plain(len) | lap, 0, 4096), Ok(Found::Plain(len)));
            prop_assert_eq!(Found::parse(large() | lap, 0, 4096), Ok(Found::Large));
        }

        #[test]
        fn an_announcement_is_read_as_written(file in 0usize..256, is_new: bool, len: usize) {
            let announcement = Announcement { file, is_new, len };
            prop_assert_eq!(Announcement::from_bytes(announcement.to_bytes()), announcement);
        }
    }
}
