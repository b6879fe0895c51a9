/*
 * The coordinator's assignment for this program: the case, the role and the window.
 */
#ifndef ASSIGNMENT_H
#define ASSIGNMENT_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "window.h"

/* Keeps every sum of times below 2^63. */
#define MAX_TIME_NS (UINT64_C(1) << 60)

typedef struct {
    bool ping_pong; /* otherwise stream */
    bool producer;  /* otherwise consumer; in a ping-pong, the side that sends requests */
    size_t len;     /* of every message in bytes; 0 if messages have no bytes */
    uint64_t capacity;
    Window window;
    uint64_t seed;
    uint64_t secret;
    char dir[PATH_MAX];
    int turns; /* the file of the current turn, or -1 if the instance does not run in slices */
} Assignment;

/* Receives the assignment for this mechanism, which carries either bytes or messages without bytes,
 * and pins this process to its core. */
void read_assignment(Assignment *a, const char *mechanism, bool bytes);

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
