/*
 * `process/pipe-c`: pipe(2), write and read, with the kernel's default capacity; two pipes in
 * patterns with replies.
 */
#ifndef PIPE_H
#define PIPE_H

#include <fcntl.h>

#include "../assignment.h"
#include "byte_stream.h"

#define MECHANISM "process/pipe-c"
#define CARRIES_BYTES true

/* The consumer creates the pipes, passes the producer's ends on and closes its copies of them. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 2 : 1;
    Ends e = {-1, -1, message_buffers(a->len)};
    if (a->producer) {
        int ends[2] = {-1, -1};
        request("pipes", ends, count);
        e.out = ends[0];
        e.in = ends[1];
    } else {
        int forward[2], reply[2] = {-1, -1};
        if (pipe2(forward, O_CLOEXEC))
            fail("opening a pipe: %s", strerror(errno));
        if (a->ping_pong && pipe2(reply, O_CLOEXEC))
            fail("opening the reply pipe: %s", strerror(errno));
        publish("pipes", (int[]){forward[1], reply[0]}, count);
        close(forward[1]);
        close(reply[0]);
        e.in = forward[0];
        e.out = reply[1];
    }
    return e;
}

static inline void send_message(Ends *e, Generator *source)
{
    send_by(write, e, source);
}

static inline void recv_message(Ends *e, Verifier *verifier)
{
    recv_by(read, e, verifier);
}

#endif
