/*
 * `process/unix-stream-c`: socketpair(AF_UNIX, SOCK_STREAM) with the kernel's default buffers. Uses
 * send and recv, which are about 70 ns faster each on a socket than write and read.
 */
#ifndef UNIX_STREAM_H
#define UNIX_STREAM_H

#include <sys/socket.h>

#include "../assignment.h"
#include "byte_stream.h"

#define MECHANISM "process/unix-stream-c"
#define CARRIES_BYTES true

/* The consumer creates the pair, passes one socket on and closes its copy of it. */
static Ends open_ends(const Assignment *a)
{
    int ours;
    if (a->producer) {
        request("socket", &ours, 1);
    } else {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
            fail("opening a pair of sockets: %s", strerror(errno));
        publish("socket", &pair[1], 1);
        close(pair[1]);
        ours = pair[0];
    }
    return (Ends){ours, ours, message_buffers(a->len)};
}

static inline ssize_t send_part(int socket, const void *from, size_t len)
{
    return send(socket, from, len, MSG_NOSIGNAL);
}

static inline ssize_t recv_part(int socket, void *to, size_t len)
{
    return recv(socket, to, len, 0);
}

static inline void send_message(Ends *e, Generator *source)
{
    send_by(send_part, e, source);
}

static inline void recv_message(Ends *e, Verifier *verifier)
{
    recv_by(recv_part, e, verifier);
}

#endif
