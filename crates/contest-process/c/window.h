/*
 * When to read the clock, and when a window opens and closes. The original is
 * crates/measure/src/window.rs.
 */
#ifndef WINDOW_H
#define WINDOW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

/* Producers continue for this long after a window by time, so that consumers close their windows
 * while messages still flow. */
#define TAIL_NS UINT64_C(3000000)
/* The minimum interval between two clock checks. A check costs less than a thousandth of it. */
#define CLOCK_INTERVAL_NS UINT64_C(50000)
#define MAX_STRIDE (UINT64_C(1) << 20)

/* The length of an instance: in nanoseconds, or in messages if `by_count` is set. */
typedef struct {
    bool by_count;
    uint64_t warmup, measure;
} Window;

typedef struct {
    uint64_t cpu_ns, voluntary, involuntary;
} Usage;

typedef struct {
    bool is_set;
    uint64_t at_ns, messages;
    Usage usage;
} Mark;

/* Follows this end through the warm-up and the window. */
typedef struct {
    Window window;
    uint64_t start_ns;
    uint64_t stride; /* messages until the next clock check */
    uint64_t checked_ns;
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
    return (Meter){.window = window, .start_ns = start_ns, .stride = 1, .checked_ns = start_ns};
}

static inline bool is_open(const Meter *m)
{
    return m->opened.is_set && !m->closed.is_set;
}

static inline Mark mark(uint64_t at_ns, uint64_t messages)
{
    struct rusage switches;
    getrusage(RUSAGE_SELF, &switches);
    Usage usage = {read_clock(CLOCK_PROCESS_CPUTIME_ID), (uint64_t)switches.ru_nvcsw, (uint64_t)switches.ru_nivcsw};
    return (Mark){true, at_ns, messages, usage};
}

/* Returns how many messages to handle before the next clock check. A window by count opens and
 * closes exactly at a message. */
static inline uint64_t stride(const Meter *m, uint64_t messages)
{
    if (!m->window.by_count)
        return m->stride;
    uint64_t edge = m->window.warmup + (messages < m->window.warmup ? 0 : m->window.measure);
    uint64_t left = edge > messages ? edge - messages : 1;
    return m->stride < left ? m->stride : left;
}

/* Records the time after `messages` messages in total. `now` does not include pauses. */
static inline void meter_update(Meter *m, uint64_t now, uint64_t messages)
{
    uint64_t since = now > m->checked_ns ? now - m->checked_ns : 0;
    m->checked_ns = now;
    if (since > m->longest_stall_ns)
        m->longest_stall_ns = since;
    if (since < CLOCK_INTERVAL_NS)
        m->stride = m->stride < MAX_STRIDE ? m->stride * 2 : MAX_STRIDE;
    else if (since > 4 * CLOCK_INTERVAL_NS)
        m->stride = m->stride > 1 ? m->stride / 2 : 1;
    if (m->closed.is_set)
        return;
    uint64_t edge = m->window.warmup + (m->opened.is_set ? m->window.measure : 0);
    if (m->window.by_count ? messages < edge : now < m->start_ns + edge)
        return;
    *(m->opened.is_set ? &m->closed : &m->opened) = mark(now, messages);
    /* A party that slept through its whole window has no result. */
    if (!m->window.by_count && !m->closed.is_set && now >= m->start_ns + m->window.warmup + m->window.measure)
        m->closed = m->opened;
}

/* Returns whether a producer may stop in a window by time: its consumer's window has closed. */
static inline bool is_over(const Meter *m, uint64_t now)
{
    return now >= m->start_ns + m->window.warmup + m->window.measure + TAIL_NS;
}

/* Closes the window if the stream ended early. */
static inline void meter_end(Meter *m, uint64_t now, uint64_t messages)
{
    if (is_open(m))
        m->closed = mark(now, messages);
}

#endif
