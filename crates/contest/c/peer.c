/*
 * One end of `process/pipe-c` or `process/unix-stream-c`: the baselines in C.
 *
 * What a C programmer would write: one buffer an end, write and read in a loop, or send and recv, which on a socket are
 * some 70 ns shorter each; the kernel's own buffer sizes.
 * It does the same filling and checking as the rows in Rust, which are held against it. The coordinator starts it and
 * speaks docs/child-protocol.md with it on descriptor 0. `--vectors` prints messages, for the tests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "message.h"
#include "protocol.h"
#include "window.h"

/* A round trip is timed by itself where it takes at least this many readings of the clock. */
#define CLOCKS_PER_SAMPLE 20
#define CACHE_LINE 64
#define MAX_PAYLOAD (UINT64_C(1) << 30)
#define MAX_SEED ((UINT64_C(1) << 53) - 1)
/* Keeps every sum of times below 2^63. */
#define MAX_TIME_NS (UINT64_C(1) << 60)

typedef struct {
    bool over_socket; /* unix-stream rather than pipe */
    bool ping_pong;   /* rather than stream */
    bool producer;    /* rather than consumer; in a ping-pong, the side that asks */
    size_t len;
    Window window;
    uint64_t seed;
} Assignment;

/* One end of the case: what it reads and writes with, and what it knows of the messages. */
typedef struct {
    int in, out;
    bool over_socket;
    unsigned char *in_buffer, *out_buffer;
    size_t len;
    Generator next;
    Verifier seen;
    Meter meter;
    uint64_t share; /* messages to send where the window is a count, otherwise no end of them */
} Party;

/*
 * Round-trip times in log-linear buckets: one for every value up to 2047 ns, from there 1024 for each power of two,
 * which keeps three significant digits. Up to 60 s; what is longer counts as that.
 */
enum { BUCKETS = 26 * 1024 + 1024 };
#define LONGEST_NS UINT64_C(60000000000)

static struct {
    uint64_t batch;
    uint64_t counts[BUCKETS];
} latency;

static void note_time(uint64_t ns)
{
    if (ns > LONGEST_NS)
        ns = LONGEST_NS;
    unsigned shift = ns < 2048 ? 0 : 53 - (unsigned)__builtin_clzll(ns);
    latency.counts[shift * 1024 + (ns >> shift)]++;
}

/* The longest time that falls into a bucket. */
static uint64_t bucket_top(uint64_t bucket)
{
    uint64_t shift = bucket < 2048 ? 0 : bucket / 1024 - 1;
    return ((bucket - shift * 1024 + 1) << shift) - 1;
}

/* The time that half of those noted are below, or at; 0 where none is. */
static uint64_t middle_time(void)
{
    uint64_t all = 0, seen = 0;
    for (uint64_t i = 0; i < BUCKETS; i++)
        all += latency.counts[i];
    for (uint64_t i = 0; i < BUCKETS; i++) {
        seen += latency.counts[i];
        if (seen > 0 && 2 * seen >= all)
            return bucket_top(i);
    }
    return 0;
}

static void put(Party *p)
{
    fill(&p->next, p->out_buffer, p->len);
    for (size_t done = 0; done < p->len;) {
        const unsigned char *from = p->out_buffer + done;
        size_t rest = p->len - done;
        ssize_t more = p->over_socket ? send(p->out, from, rest, MSG_NOSIGNAL) : write(p->out, from, rest);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            fail("sending: %s", more == 0 ? "nothing was taken" : strerror(errno));
    }
}

static void get(Party *p)
{
    for (size_t done = 0; done < p->len;) {
        unsigned char *to = p->in_buffer + done;
        size_t rest = p->len - done;
        ssize_t more = p->over_socket ? recv(p->in, to, rest, 0) : read(p->in, to, rest);
        if (more > 0)
            done += (size_t)more;
        else if (more == 0 || errno != EINTR)
            fail("receiving: %s", more == 0 ? "the other side closed the stream early" : strerror(errno));
    }
    check(&p->seen, p->in_buffer, p->len);
}

static void put_end(Party *p)
{
    generator_end(&p->next);
    put(p);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
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
            put(p);
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
            get(p);
            if (p->seen.ended) {
                uint64_t sent = p->next.made;
                meter_end(&p->meter, *messages);
                if (answers)
                    put_end(p);
                return sent;
            }
            if (answers)
                put(p);
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

/* What one reading of the clock costs in nanoseconds: the median of several batches. */
static double clock_cost_ns(void)
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

/* Asks and waits for the answer, over and over, and notes how long it took. */
static uint64_t ping(Party *p)
{
    double enough_ns = CLOCKS_PER_SAMPLE * clock_cost_ns();
    latency.batch = 1;
    do {
        uint64_t round_trips = least(latency.batch, p->share - p->next.made);
        uint64_t asked_ns = now_ns();
        for (uint64_t n = round_trips; n > 0; n--) {
            put(p);
            get(p);
        }
        bool was_open = is_open(&p->meter), was_closed = p->meter.closed.taken;
        uint64_t now = look(p, p->next.made);
        uint64_t took = (now - asked_ns) / (round_trips > 0 ? round_trips : 1);
        if (!was_closed)
            note_time(took > 0 ? took : 1);
        if (!was_open && is_open(&p->meter)) {
            /* By the middle one of the warm-up: a lucky one says nothing about the others. */
            double batch = enough_ns / (double)middle_time();
            latency.batch = batch <= 1 ? 1 : (uint64_t)batch + (batch > (double)(uint64_t)batch);
            memset(latency.counts, 0, sizeof latency.counts);
        }
    } while (p->meter.window.by_count ? p->next.made < p->share : !p->meter.closed.taken);
    uint64_t sent = p->next.made;
    meter_end(&p->meter, sent);
    put_end(p);
    while (!p->seen.ended)
        get(p);
    return sent;
}

/* `64B`, `4KiB`: a number and a unit. */
static size_t read_payload(void)
{
    char text[32];
    static const struct { const char *name; uint64_t scale; } units[] = {
        {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    uint64_t number = 0;
    heard_text("assignment.case.cell.payload", text, sizeof text);
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && number <= MAX_PAYLOAD; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    for (size_t i = 0; at > text && i < sizeof units / sizeof *units; i++)
        if (strcmp(at, units[i].name) == 0 && number > 0 && number <= MAX_PAYLOAD / units[i].scale)
            return number * units[i].scale;
    fail("payload `%s`: this program carries bytes, from 1B to 1GiB", text);
}

/* Which of two names a text is. */
static bool is_first(const char *path, const char *first, const char *second)
{
    char text[64];
    heard_text(path, text, sizeof text);
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        fail("`%s` is %s: this program knows %s and %s", path, text, first, second);
    return strcmp(text, first) == 0;
}

static Window read_window(void)
{
    if (heard_any("assignment.window.time"))
        return (Window){.warmup = heard_number("assignment.window.time.warmup_ns", MAX_TIME_NS),
                        .measure = heard_number("assignment.window.time.measure_ns", MAX_TIME_NS)};
    return (Window){.by_count = true,
                    .warmup = heard_number("assignment.window.count.warmup", MAX_MESSAGES / 4),
                    .measure = heard_number("assignment.window.count.messages", MAX_MESSAGES / 4)};
}

static void pin_to(uint64_t cpu)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_setaffinity(0, sizeof only, &only))
        fail("pinning to core %" PRIu64 ": %s", cpu, strerror(errno));
}

/* Hears what to do, and moves to the core it is to be done on. */
static Assignment read_assignment(void)
{
    hear("assignment", NULL, 0);
    uint64_t protocol = heard_number("assignment.protocol", UINT32_MAX);
    if (protocol != PROTOCOL_VERSION)
        fail("the coordinator speaks protocol %" PRIu64 ", this program %d", protocol, PROTOCOL_VERSION);
    if (heard_any("assignment.cpus.0"))
        pin_to(heard_number("assignment.cpus.0", CPU_SETSIZE - 1));
    return (Assignment){
        .over_socket = is_first("assignment.case.mechanism", "process/unix-stream-c", "process/pipe-c"),
        .ping_pong = is_first("assignment.case.cell.pattern", "ping-pong", "stream"),
        .producer = is_first("assignment.role", "producer:0", "consumer:0"),
        .len = read_payload(),
        .window = read_window(),
        .seed = heard_number("assignment.seed", MAX_SEED),
    };
}

static void offer(const char *name, const int *descriptors, size_t count)
{
    packet_begin();
    packet_add("{\"offer\":{\"name\":\"%s\"}}", name);
    packet_send(descriptors, count);
}

static void want(const char *name, int *descriptors, size_t count)
{
    packet_begin();
    packet_add("{\"want\":{\"name\":\"%s\"}}", name);
    packet_send(NULL, 0);
    hear("offer", descriptors, count);
}

/* At a cache line, as in Rust: the kernel copies up to 5 % faster to and from there. */
static unsigned char *message_buffer(size_t len)
{
    size_t room = (len + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    unsigned char *buffer = aligned_alloc(CACHE_LINE, room);
    if (!buffer)
        fail("no memory for a message of %zu bytes", len);
    return memset(buffer, 0, room);
}

/* The consumer makes what joins the two and offers the other's ends of it; its own copies of those go. */
static void open_ends(const Assignment *a, Party *p)
{
    const char *name = a->over_socket ? "socket" : a->ping_pong ? "pipes" : "pipe";
    size_t count = !a->over_socket && a->ping_pong ? 2 : 1;
    int there[2], back[2] = {-1, -1};
    if (a->producer) {
        int ends[2] = {-1, -1};
        want(name, ends, count);
        p->out = ends[0];
        p->in = a->over_socket ? ends[0] : ends[1];
    } else {
        if (a->over_socket ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, there) : pipe2(there, O_CLOEXEC))
            fail("opening a %s: %s", name, strerror(errno));
        if (count == 2 && pipe2(back, O_CLOEXEC))
            fail("opening the pipe back: %s", strerror(errno));
        offer(name, (int[]){there[1], back[0]}, count);
        close(there[1]);
        close(back[0]);
        p->in = there[0];
        p->out = a->over_socket ? there[0] : back[1];
    }
    p->over_socket = a->over_socket;
    p->len = a->len;
    p->in_buffer = message_buffer(a->len);
    p->out_buffer = message_buffer(a->len);
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
    Party p = {0};
    open_ends(a, &p);
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

    /* An end that closes lets the other side know, should it still wait for something. */
    close(p.in);
    if (p.out != p.in)
        close(p.out);
    for (uint64_t width = 1; !write_report(a, &p, sent, width); width *= 2)
        continue;
    packet_send(NULL, 0);
    free(p.in_buffer);
    free(p.out_buffer);
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
    /* The other side's end is an error of write. */
    signal(SIGPIPE, SIG_IGN);
    connect_coordinator();
    Assignment assignment = read_assignment();
    play(&assignment);
    return 0;
}
