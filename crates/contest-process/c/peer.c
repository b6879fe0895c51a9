/*
 * One end of a C baseline: the loops, and the report of the measurement.
 *
 * The way a message is passed is in one of the headers in way/, selected when this is compiled. So
 * its functions become part of the loops, as if each program had been written separately. A way
 * defines
 *
 *     MECHANISM       the row that the program implements
 *     CARRIES_BYTES   whether messages have bytes
 *     Ends            what one end sends and receives with
 *     open_ends       creates the ends, together with the other side
 *     send_message    makes and sends the next message
 *     recv_message    receives and verifies one message
 *     close_ends      closes the ends, so that a waiting other side notices the end
 *
 * and is what a C programmer would write. All do the same filling and verifying as the Rust rows,
 * with which they are compared. The coordinator starts the program and uses docs/child-protocol.md
 * with it on descriptor 0. `--vectors` prints messages for the tests.
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
#include "slices.h"
#include "window.h"

/* One party of the case: its ends, and the state of its messages. */
typedef struct {
    Ends ends;
    Generator source;
    Verifier verifier;
    Meter meter;
    Slices *slices;
    uint64_t share; /* messages to send in a window by count, otherwise unlimited */
} Party;

static Latency latency;
static Slices slices;

static void send_end_mark(Party *p)
{
    generator_end(&p->source);
    send_message(&p->ends, &p->source);
}

/* Returns the time of the instance, which stands still while it is paused. A pause since the last
 * check_clock is not subtracted. */
static uint64_t instance_ns(const Party *p)
{
    return now_ns() - p->slices->turn.paused_ns;
}

/* Reads the clock and the turn. Returns the time of the instance, and whether a turn has begun since the
 * last reading. */
static uint64_t current_ns(Party *p, bool *is_new_turn)
{
    uint64_t paused_before_ns = p->slices->turn.paused_ns, checked_ns = p->meter.checked_ns;
    uint64_t now = instance_ns(p);
    *is_new_turn = has_turned(p->slices, now > checked_ns ? now - checked_ns : 0);
    uint64_t paused_ns = p->slices->turn.paused_ns - paused_before_ns;
    /* If the pause came after the reading of the clock, time would go back. */
    return now < checked_ns + paused_ns ? now : now - paused_ns;
}

/* Reads the clock, which may open or close the window. Fails before sequence numbers would repeat. */
static uint64_t check_clock(Party *p, uint64_t messages)
{
    if (messages > MAX_MESSAGES - 2 * MAX_STRIDE)
        fail("%" PRIu64 " messages: there are no more sequence numbers", messages);
    bool is_new_turn;
    uint64_t now = current_ns(p, &is_new_turn);
    meter_update(&p->meter, now, messages);
    if (is_new_turn)
        begin_turn(p->slices, now);
    update_slices(p->slices, now, messages, is_open(&p->meter));
    return now;
}

/* Closes the window if the stream ended early. */
static void end_window(Party *p, uint64_t messages)
{
    bool is_new_turn;
    meter_end(&p->meter, current_ns(p, &is_new_turn), messages);
}

/* Sends until the time is over or the share is sent, then sends the end mark. Returns the number of
 * messages sent. */
static uint64_t produce(Party *p)
{
    uint64_t now;
    do {
        for (uint64_t n = least(stride(&p->meter, p->source.made), p->share - p->source.made); n > 0; n--)
            send_message(&p->ends, &p->source);
        now = check_clock(p, p->source.made);
    } while (p->meter.window.by_count ? p->source.made < p->share : !is_over(&p->meter, now));
    uint64_t sent = p->source.made;
    end_window(p, sent);
    send_end_mark(p);
    return sent;
}

/* Receives until the end mark. In a ping-pong it replies to every message, including the end mark.
 * Returns the number of replies. */
static uint64_t receive_all(Party *p, bool replies)
{
    const uint64_t *messages = replies ? &p->source.made : &p->verifier.received;
    for (;;) {
        for (uint64_t n = stride(&p->meter, *messages); n > 0; n--) {
            recv_message(&p->ends, &p->verifier);
            if (p->verifier.ended) {
                uint64_t sent = p->source.made;
                end_window(p, *messages);
                if (replies && p->verifier.damaged == 0)
                    send_end_mark(p);
                return sent;
            }
            if (replies)
                send_message(&p->ends, &p->source);
        }
        check_clock(p, *messages);
    }
}

static uint64_t consume(Party *p)
{
    return receive_all(p, false);
}

static uint64_t pong(Party *p)
{
    return receive_all(p, true);
}

/* Sends requests and waits for their replies. Records the round-trip times. */
static uint64_t ping(Party *p)
{
    double enough_ns = CLOCKS_PER_SAMPLE * clock_cost_ns();
    latency.batch = 1;
    do {
        uint64_t round_trips = least(latency.batch, p->share - p->source.made);
        uint64_t start_ns = instance_ns(p), lap = p->slices->turn.lap;
        for (uint64_t n = round_trips; n > 0; n--) {
            send_message(&p->ends, &p->source);
            recv_message(&p->ends, &p->verifier);
            if (p->verifier.damaged > 0)
                return p->source.made;
        }
        bool was_open = is_open(&p->meter), was_closed = p->meter.closed.is_set;
        uint64_t now = check_clock(p, p->source.made);
        uint64_t took_ns = now > start_ns ? now - start_ns : 0;
        uint64_t each_ns = took_ns / (round_trips > 0 ? round_trips : 1);
        /* A round trip that was interrupted by a pause counts only if stopping and starting takes a
         * small part of its time. */
        if (!was_closed && (p->slices->turn.lap == lap || took_ns > LONG_NS)) {
            note_time(&latency, each_ns > 0 ? each_ns : 1);
            note_slice_time(p->slices, each_ns > 0 ? each_ns : 1);
        }
        uint64_t middle_ns = was_open || !is_open(&p->meter) ? 0 : middle_time(&latency);
        if (middle_ns > 0) {
            /* Uses the median of the warm-up: a single lucky time says nothing about the others. */
            double batch = enough_ns / (double)middle_ns;
            latency.batch = batch <= 1 ? 1 : (uint64_t)batch + (batch > (double)(uint64_t)batch);
            memset(latency.counts, 0, sizeof latency.counts);
        }
    } while (p->meter.window.by_count ? p->source.made < p->share : !p->meter.closed.is_set);
    uint64_t sent = p->source.made;
    end_window(p, sent);
    send_end_mark(p);
    while (!p->verifier.ended)
        recv_message(&p->ends, &p->verifier);
    return sent;
}

/* Adds the latencies to the packet, merging `width` buckets into one. Returns false if they do not
 * fit. */
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

/* Adds the slices to the packet. Returns false if they do not fit. */
static bool add_slices(Slices *s)
{
    end_slice(s);
    for (size_t i = 0; i < s->count; i++) {
        const Slice *slice = &s->done[i];
        bool fits = packet_add("%s{\"lap\":%" PRIu64 ",\"messages\":%" PRIu64 ",\"ns\":%" PRIu64, i > 0 ? "," : "",
                               slice->lap, slice->messages, slice->ns);
        fits = fits && (slice->p50_ns == 0 || packet_add(",\"p50_ns\":%" PRIu64, slice->p50_ns));
        if (!fits || !packet_add("}"))
            return false;
    }
    return true;
}

static bool write_report(const Assignment *a, const Party *p, uint64_t sent, uint64_t width)
{
    const Verifier *verifier = &p->verifier;
    const Mark *opened = &p->meter.opened, *closed = &p->meter.closed;
    bool measured = opened->is_set && closed->is_set;
    packet_begin();
    packet_add("{\"report\":{\"parties\":[{\"role\":\"%s\",\"sent\":%" PRIu64, a->producer ? "producer:0" : "consumer:0",
               sent);
    if (a->ping_pong || !a->producer) {
        packet_add(",\"received\":[{\"producer\":0,\"received\":%" PRIu64 ",\"announced\":", verifier->received);
        verifier->ended && verifier->damaged == 0 ? packet_add("%" PRIu64 "}]", verifier->announced) : packet_add("null}]");
        packet_add(",\"faults\":{\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64
                   ",\"reordered\":0,\"damaged\":%" PRIu64 "}",
                   lost(verifier), verifier->duplicated, verifier->damaged);
    }
    packet_add(",\"messages\":%" PRIu64 ",\"window_ns\":%" PRIu64 ",\"longest_stall_ns\":%" PRIu64 ",\"latency\":",
               measured ? closed->messages - opened->messages : 0, measured ? closed->at_ns - opened->at_ns : 0,
               p->meter.longest_stall_ns);
    if (!(a->ping_pong && a->producer ? add_latency(width) : packet_add("null")))
        return false;
    if (!packet_add(",\"slices\":[") || !add_slices(p->slices))
        return false;
    const Usage *before = &opened->usage, *after = &closed->usage;
    if (!measured)
        return packet_add("]}],\"usage\":null}}");
    return packet_add("]}],\"usage\":{\"cpu_ns\":%" PRIu64 ",\"voluntary_switches\":%" PRIu64
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
    expect_packet("go", NULL, 0);
    p.source = generator(a->seed, a->secret, 0);
    p.verifier = verifier(a->seed, a->secret);
    p.meter = meter(a->window, packet_number("go.start_ns", MAX_TIME_NS));
    p.slices = &slices;
    slices.file = a->turns;
    if (has_turned(&slices, UINT64_MAX))
        begin_turn(&slices, instance_ns(&p));
    p.share = a->window.by_count ? a->window.warmup + a->window.measure : UINT64_MAX;

    uint64_t (*const loops[2][2])(Party *) = {{consume, produce}, {pong, ping}};
    uint64_t sent = loops[a->ping_pong][a->producer](&p);

    /* To the other side a party that stops at damage has not gone. */
    if (p.verifier.damaged == 0)
        close_ends(&p.ends);
    for (uint64_t width = 1; !write_report(a, &p, sent, width); width *= 2)
        continue;
    packet_send(NULL, 0);
    expect_packet("done", NULL, 0);
}

/* Prints the first messages of a stream and its end mark in hexadecimal. */
static int print_vectors(char **arguments)
{
    uint64_t numbers[5];
    for (int i = 0; i < 5; i++)
        numbers[i] = strtoull(arguments[i], NULL, 10);
    uint64_t count = numbers[3];
    size_t len = numbers[4];
    Generator source = generator(numbers[0], numbers[1], numbers[2]);
    unsigned char *message = malloc(len);
    if (!message)
        return 1;
    for (uint64_t i = 0; i <= count; i++) {
        if (i == count)
            generator_end(&source);
        fill(&source, message, len);
        for (size_t at = 0; at < len; at++)
            printf("%02x", message[at]);
        putchar('\n');
    }
    free(message);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 7 && strcmp(argv[1], "--vectors") == 0)
        return print_vectors(argv + 2);
    /* The kernel kills this process when the coordinator is killed. If the coordinator died before
     * this line, the socket is closed. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A write to an exited party must be an error, not a signal. */
    signal(SIGPIPE, SIG_IGN);
    connect_coordinator();
    static Assignment assignment;
    read_assignment(&assignment, MECHANISM, CARRIES_BYTES);
    play(&assignment);
    return 0;
}
