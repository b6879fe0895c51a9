//! The records of a batch: a header of 8 bytes, the payload, padding to a multiple of 8.

/// The bytes before each payload: the length as u32 little-endian, and 4 bytes to ignore.
pub(crate) const HEADER: usize = 8;

/// Iterates over the messages of a batch. Panics if the records do not fit into its bytes.
pub(crate) struct Messages<'a> {
    rest: &'a [u8],
    count: u32,
}

impl<'a> Messages<'a> {
    pub(crate) fn new(batch: &'a [u8], count: u32) -> Self {
        Self { rest: batch, count }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.count = self.count.checked_sub(1)?;
        let (header, rest) = self.rest.split_at(HEADER);
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let (message, rest) = rest.split_at(length);
        self.rest = &rest[length.wrapping_neg() % HEADER..];
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_padded_to_eight_bytes() {
        let batch = b"\x01\0\0\0????a.......\0\0\0\0????\x08\0\0\0????12345678\x02\0\0\0????zz......";
        let messages: Vec<_> = Messages::new(batch, 4).collect();
        assert_eq!(messages, [&b"a"[..], b"", b"12345678", b"zz"]);
    }

    #[test]
    #[should_panic]
    fn a_record_longer_than_its_batch_panics() {
        let _ = Messages::new(b"\x09\0\0\0????12345678", 1).next();
    }

    #[test]
    fn no_record_is_read_beyond_the_count() {
        assert_eq!(Messages::new(b"garbage", 0).next(), None);
    }
}
