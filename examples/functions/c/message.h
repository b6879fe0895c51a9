// Shared by the functions of this folder: the checksum of a message, and the counter of messages.
#ifndef MESSAGE_H
#define MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

// The first byte of each message except the last, and the first byte of the last one.
enum { MARK = 'S', LAST_MARK = 'F' };

// Writes the mark to the first byte. Then writes the checksum to the last four bytes: the
// CRC-32 of all bytes before it, little-endian. A message of less than five bytes has no checksum.
void mark(uint8_t *message, uint32_t length, uint8_t mark);

// Whether a message ends with the checksum of the bytes before it.
bool has_checksum(const uint8_t *message, uint32_t length);

// Counts a message. Prints the count every 100,000 messages. Prints the count and the time at the
// last message.
void count(const uint8_t *message, uint32_t length);

// The number of counted messages.
uint64_t counted(void);

// The monotonic clock in nanoseconds.
uint64_t now(void);

#endif
