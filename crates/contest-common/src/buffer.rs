//! A message buffer that is aligned to a cache line.

use std::ops::{Deref, DerefMut};

/// The alignment of buffers, in bytes.
const CACHE_LINE: usize = 64;

/// A message buffer that begins at a cache line.
///
/// A buffer from `malloc` may or may not do so. The kernel copies 64 KiB up to 5 % faster to and
/// from an aligned address, and a difference between two rows should not depend on luck with the
/// allocator.
#[derive(Debug)]
pub struct Buffer {
    /// Alignment padding, then the message.
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Creates a buffer of `len` zeros.
    pub fn new(len: usize) -> Buffer {
        let mut bytes = vec![0; len + CACHE_LINE - 1];
        let start = bytes.as_ptr().align_offset(CACHE_LINE);
        bytes.truncate(start + len);
        Buffer { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_has_the_requested_length() {
        for len in [0, 1, 63, 64, 65, 4096, 70_000] {
            let buffers = [Buffer::new(len), Buffer::new(len)];
            for buffer in buffers {
                assert_eq!(buffer.as_ptr() as usize % CACHE_LINE, 0);
                assert_eq!(buffer.len(), len);
            }
        }
    }
}
