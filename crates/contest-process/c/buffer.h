/*
 * Message buffers, one for each direction.
 */
#ifndef BUFFER_H
#define BUFFER_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "protocol.h"

#define CACHE_LINE 64

typedef struct {
    unsigned char *in, *out;
    size_t len;
} Buffers;

/* Aligned to a cache line, as in Rust: the kernel copies up to 5 % faster to and from such an
 * address. */
static inline unsigned char *message_buffer(size_t len)
{
    size_t capacity = (len + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    unsigned char *buffer = aligned_alloc(CACHE_LINE, capacity);
    if (!buffer)
        fail("no memory for a message of %zu bytes", len);
    return memset(buffer, 0, capacity);
}

static inline Buffers message_buffers(size_t len)
{
    return (Buffers){message_buffer(len), message_buffer(len), len};
}

static inline void free_buffers(Buffers *b)
{
    free(b->in);
    free(b->out);
}

#endif
