//! CRC-32 as in zlib, 16 bytes at a time: slicing-by-16, after Kounavis and Berry, 2005. The guests
//! of the folder `wat` use the same algorithm, also with the first word's lookups last. A library
//! with the processor's vector instructions would compare algorithms, not sandboxes.

/// The tables. Table 0 contains the CRC of each byte; each further table is the previous one with a
/// zero byte appended.
pub(super) struct Crc(Box<[[u32; 256]; 16]>);

impl Crc {
    pub(super) fn new() -> Crc {
        let mut tables = Box::new([[0u32; 256]; 16]);
        for byte in 0..256 {
            tables[0][byte] =
                (0..8).fold(byte as u32, |crc, _| (crc >> 1) ^ (0xEDB8_8320 & 0u32.wrapping_sub(crc & 1)));
        }
        for table in 1..16 {
            for byte in 0..256 {
                let before = tables[table - 1][byte];
                tables[table][byte] = (before >> 8) ^ tables[0][before as usize & 255];
            }
        }
        Crc(tables)
    }

    pub(super) fn of(&self, bytes: &[u8]) -> u32 {
        let tables = &self.0;
        let (chunks, rest) = bytes.as_chunks::<16>();
        let mut crc = u32::MAX;
        for chunk in chunks {
            let [first, others @ ..] = chunk.as_chunks::<4>().0 else { unreachable!("a chunk has four words") };
            // The lookups of the first word come last, as only they wait for the CRC so far.
            let sum = others.as_flattened().iter().zip(tables[..12].iter().rev());
            let sum = sum.fold(0, |sum, (byte, table)| sum ^ table[*byte as usize]);
            let mixed = (u32::from_le_bytes(*first) ^ crc).to_le_bytes();
            crc =
                mixed.iter().zip(tables[12..].iter().rev()).fold(sum, |sum, (byte, table)| sum ^ table[*byte as usize]);
        }
        !rest.iter().fold(crc, |crc, byte| (crc >> 8) ^ tables[0][(crc as u8 ^ byte) as usize])
    }

    /// Writes a mark into a message's first byte, and its checksum into the last four.
    pub(super) fn seal(&self, message: &mut [u8], mark: u8) {
        message[0] = mark;
        if let Some((checked, sum)) = message.split_last_chunk_mut::<4>() {
            *sum = self.of(checked).to_le_bytes();
        }
    }

    /// Returns whether the last four bytes are the checksum of the bytes before.
    pub(super) fn is_intact(&self, message: &[u8]) -> bool {
        message.split_last_chunk::<4>().is_some_and(|(checked, sum)| self.of(checked).to_le_bytes() == *sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_the_crc_of_zlib() {
        let crc = Crc::new();
        assert_eq!(crc.of(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc.of(b"The quick brown fox jumps over the lazy dog"), 0x414F_A339);
    }

    #[test]
    fn detects_each_changed_bit() {
        let crc = Crc::new();
        let mut message = [7; 100];
        crc.seal(&mut message, b'S');
        assert!(crc.is_intact(&message));
        for bit in 0..800 {
            message[bit / 8] ^= 1 << (bit % 8);
            assert!(!crc.is_intact(&message), "{bit}");
            message[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!crc.is_intact(&[1, 2]));
    }
}
