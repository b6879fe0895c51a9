/*
 * `process/eventfd-c`: messages without bytes. The sender adds one to a counter, the receiver takes all that is there.
 * The counter's highest bit is the end mark; how many messages came before it is in a second eventfd, written first.
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
/* No count of messages comes near it. */
#define END (UINT64_C(1) << 63)

typedef struct {
    int counter, total;
} Direction;

typedef struct {
    Direction in, out;
    uint64_t taken; /* what was in the counter and is still to be counted */
} Ends;

static Direction make_direction(void)
{
    Direction d = {eventfd(0, EFD_CLOEXEC), eventfd(0, EFD_CLOEXEC)};
    if (d.counter < 0 || d.total < 0)
        fail("making an eventfd: %s", strerror(errno));
    return d;
}

/* The consumer makes the eventfds and offers them. */
static Ends open_ends(const Assignment *a)
{
    size_t count = a->ping_pong ? 4 : 2;
    Direction there = {-1, -1}, back = {-1, -1};
    if (a->producer) {
        int both[4] = {-1, -1, -1, -1};
        want("eventfds", both, count);
        return (Ends){.out = {both[0], both[1]}, .in = {both[2], both[3]}};
    }
    there = make_direction();
    if (a->ping_pong)
        back = make_direction();
    offer("eventfds", (int[]){there.counter, there.total, back.counter, back.total}, count);
    return (Ends){.in = there, .out = back};
}

/* Adds to a counter; waits only where that would overflow. */
static inline void add(int counter, uint64_t value)
{
    while (write(counter, &value, sizeof value) < 0)
        if (errno != EINTR)
            fail("sending: %s", strerror(errno));
}

/* Waits until a counter is not zero, and sets it to zero. */
static inline uint64_t take_all(int counter)
{
    uint64_t value;
    while (read(counter, &value, sizeof value) < 0)
        if (errno != EINTR)
            fail("receiving: %s", strerror(errno));
    return value;
}

static inline void put(Ends *e, Generator *next)
{
    if (!pulse(next)) {
        add(e->out.counter, 1);
        return;
    }
    /* The total with the mark itself counted, as an eventfd that holds nothing would be waited for. */
    add(e->out.total, next->made);
    add(e->out.counter, END);
}

static inline void get(Ends *e, Verifier *seen)
{
    if (e->taken == 0)
        e->taken = take_all(e->in.counter);
    if (e->taken != END) {
        e->taken--;
        count_pulse(seen);
        return;
    }
    last_pulse(seen, take_all(e->in.total) - 1);
}

static inline void close_ends(Ends *e)
{
    const int all[] = {e->in.counter, e->in.total, e->out.counter, e->out.total};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= 0)
            close(all[i]);
}

#endif
