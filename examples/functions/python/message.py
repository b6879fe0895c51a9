"""Shared by the functions of this folder: the mark and the checksum of a message."""

import binascii

# The first byte of each message except the last, and the first byte of the last one.
MARK = b"S"
LAST_MARK = b"F"

CHECKSUM = 4


def marked(mark: bytes, message: bytes) -> bytes:
    """Returns the message with the mark as its first byte. Its last four bytes are the checksum: the
    CRC-32 of all bytes before it, little-endian. A message of less than five bytes has none."""
    if len(message) <= CHECKSUM:
        return mark + message[1:]
    content = mark + message[1:-CHECKSUM]
    return content + binascii.crc32(content).to_bytes(CHECKSUM, "little")


def has_checksum(message: bytes) -> bool:
    """Whether a message ends with the checksum of the bytes before it."""
    return len(message) > CHECKSUM and marked(message[:1], message) == message
