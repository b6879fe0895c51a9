/*
 * Turns and slices of an instance whose processes are stopped between its turns. The originals are
 * crates/measure/src/pauses.rs and crates/measure/src/slices.rs.
 */
#ifndef SLICES_H
#define SLICES_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "latency.h"
#include "protocol.h"

/* Every pause is longer than this. */
#define SHORTEST_PAUSE_NS UINT64_C(500000)
/* The time at the beginning of each turn that does not count. */
#define SETTLE_NS UINT64_C(200000)

/* Later slices are dropped. */
enum { MAX_SLICES = 1000 };

typedef struct {
    uint64_t lap;       /* from 1 */
    uint64_t paused_ns; /* the sum of all pauses before this turn */
} Turn;

typedef struct {
    uint64_t lap, messages, ns;
    uint64_t p50_ns; /* the median round trip; 0 if none was timed */
} Slice;

typedef struct {
    int file; /* the file of the current turn, or -1 without pauses */
    Turn turn;
    uint64_t lap;        /* of the current slice */
    uint64_t settled_ns; /* when the current turn begins to count */
    bool has_begun;      /* whether the current slice has begun, with the first two values */
    uint64_t first_ns, first_messages, last_ns, last_messages;
    bool has_times;
    Latency times; /* the round trips of the slice, if it has any */
    size_t count;
    Slice done[MAX_SLICES];
} Slices;

/* Reads the current turn if the time between two clock readings is long enough for a pause. Returns
 * whether a new turn has begun. */
static inline bool has_turned(Slices *s, uint64_t passed_ns)
{
    if (s->file < 0 || passed_ns <= SHORTEST_PAUSE_NS)
        return false;
    Turn turn;
    ssize_t got;
    do
        got = pread(s->file, &turn, sizeof turn, 0);
    while (got < 0 && errno == EINTR);
    if (got != sizeof turn)
        fail("reading the current turn: %s", got < 0 ? strerror(errno) : "the file is too short");
    bool is_new = turn.lap != s->turn.lap;
    s->turn = turn;
    return is_new;
}

static inline void end_slice(Slices *s)
{
    uint64_t messages = s->last_messages - s->first_messages, ns = s->last_ns - s->first_ns;
    if (!s->has_begun)
        return;
    s->has_begun = false;
    if (messages > 0 && ns > 0 && s->count < MAX_SLICES)
        s->done[s->count++] = (Slice){.lap = s->lap,
                                      .messages = messages,
                                      .ns = ns,
                                      .p50_ns = s->has_times ? middle_time(&s->times) : 0};
    /* Here, before the next slice begins, and only where there are round trips: it takes longer than
     * many messages. */
    if (s->has_times)
        memset(s->times.counts, 0, sizeof s->times.counts);
    s->has_times = false;
}

/* Begins a turn. The slice of the turn before ended with its last clock reading. */
static inline void begin_turn(Slices *s, uint64_t now)
{
    end_slice(s);
    s->lap = s->turn.lap;
    s->settled_ns = now + SETTLE_NS;
}

/* Updates the slices at a clock reading. `is_open` says whether the window is open. */
static inline void update_slices(Slices *s, uint64_t now, uint64_t messages, bool is_open)
{
    if (s->file < 0)
        return;
    s->last_ns = now;
    s->last_messages = messages;
    if (!s->has_begun && is_open && now >= s->settled_ns) {
        s->has_begun = true;
        s->first_ns = now;
        s->first_messages = messages;
    } else if (s->has_begun && !is_open) {
        end_slice(s);
    }
}

/* Records a round trip of the current slice. */
static inline void note_slice_time(Slices *s, uint64_t ns)
{
    if (!s->has_begun)
        return;
    s->has_times = true;
    note_time(&s->times, ns);
}

#endif
