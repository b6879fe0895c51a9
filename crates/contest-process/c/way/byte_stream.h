/*
 * Ends over a byte stream. The kernel may split a message into any number of reads and writes.
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
    int in, out; /* the same descriptor for a socket */
    Buffers buffers;
} Ends;

/* Functions that send and receive a part of a message. They are constants at each call, so the
 * compiler makes direct calls. */
typedef ssize_t SendCall(int, const void *, size_t);
typedef ssize_t RecvCall(int, void *, size_t);

static inline __attribute__((always_inline)) void send_by(SendCall *send_call, Ends *e, Generator *source)
{
    const Buffers *b = &e->buffers;
    fill(source, b->out, b->len);
    for (size_t done = 0; done < b->len;) {
        ssize_t more = send_call(e->out, b->out + done, b->len - done);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            fail("sending: %s", more == 0 ? "no byte was accepted" : strerror(errno));
    }
}

static inline __attribute__((always_inline)) void recv_by(RecvCall *recv_call, Ends *e, Verifier *verifier)
{
    const Buffers *b = &e->buffers;
    for (size_t done = 0; done < b->len;) {
        ssize_t more = recv_call(e->in, b->in + done, b->len - done);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            fail("receiving: %s", more == 0 ? "the other side closed the stream early" : strerror(errno));
    }
    check(verifier, b->in, b->len);
}

static inline void close_ends(Ends *e)
{
    close(e->in);
    if (e->out != e->in)
        close(e->out);
    free_buffers(&e->buffers);
}

#endif
