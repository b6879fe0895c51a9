// What the functions of this folder share: the checksum of a message, and the count of messages.
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

// The first byte of each message but the last, and of the last one.
enum { MARK = 'S', LAST_MARK = 'F' };

// Writes the mark to the first byte. Writes the CRC-32 of all but the last four bytes to those,
// little-endian; a message of less than five bytes has no checksum.
void mark(uint8_t *message, uint32_t length, uint8_t mark);

// Whether a message ends with the checksum of what is before it.
bool has_checksum(const uint8_t *message, uint32_t length);

// Counts a message. Prints the count each 100,000, and count and time at the last message.
void count(const uint8_t *message, uint32_t length);

// The number of messages that were counted.
uint64_t counted(void);

// Nanoseconds of the monotonic clock.
uint64_t now(void);

#endif
