#include "message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CHECKSUM = 4 };

static uint32_t tables[8][256];

// Table 0 contains the CRC of each byte. Each further table appends a zero byte to the one before.
static void fill_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xEDB88320 & -(crc & 1));
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][before & 0xFF];
        }
}

// CRC-32 as in zlib, eight bytes at a time: "slicing-by-8", Kounavis and Berry, 2005.
static uint32_t crc32(const uint8_t *bytes, uint32_t length) {
    if (tables[0][1] == 0)
        fill_tables();
    uint32_t crc = ~0u;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        word ^= crc;
        crc = 0;
        for (int index = 0; index < 8; index++)
            crc ^= tables[7 - index][word >> 8 * index & 0xFF];
    }
    for (; length > 0; bytes++, length--)
        crc = crc >> 8 ^ tables[0][(crc ^ *bytes) & 0xFF];
    return ~crc;
}

void mark(uint8_t *message, uint32_t length, uint8_t mark) {
    message[0] = mark;
    if (length > CHECKSUM) {
        uint32_t checksum = crc32(message, length - CHECKSUM);
        memcpy(message + length - CHECKSUM, &checksum, CHECKSUM);
    }
}

bool has_checksum(const uint8_t *message, uint32_t length) {
    if (length <= CHECKSUM)
        return false;
    uint32_t checksum = crc32(message, length - CHECKSUM);
    return memcmp(message + length - CHECKSUM, &checksum, CHECKSUM) == 0;
}

uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t messages, start;

uint64_t counted(void) { return messages; }

void count(const uint8_t *message, uint32_t length) {
    if (messages++ == 0)
        start = now();
    if (length > 0 && message[0] == LAST_MARK)
        printf("Processed %" PRIu64 " messages in %" PRIu64 " ms\n", messages,
               (now() - start) / 1000000);
    else if (messages % 100000 == 0)
        printf("Processed %" PRIu64 " messages\n", messages);
    else
        return;
    // Flushed here, since the program does not end.
    fflush(stdout);
}
