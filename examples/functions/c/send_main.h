// The common parts of the senders send.c and send_reference.c.
#ifndef SEND_MAIN_H
#define SEND_MAIN_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "message.h"

// Sends `message` to output topic 0, `messages` times. Defined by the file that includes this
// header.
static void send_all(const uint8_t *message, uint32_t length, uint64_t messages);

static _Noreturn void fail(const char *reason) {
    fprintf(stderr, "send: %s\n", reason);
    exit(1);
}

// Parses an argument. Returns 0 if it is not a number.
static uint64_t number(const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 10);
    return *end == 0 ? value : 0;
}

// Fills the message with random bytes: xorshift, seeded by the clock.
static void fill(uint8_t *message, uint32_t length) {
    uint64_t state = now() | 1;
    for (uint32_t index = 0; index < length; index++) {
        if (index % 8 == 0) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        message[index] = (uint8_t)(state >> index % 8 * 8);
    }
}

// The first argument is argv[0], as there is no program name before it.
int main(int argc, char **argv) {
    uint64_t messages = argc == 2 ? number(argv[0]) : 0;
    uint64_t size = argc == 2 ? number(argv[1]) : 0;
    if (messages == 0 || size == 0 || size > INT32_MAX)
        fail("args must be two numbers from 1: the messages and the bytes of each");
    uint8_t *message = malloc(size);
    if (message == NULL)
        fail("no memory for the message");
    fill(message, size);
    mark(message, size, MARK);
    uint64_t start = now();
    send_all(message, size, messages);
    mark(message, size, LAST_MARK);
    send_all(message, size, 1);
    uint64_t ms = (now() - start) / 1000000;
    messages++;
    printf("Sent %" PRIu64 " messages in %" PRIu64 " ms\n", messages, ms);
    uint64_t speed = messages * size * 1000 / (ms > 0 ? ms : 1) / 1024 / 1024;
    printf("Message size %" PRIu64 " speed %" PRIu64 " MiB/s\n", size, speed);
    return 0;
}

#endif
