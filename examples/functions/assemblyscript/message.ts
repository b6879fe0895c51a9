// Shared by the functions of this folder: the checksum of a message, and the counter of messages.

import { now, print } from "./wasi";

// The first byte of each message except the last, and the first byte of the last one.
export const MARK: u8 = 0x53;
export const LAST_MARK: u8 = 0x46;

const CHECKSUM: u32 = 4;

const tables = memory.data(8 * 1024, 8);

// Table 0 contains the CRC of each byte. Each further table appends a zero byte to the one before.
function fillTables(): void {
  for (let byte: u32 = 0; byte < 256; byte++) {
    let crc = byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320 & -(crc & 1));
    store<u32>(tables + 4 * byte, crc);
  }
  for (let index: u32 = 256; index < 8 * 256; index++) {
    const before = load<u32>(tables + 4 * (index - 256));
    store<u32>(tables + 4 * index, (before >> 8) ^ entry(0, before));
  }
}

// The entry for the lowest byte of `byte`.
// @ts-ignore: decorator
@inline
function entry(table: u32, byte: u64): u32 {
  return load<u32>(tables + 1024 * table + 4 * (<u32>byte & 0xff));
}

// CRC-32 as in zlib, eight bytes at a time: "slicing-by-8", Kounavis and Berry, 2005.
export function crc32(bytes: usize, length: u32): u32 {
  if (entry(0, 1) == 0) fillTables();
  let crc: u32 = ~0;
  for (; length >= 8; length -= 8) {
    const word = load<u64>(bytes) ^ crc;
    crc = entry(7, word) ^ entry(6, word >> 8) ^ entry(5, word >> 16) ^ entry(4, word >> 24);
    crc ^= entry(3, word >> 32) ^ entry(2, word >> 40) ^ entry(1, word >> 48) ^ entry(0, word >> 56);
    bytes += 8;
  }
  for (; length > 0; length--) {
    crc = (crc >> 8) ^ entry(0, crc ^ load<u8>(bytes));
    bytes++;
  }
  return ~crc;
}

// Writes the mark to the first byte. Then writes the checksum to the last four bytes: the
// CRC-32 of all bytes before it, little-endian. A message of less than five bytes has no checksum.
export function setMark(message: usize, length: u32, mark: u8): void {
  store<u8>(message, mark);
  if (length <= CHECKSUM) return;
  const content = length - CHECKSUM;
  store<u32>(message + content, crc32(message, content));
}

// Whether a message ends with the checksum of the bytes before it.
export function hasChecksum(message: usize, length: u32): bool {
  if (length <= CHECKSUM) return false;
  const content = length - CHECKSUM;
  return load<u32>(message + content) == crc32(message, content);
}

export let messages: u64 = 0;
let start: u64 = 0;

// Counts a message. Prints the count every 100,000 messages. Prints the count and the time at the
// last message.
export function count(message: usize, length: u32): void {
  if (messages == 0) start = now();
  messages++;
  if (length > 0 && load<u8>(message) == LAST_MARK) {
    const ms = (now() - start) / 1000000;
    print("Processed " + messages.toString() + " messages in " + ms.toString() + " ms");
  } else if (messages % 100000 == 0) {
    print("Processed " + messages.toString() + " messages");
  }
}
