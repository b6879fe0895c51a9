//! Shared by the functions of this folder: the checksum of a message, and the counter of messages.

use std::time::Instant;

/// The first byte of each message but the last.
pub const MARK: u8 = b'S';
/// The first byte of the last message.
pub const LAST_MARK: u8 = b'F';

/// The length of the checksum: the CRC-32 of the bytes before it, little-endian, at the end of a
/// message.
const CHECKSUM: usize = 4;

/// Writes the mark to the first byte and the checksum to the end.
///
/// A message of less than five bytes has no checksum.
pub fn mark(message: &mut [u8], mark: u8) {
    message[0] = mark;
    if message.len() > CHECKSUM {
        let (content, checksum) = message.split_at_mut(message.len() - CHECKSUM);
        checksum.copy_from_slice(&crc32(content).to_le_bytes());
    }
}

/// Whether a message ends with the checksum of the bytes before it.
pub fn has_checksum(message: &[u8]) -> bool {
    message.len() > CHECKSUM && {
        let (content, checksum) = message.split_at(message.len() - CHECKSUM);
        checksum == crc32(content).to_le_bytes()
    }
}

/// Counts messages and prints the count.
#[derive(Default)]
pub struct Counter {
    messages: u64,
    start: Option<Instant>,
}

impl Counter {
    /// Counts a message. Prints the count every 100,000 messages. Prints the count and the time at
    /// the last message.
    pub fn count(&mut self, message: &[u8]) {
        let start = *self.start.get_or_insert_with(Instant::now);
        self.messages += 1;
        if message.first() == Some(&LAST_MARK) {
            println!("Processed {} messages in {} ms", self.messages, start.elapsed().as_millis());
        } else if self.messages % 100_000 == 0 {
            println!("Processed {} messages", self.messages);
        }
    }

    /// The number of counted messages.
    pub fn messages(&self) -> u64 {
        self.messages
    }
}

/// CRC-32 as in zlib, 16 bytes at a time: "slicing-by-16", after Kounavis and Berry, 2005.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    let mut blocks = bytes.chunks_exact(16);
    for block in blocks.by_ref() {
        let (low, high) = block.split_at(8);
        // Only the first word depends on the CRC of the block before, so it is processed last.
        let after = crc_of_word(0, 7, word(high));
        crc = crc_of_word(after, 15, word(low) ^ u64::from(crc));
    }
    for byte in blocks.remainder() {
        crc = crc >> 8 ^ TABLES[0][(crc as u8 ^ byte) as usize];
    }
    !crc
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// Adds the table entries of eight bytes. The first byte uses the table `first`, each further byte
/// the table before.
fn crc_of_word(crc: u32, first: usize, word: u64) -> u32 {
    (0..8).fold(crc, |crc, index| crc ^ TABLES[first - index][(word >> (8 * index)) as usize & 0xFF])
}

/// Table 0 contains the CRC of each byte. Each further table appends a zero byte to the one before.
static TABLES: [[u32; 256]; 16] = tables();

const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut index = 0;
    while index < 16 * 256 {
        let (table, byte) = (index / 256, index % 256);
        tables[table][byte] = if table == 0 {
            crc32_of_byte(byte as u32)
        } else {
            let before = tables[table - 1][byte];
            before >> 8 ^ tables[0][before as usize & 0xFF]
        };
        index += 1;
    }
    tables
}

const fn crc32_of_byte(byte: u32) -> u32 {
    let mut crc = byte;
    let mut bit = 0;
    while bit < 8 {
        crc = crc >> 1 ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
        bit += 1;
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(b""), 0);
    }

    #[test]
    fn a_changed_message_has_a_wrong_checksum() {
        let mut message = [0; 100];
        mark(&mut message, MARK);
        assert!(has_checksum(&message));
        message[50] ^= 1;
        assert!(!has_checksum(&message));
        assert!(!has_checksum(b"four"));
    }
}
