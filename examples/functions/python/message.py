"""What the functions of this folder share: the mark and the checksum of a message."""

import binascii

# The first byte of each message but the last, and of the last one.
MARK = b"S"
LAST_MARK = b"F"

CHECKSUM = 4


def marked(mark: bytes, message: bytes) -> bytes:
    """The message with the mark as its first byte, and the CRC-32 of all but the last four bytes in
    those, little-endian. A message of less than five bytes has no checksum."""
    if len(message) <= CHECKSUM:
        return mark + message[1:]
    content = mark + message[1:-CHECKSUM]
    return content + binascii.crc32(content).to_bytes(CHECKSUM, "little")


def has_checksum(message: bytes) -> bool:
    """Whether a message ends with the checksum of what is before it."""
    return len(message) > CHECKSUM and marked(message[:1], message) == message
