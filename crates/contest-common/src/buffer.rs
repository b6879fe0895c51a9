//! A place for a message in memory.

use std::ops::{Deref, DerefMut};

/// What buffers are aligned to.
const CACHE_LINE: usize = 64;

/// A message's buffer that begins at a cache line, as buffers of `malloc` may or may not: the kernel copies 64 KiB up to
/// 5 % faster to and from such an address, and where two rows differ it should not be in their luck with the allocator.
#[derive(Debug)]
pub struct Buffer {
    /// Up to the message's end.
    bytes: Vec<u8>,
    from: usize,
}

impl Buffer {
    /// A buffer of so many zeros.
    pub fn new(len: usize) -> Buffer {
        let mut bytes = vec![0; len + CACHE_LINE - 1];
        let from = bytes.as_ptr().align_offset(CACHE_LINE);
        bytes.truncate(from + len);
        Buffer { bytes, from }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_at_a_cache_line_and_is_as_long_as_asked() {
        for len in [0, 1, 63, 64, 65, 4096, 70_000] {
            let buffers = [Buffer::new(len), Buffer::new(len)];
            for buffer in buffers {
                assert_eq!(buffer.as_ptr() as usize % CACHE_LINE, 0);
                assert_eq!(buffer.len(), len);
            }
        }
    }
}
