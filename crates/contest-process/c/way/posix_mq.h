/*
 * `process/posix-mq-c`: a POSIX message queue for each direction, with at most the length that the
 * system allows unprivileged users.
 */
#ifndef POSIX_MQ_H
#define POSIX_MQ_H

#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <string.h>

#include "../assignment.h"
#include "../buffer.h"
#include "../message.h"
#include "../protocol.h"

#define MECHANISM "process/posix-mq-c"
#define CARRIES_BYTES true

typedef struct {
    mqd_t in, out; /* file descriptors on Linux */
    Buffers buffers;
} Ends;

/* Returns the kernel's limit of messages per queue, or the kernel's default if the limit cannot be
 * read. */
static uint64_t max_messages(void)
{
    unsigned long max = 10;
    FILE *file = fopen("/proc/sys/fs/mqueue/msg_max", "re");
    if (file) {
        if (fscanf(file, "%lu", &max) != 1)
            max = 10;
        fclose(file);
    }
    return max;
}

/* Returns the last two components of the instance's directory, which are unique to the instance. */
static const char *unique_part(const char *dir)
{
    const char *at = dir + strlen(dir);
    for (int slashes = 0; at > dir; at--)
        if (at[-1] == '/' && ++slashes == 2)
            break;
    return at;
}

/* Creates a queue and removes its name, because names outlive their processes. */
static mqd_t make_queue(const Assignment *a, const char *what)
{
    struct mq_attr attributes = {.mq_maxmsg = (long)least(a->capacity, max_messages()), .mq_msgsize = (long)a->len};
    char name[NAME_MAX];
    if (attributes.mq_maxmsg == 0)
        attributes.mq_maxmsg = 1;
    if ((size_t)snprintf(name, sizeof name, "/estafette-c-%s-%s", unique_part(a->dir), what) >= sizeof name)
        fail("%s is too long to name a message queue after", a->dir);
    for (char *c = name + 1; *c; c++)
        if (*c == '/')
            *c = '-';
    mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600, &attributes);
    if (queue < 0)
        fail("making the message queue %s (`ulimit -q` says how many bytes all queues may use): %s", name, strerror(errno));
    if (mq_unlink(name))
        fail("removing the name %s: %s", name, strerror(errno));
    return queue;
}

/* The consumer creates the queues and passes them to the producer. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 2 : 1;
    int queues[2] = {-1, -1};
    if (a->producer) {
        request("queues", queues, count);
        return (Ends){.in = queues[1], .out = queues[0], .buffers = message_buffers(a->len)};
    }
    queues[0] = make_queue(a, "forward");
    if (a->ping_pong)
        queues[1] = make_queue(a, "reply");
    publish("queues", queues, count);
    return (Ends){.in = queues[0], .out = queues[1], .buffers = message_buffers(a->len)};
}

static inline void send_message(Ends *e, Generator *source)
{
    const Buffers *b = &e->buffers;
    fill(source, b->out, b->len);
    while (mq_send(e->out, (const char *)b->out, b->len, 0))
        if (errno != EINTR)
            fail("sending: %s", strerror(errno));
}

static inline void recv_message(Ends *e, Verifier *verifier)
{
    const Buffers *b = &e->buffers;
    ssize_t got;
    while ((got = mq_receive(e->in, (char *)b->in, b->len, NULL)) < 0)
        if (errno != EINTR)
            fail("receiving: %s", strerror(errno));
    if ((size_t)got != b->len)
        fail("received %zd bytes, not %zu", got, b->len);
    check(verifier, b->in, b->len);
}

static inline void close_ends(Ends *e)
{
    if (e->in >= 0)
        mq_close(e->in);
    if (e->out >= 0)
        mq_close(e->out);
    free_buffers(&e->buffers);
}

#endif
