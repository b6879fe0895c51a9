/*
 * One end of a baseline in C: the loops, and the report of what they measured.
 *
 * How a message is passed is in one of the headers in way/, named when this is compiled, so that its functions become
 * part of the loops: as if each program had been written by itself. A way defines
 *
 *     MECHANISM       the row that the program is
 *     CARRIES_BYTES   or messages without any
 *     Ends            what one end sends and receives with
 *     open_ends       makes them, together with the other side
 *     put             makes and sends the next message
 *     get             receives and checks one
 *     close_ends      lets the other side know that nothing more comes, should it still wait
 *
 * and is what a C programmer would write. All do the same filling and checking as the rows in Rust, which are held
 * against them. The coordinator starts the program and speaks docs/child-protocol.md with it on descriptor 0.
 * `--vectors` prints messages, for the tests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include WAY

#include "assignment.h"
#include "latency.h"
#include "message.h"
#include "protocol.h"
#include "window.h"

/* One end of the case: what it sends and receives with, and what it knows of the messages. */
typedef struct {
    Ends ends;
    Generator next;
    Verifier seen;
    Meter meter;
    uint64_t share; /* messages to send where the window is a count, otherwise no end of them */
} Party;

static Latency latency;

static void put_end(Party *p)
{
    generator_end(&p->next);
    put(&p->ends, &p->next);
}

/* Looks at the clock, which may open or close the window. Sequence numbers may not repeat. */
static uint64_t look(Party *p, uint64_t messages)
{
    uint64_t now = now_ns();
    if (messages > MAX_MESSAGES - 2 * MAX_STRIDE)
        fail("%" PRIu64 " messages: there are no more sequence numbers", messages);
    look_at(&p->meter, now, messages);
    return now;
}

/* Sends until the time is over or the share is sent, then the end mark. Returns the messages sent. */
static uint64_t produce(Party *p)
{
    uint64_t now;
    do {
        for (uint64_t n = least(stride(&p->meter, p->next.made), p->share - p->next.made); n > 0; n--)
            put(&p->ends, &p->next);
        now = look(p, p->next.made);
    } while (p->meter.window.by_count ? p->next.made < p->share : !is_over(&p->meter, now));
    uint64_t sent = p->next.made;
    meter_end(&p->meter, sent);
    put_end(p);
    return sent;
}

/* Receives until the end mark. In a ping-pong it answers every message, the end mark too. Returns the answers. */
static uint64_t take(Party *p, bool answers)
{
    const uint64_t *messages = answers ? &p->next.made : &p->seen.received;
    for (;;) {
        for (uint64_t n = stride(&p->meter, *messages); n > 0; n--) {
            get(&p->ends, &p->seen);
            if (p->seen.ended) {
                uint64_t sent = p->next.made;
                meter_end(&p->meter, *messages);
                if (answers)
                    put_end(p);
                return sent;
            }
            if (answers)
                put(&p->ends, &p->next);
        }
        look(p, *messages);
    }
}

static uint64_t consume(Party *p)
{
    return take(p, false);
}

static uint64_t pong(Party *p)
{
    return take(p, true);
}

/* Asks and waits for the answer, over and over, and notes how long it took. */
static uint64_t ping(Party *p)
{
    double enough_ns = CLOCKS_PER_SAMPLE * clock_cost_ns();
    latency.batch = 1;
    do {
        uint64_t round_trips = least(latency.batch, p->share - p->next.made);
        uint64_t asked_ns = now_ns();
        for (uint64_t n = round_trips; n > 0; n--) {
            put(&p->ends, &p->next);
            get(&p->ends, &p->seen);
        }
        bool was_open = is_open(&p->meter), was_closed = p->meter.closed.taken;
        uint64_t now = look(p, p->next.made);
        uint64_t took = (now - asked_ns) / (round_trips > 0 ? round_trips : 1);
        if (!was_closed)
            note_time(&latency, took > 0 ? took : 1);
        if (!was_open && is_open(&p->meter)) {
            /* By the middle one of the warm-up: a lucky one says nothing about the others. */
            double batch = enough_ns / (double)middle_time(&latency);
            latency.batch = batch <= 1 ? 1 : (uint64_t)batch + (batch > (double)(uint64_t)batch);
            memset(latency.counts, 0, sizeof latency.counts);
        }
    } while (p->meter.window.by_count ? p->next.made < p->share : !p->meter.closed.taken);
    uint64_t sent = p->next.made;
    meter_end(&p->meter, sent);
    put_end(p);
    while (!p->seen.ended)
        get(&p->ends, &p->seen);
    return sent;
}

/* Adds the latencies to the packet, each bucket so many times as wide as it was; false where they do not fit. */
static bool add_latency(uint64_t width)
{
    const char *comma = "";
    if (!packet_add("{\"batch\":%" PRIu64 ",\"counts\":[", latency.batch))
        return false;
    for (uint64_t first = 0; first < BUCKETS; first += width) {
        uint64_t count = 0;
        for (uint64_t i = first; i < first + width; i++)
            count += latency.counts[i];
        if (count > 0 && !packet_add("%s[%" PRIu64 ",%" PRIu64 "]", comma, bucket_top(first + width - 1), count))
            return false;
        if (count > 0)
            comma = ",";
    }
    return packet_add("]}");
}

static bool write_report(const Assignment *a, const Party *p, uint64_t sent, uint64_t width)
{
    const Verifier *seen = &p->seen;
    const Mark *opened = &p->meter.opened, *closed = &p->meter.closed;
    bool measured = opened->taken && closed->taken;
    packet_begin();
    packet_add("{\"report\":{\"parties\":[{\"role\":\"%s\",\"sent\":%" PRIu64, a->producer ? "producer:0" : "consumer:0",
               sent);
    if (a->ping_pong || !a->producer) {
        packet_add(",\"received\":[{\"producer\":0,\"received\":%" PRIu64 ",\"announced\":", seen->received);
        seen->ended ? packet_add("%" PRIu64 "}]", seen->announced) : packet_add("null}]");
        packet_add(",\"faults\":{\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64
                   ",\"reordered\":0,\"damaged\":%" PRIu64 "}",
                   lost(seen), seen->duplicated, seen->damaged);
    }
    packet_add(",\"messages\":%" PRIu64 ",\"window_ns\":%" PRIu64 ",\"longest_stall_ns\":%" PRIu64 ",\"latency\":",
               measured ? closed->messages - opened->messages : 0, measured ? closed->at_ns - opened->at_ns : 0,
               p->meter.longest_stall_ns);
    if (!(a->ping_pong && a->producer ? add_latency(width) : packet_add("null")))
        return false;
    const Usage *before = &opened->usage, *after = &closed->usage;
    if (!measured)
        return packet_add("}],\"usage\":null}}");
    return packet_add("}],\"usage\":{\"cpu_ns\":%" PRIu64 ",\"voluntary_switches\":%" PRIu64
                      ",\"involuntary_switches\":%" PRIu64 "}}}",
                      after->cpu_ns - before->cpu_ns, after->voluntary - before->voluntary,
                      after->involuntary - before->involuntary);
}

static void play(const Assignment *a)
{
    Party p = {.ends = open_ends(a)};
    packet_begin();
    packet_add("{\"ready\":{}}");
    packet_send(NULL, 0);
    hear("go", NULL, 0);
    p.next = generator(a->seed, 0);
    p.seen = verifier(a->seed);
    p.meter = meter(a->window, heard_number("go.start_ns", MAX_TIME_NS));
    p.share = a->window.by_count ? a->window.warmup + a->window.measure : UINT64_MAX;

    uint64_t (*const loops[2][2])(Party *) = {{consume, produce}, {pong, ping}};
    uint64_t sent = loops[a->ping_pong][a->producer](&p);

    close_ends(&p.ends);
    for (uint64_t width = 1; !write_report(a, &p, sent, width); width *= 2)
        continue;
    packet_send(NULL, 0);
    hear("done", NULL, 0);
}

/* Prints the first messages of a stream and its end mark in hexadecimal. */
static int print_vectors(char **arguments)
{
    uint64_t count = strtoull(arguments[2], NULL, 10);
    size_t len = strtoull(arguments[3], NULL, 10);
    Generator next = generator(strtoull(arguments[0], NULL, 10), strtoull(arguments[1], NULL, 10));
    unsigned char *message = malloc(len);
    if (!message)
        return 1;
    for (uint64_t i = 0; i <= count; i++) {
        if (i == count)
            generator_end(&next);
        fill(&next, message, len);
        for (size_t at = 0; at < len; at++)
            printf("%02x", message[at]);
        putchar('\n');
    }
    free(message);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--vectors") == 0)
        return print_vectors(argv + 2);
    /* A coordinator that is killed takes its children along. One that died before this line closed the socket. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* The other side's end is an error of whoever sends to it. */
    signal(SIGPIPE, SIG_IGN);
    connect_coordinator();
    static Assignment assignment;
    read_assignment(&assignment, MECHANISM, CARRIES_BYTES);
    play(&assignment);
    return 0;
}
