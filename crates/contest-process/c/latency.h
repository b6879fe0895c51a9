/*
 * Round-trip times in log-linear buckets: one bucket for each value up to 2047 ns, above that 1024
 * for each power of two, which keeps three significant digits. The maximum is 60 s; longer times
 * count as that.
 */
#ifndef LATENCY_H
#define LATENCY_H

#include <stdint.h>

#include "window.h"

/* A round trip is timed individually if it takes at least this many clock readings. */
#define CLOCKS_PER_SAMPLE 20
/* A longer round trip may be interrupted by a pause. */
#define LONG_NS UINT64_C(1000000)
#define LONGEST_NS UINT64_C(60000000000)

enum { BUCKETS = 26 * 1024 + 1024 };

typedef struct {
    uint64_t batch; /* round trips per timing */
    uint64_t counts[BUCKETS];
} Latency;

static inline void note_time(Latency *l, uint64_t ns)
{
    if (ns > LONGEST_NS)
        ns = LONGEST_NS;
    unsigned shift = ns < 2048 ? 0 : 53 - (unsigned)__builtin_clzll(ns);
    l->counts[shift * 1024 + (ns >> shift)]++;
}

/* Returns the longest time of a bucket in nanoseconds. */
static inline uint64_t bucket_top(uint64_t bucket)
{
    uint64_t shift = bucket < 2048 ? 0 : bucket / 1024 - 1;
    return ((bucket - shift * 1024 + 1) << shift) - 1;
}

/* Returns the median of the recorded times in nanoseconds; 0 if there are none. */
static inline uint64_t middle_time(const Latency *l)
{
    uint64_t all = 0, seen = 0;
    for (uint64_t i = 0; i < BUCKETS; i++)
        all += l->counts[i];
    for (uint64_t i = 0; i < BUCKETS; i++) {
        seen += l->counts[i];
        if (seen > 0 && 2 * seen >= all)
            return bucket_top(i);
    }
    return 0;
}

/* Returns the cost of one clock reading in nanoseconds: the median of several batches. */
static inline double clock_cost_ns(void)
{
    enum { BATCH = 1000, BATCHES = 9 };
    uint64_t took[BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        uint64_t start = now_ns();
        for (int n = 0; n < BATCH; n++)
            now_ns();
        uint64_t cost = now_ns() - start;
        int at = i;
        for (; at > 0 && took[at - 1] > cost; at--)
            took[at] = took[at - 1];
        took[at] = cost;
    }
    return (double)took[BATCHES / 2] / BATCH;
}

#endif
