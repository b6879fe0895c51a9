/*
 * `process/pipe-c`: pipe(2), write and read, with the kernel's own capacity; two of them where there are answers.
 */
#ifndef PIPE_H
#define PIPE_H

#include <fcntl.h>

#include "../assignment.h"
#include "byte_stream.h"

#define MECHANISM "process/pipe-c"
#define CARRIES_BYTES true

/* The consumer makes the pipes and offers the other's ends of them; its own copies of those go. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 2 : 1;
    Ends e = {-1, -1, message_buffers(a->len)};
    if (a->producer) {
        int ends[2] = {-1, -1};
        want("pipes", ends, count);
        e.out = ends[0];
        e.in = ends[1];
    } else {
        int there[2], back[2] = {-1, -1};
        if (pipe2(there, O_CLOEXEC))
            fail("opening a pipe: %s", strerror(errno));
        if (a->ping_pong && pipe2(back, O_CLOEXEC))
            fail("opening the pipe back: %s", strerror(errno));
        offer("pipes", (int[]){there[1], back[0]}, count);
        close(there[1]);
        close(back[0]);
        e.in = there[0];
        e.out = back[1];
    }
    return e;
}

static inline void put(Ends *e, Generator *next)
{
    put_by(write, e, next);
}

static inline void get(Ends *e, Verifier *seen)
{
    get_by(read, e, seen);
}

#endif
