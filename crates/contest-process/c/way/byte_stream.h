/*
 * Ends over a stream of bytes: each message goes, and comes, in as many pieces as the kernel makes of it.
 */
#ifndef BYTE_STREAM_H
#define BYTE_STREAM_H

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "../buffer.h"
#include "../message.h"
#include "../protocol.h"

typedef struct {
    int in, out; /* a socket is both */
    Buffers buffers;
} Ends;

/* How a piece of a message is sent and received: named where these are called, so that they become plain calls. */
typedef ssize_t Give(int, const void *, size_t);
typedef ssize_t Take(int, void *, size_t);

static inline __attribute__((always_inline)) void put_by(Give *give, Ends *e, Generator *next)
{
    const Buffers *b = &e->buffers;
    fill(next, b->out, b->len);
    for (size_t done = 0; done < b->len;) {
        ssize_t more = give(e->out, b->out + done, b->len - done);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            fail("sending: %s", more == 0 ? "nothing was taken" : strerror(errno));
    }
}

static inline __attribute__((always_inline)) void get_by(Take *take, Ends *e, Verifier *seen)
{
    const Buffers *b = &e->buffers;
    for (size_t done = 0; done < b->len;) {
        ssize_t more = take(e->in, b->in + done, b->len - done);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            fail("receiving: %s", more == 0 ? "the other side closed the stream early" : strerror(errno));
    }
    check(seen, b->in, b->len);
}

static inline void close_ends(Ends *e)
{
    close(e->in);
    if (e->out != e->in)
        close(e->out);
    free_buffers(&e->buffers);
}

#endif
