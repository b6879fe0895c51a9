// Shared by the functions of this folder: the mark and the checksum of a message.

// The first byte of each message except the last, and the first byte of the last one.
export const MARK = 0x53;
export const LAST_MARK = 0x46;

const CHECKSUM = 4;

const table = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 && 0xedb88320);
  return crc;
});

// CRC-32 as in zlib.
function crc32(bytes) {
  let crc = ~0;
  for (const byte of bytes) crc = (crc >>> 8) ^ table[(crc ^ byte) & 0xff];
  return ~crc >>> 0;
}

// Writes the mark to the first byte. Then writes the checksum to the last four bytes: the
// CRC-32 of all bytes before it, little-endian. A message of less than five bytes has no checksum.
export function setMark(message, mark) {
  message[0] = mark;
  if (message.length <= CHECKSUM) return;
  const content = message.length - CHECKSUM;
  new DataView(message.buffer).setUint32(content, crc32(message.subarray(0, content)), true);
}
