/*
 * `process/eventfd-c`: messages without bytes. The sender adds one to a counter; the receiver reads
 * the whole counter. The counter's highest bit is the end mark. A second eventfd, which is written
 * first, contains the number of messages before the end mark.
 */
#ifndef EVENTFD_H
#define EVENTFD_H

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "../assignment.h"
#include "../message.h"
#include "../protocol.h"

#define MECHANISM "process/eventfd-c"
#define CARRIES_BYTES false
/* The end mark. A message count never comes near this value. */
#define END (UINT64_C(1) << 63)

typedef struct {
    int counter, total;
} Direction;

typedef struct {
    Direction in, out;
    uint64_t pending; /* messages read from the counter but not counted yet */
} Ends;

static Direction make_direction(void)
{
    Direction d = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC)};
    if (d.counter < 0 || d.total < 0)
        fail("making an eventfd: %s", strerror(errno));
    return d;
}

/* The consumer creates the eventfds and passes them to the producer. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 4 : 2;
    Direction forward = {-1, -1}, reply = {-1, -1};
    if (a->producer) {
        int both[4] = {-1, -1, -1, -1};
        request("eventfds", both, count);
        return (Ends){.out = {both[0], both[1]}, .in = {both[2], both[3]}};
    }
    forward = make_direction();
    if (a->ping_pong)
        reply = make_direction();
    publish("eventfds", (int[]){forward.counter, forward.total, reply.counter, reply.total}, count);
    return (Ends){.in = forward, .out = reply};
}

/* Adds to a counter. Blocks only if that would overflow. */
static inline void add(int counter, uint64_t value)
{
    while (write(counter, &value, sizeof value) < 0)
        if (errno != EINTR)
            fail("sending: %s", strerror(errno));
}

/* Waits until a counter is not zero, and resets it to zero. */
static inline uint64_t take_all(int counter)
{
    uint64_t value;
    while (read(counter, &value, sizeof value) < 0)
        if (errno != EINTR)
            fail("receiving: %s", strerror(errno));
    return value;
}

static inline void send_message(Ends *e, Generator *source)
{
    if (!pulse(source)) {
        add(e->out.counter, 1);
        return;
    }
    /* The total includes the end mark itself, because the receiver would block on an eventfd whose
     * counter is zero. */
    add(e->out.total, source->made);
    add(e->out.counter, END);
}

static inline void recv_message(Ends *e, Verifier *verifier)
{
    if (e->pending == 0)
        e->pending = take_all(e->in.counter);
    if (e->pending != END) {
        e->pending--;
        count_pulse(verifier);
        return;
    }
    last_pulse(verifier, take_all(e->in.total) - 1);
}

static inline void close_ends(Ends *e)
{
    const int all[] = {e->in.counter, e->in.total, e->out.counter, e->out.total};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0)
            close(all[i]);
}

#endif
