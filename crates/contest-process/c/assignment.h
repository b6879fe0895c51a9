/*
 * What the coordinator asks of this program: the case, the end of it to play, and the window.
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
    bool ping_pong; /* rather than stream */
    bool producer;  /* rather than consumer; in a ping-pong, the side that asks */
    size_t len;     /* of every message; 0 where they have no bytes */
    uint64_t capacity;
    Window window;
    uint64_t seed;
    char dir[PATH_MAX];
} Assignment;

/* Hears what to do with this mechanism, which carries either bytes or messages without any, and moves to the core it is
 * to be done on. */
void read_assignment(Assignment *a, const char *mechanism, bool bytes);

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
