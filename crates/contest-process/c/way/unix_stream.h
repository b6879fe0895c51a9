/*
 * `process/unix-stream-c`: socketpair(AF_UNIX, SOCK_STREAM), with the kernel's own buffers; send and recv, which on a
 * socket are some 70 ns shorter each than write and read.
 */
#ifndef UNIX_STREAM_H
#define UNIX_STREAM_H

#include <sys/socket.h>

#include "../assignment.h"
#include "byte_stream.h"

#define MECHANISM "process/unix-stream-c"
#define CARRIES_BYTES true

/* The consumer makes the pair and offers the other's socket; its own copy of that goes. */
static Ends open_ends(const Assignment *a)
{
    int ours;
    if (a->producer) {
        want("socket", &ours, 1);
    } else {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            fail("opening a pair of sockets: %s", strerror(errno));
        offer("socket", &pair[1], 1);
        close(pair[1]);
        ours = pair[0];
    }
    return (Ends){ours, ours, message_buffers(a->len)};
}

static inline ssize_t send_piece(int socket, const void *from, size_t len)
{
    return send(socket, from, len, MSG_NOSIGNAL);
}

static inline ssize_t receive_piece(int socket, void *to, size_t len)
{
    return recv(socket, to, len, 0);
}

static inline void put(Ends *e, Generator *next)
{
    put_by(send_piece, e, next);
}

static inline void get(Ends *e, Verifier *seen)
{
    get_by(receive_piece, e, seen);
}

#endif
