/*
 * When to look at the clock, when a window opens and when it closes; the original is crates/measure/src/window.rs.
 */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* Producers go on for this long after a window by time, so that consumers close theirs with messages still flowing. */
#define TAIL_NS UINT64_C(3000000)
/* Between two looks at the clock, at the least: a look costs under a thousandth of it. */
#define LOOK_NS UINT64_C(50000)
#define MAX_STRIDE (UINT64_C(1) << 20)

/* How long an instance runs: nanoseconds, or where it is given by count, messages. */
typedef struct {
    bool by_count;
    uint64_t warmup, measure;
} Window;

typedef struct {
    uint64_t cpu_ns, voluntary, involuntary;
} Usage;

typedef struct {
    bool taken;
    uint64_t at_ns, messages;
    Usage usage;
} Mark;

/* Follows this end through the warm-up and the window. */
typedef struct {
    Window window;
    uint64_t start_ns;
    uint64_t stride; /* messages until the next look */
    uint64_t looked_ns;
    uint64_t longest_stall_ns;
    Mark opened, closed;
} Meter;

static inline uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline uint64_t now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static inline Meter meter(Window window, uint64_t start_ns)
{
    return (Meter){.window = window, .start_ns = start_ns, .stride = 1, .looked_ns = start_ns};
}

static inline bool is_open(const Meter *m)
{
    return m->opened.taken && !m->closed.taken;
}

static inline Mark mark(uint64_t at_ns, uint64_t messages)
{
    struct rusage switches;
    getrusage(RUSAGE_SELF, &switches);
    Usage usage = {read_clock(CLOCK_PROCESS_CPUTIME_ID), (uint64_t)switches.ru_nvcsw, (uint64_t)switches.ru_nivcsw};
    return (Mark){true, at_ns, messages, usage};
}

/* How many messages to handle before the next look; a window by count opens and closes on the very message. */
static inline uint64_t stride(const Meter *m, uint64_t messages)
{
    if (!m->window.by_count)
        return m->stride;
    uint64_t edge = m->window.warmup + (messages < m->window.warmup ? 0 : m->window.measure);
    uint64_t left = edge > messages ? edge - messages : 1;
    return m->stride < left ? m->stride : left;
}

/* Notes the time after so many messages in all. */
static inline void look_at(Meter *m, uint64_t now, uint64_t messages)
{
    uint64_t since = now > m->looked_ns ? now - m->looked_ns : 0;
    m->looked_ns = now;
    if (since > m->longest_stall_ns)
        m->longest_stall_ns = since;
    if (since < LOOK_NS)
        m->stride = m->stride < MAX_STRIDE ? m->stride * 2 : MAX_STRIDE;
    else if (since > 4 * LOOK_NS)
        m->stride = m->stride > 1 ? m->stride / 2 : 1;
    if (m->closed.taken)
        return;
    uint64_t edge = m->window.warmup + (m->opened.taken ? m->window.measure : 0);
    if (m->window.by_count ? messages < edge : now < m->start_ns + edge)
        return;
    *(m->opened.taken ? &m->closed : &m->opened) = mark(now, messages);
}

/* Whether a producer whose window is a time may stop: its consumer's window has closed. */
static inline bool is_over(const Meter *m, uint64_t now)
{
    return now >= m->start_ns + m->window.warmup + m->window.measure + TAIL_NS;
}

/* Closes a window whose stream has ended before its time. */
static inline void meter_end(Meter *m, uint64_t messages)
{
    if (is_open(m))
        m->closed = mark(now_ns(), messages);
}

#endif
