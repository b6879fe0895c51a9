#define _GNU_SOURCE
#include "assignment.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "message.h"
#include "protocol.h"

#define MAX_PAYLOAD (UINT64_C(1) << 30)
#define MAX_SEED ((UINT64_C(1) << 53) - 1)

/* Reads a payload: a number and a unit such as `64B` or `4KiB`, or `none`, which is 0. */
static size_t read_payload(bool bytes)
{
    char text[32];
    static const struct { const char *name; uint64_t scale; } units[] = {
        {"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
    uint64_t number = 0;
    packet_text("assignment.case.cell.payload", text, sizeof text);
    if (!bytes) {
        if (strcmp(text, "none") != 0)
            fail("payload `%s`: this program carries messages without bytes, `none`", text);
        return 0;
    }
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && number <= MAX_PAYLOAD; at++)
        number = number * 10 + (uint64_t)(*at - '0');
    for (size_t i = 0; at > text && i < sizeof units / sizeof *units; i++)
        if (strcmp(at, units[i].name) == 0 && number > 0 && number <= MAX_PAYLOAD / units[i].scale)
            return number * units[i].scale;
    fail("payload `%s`: this program carries bytes, from 1B to 1GiB", text);
}

/* Returns whether a text is the first of two names. Fails if it is neither. */
static bool is_first(const char *path, const char *first, const char *second)
{
    char text[64];
    packet_text(path, text, sizeof text);
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0)
        fail("`%s` is %s: this program knows %s and %s", path, text, first, second);
    return strcmp(text, first) == 0;
}

static Window read_window(void)
{
    if (packet_has("assignment.window.time"))
        return (Window){.warmup = packet_number("assignment.window.time.warmup_ns", MAX_TIME_NS),
                        .measure = packet_number("assignment.window.time.measure_ns", MAX_TIME_NS)};
    return (Window){.by_count = true,
                    .warmup = packet_number("assignment.window.count.warmup", MAX_MESSAGES / 4),
                    .measure = packet_number("assignment.window.count.messages", MAX_MESSAGES / 4)};
}

static void pin_to(uint64_t cpu)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    if (sched_setaffinity(0, sizeof only, &only))
        fail("pinning to core %" PRIu64 ": %s", cpu, strerror(errno));
}

void read_assignment(Assignment *a, const char *mechanism, bool bytes)
{
    char text[64];
    a->turns = expect_packet_with_option("assignment");
    uint64_t protocol = packet_number("assignment.protocol", UINT32_MAX);
    if (protocol != PROTOCOL_VERSION)
        fail("the coordinator speaks protocol %" PRIu64 ", this program %d", protocol, PROTOCOL_VERSION);
    packet_text("assignment.case.mechanism", text, sizeof text);
    if (strcmp(text, mechanism) != 0)
        fail("`%s` is asked for: this program is one end of %s", text, mechanism);
    if (packet_has("assignment.cpus.0"))
        pin_to(packet_number("assignment.cpus.0", CPU_SETSIZE - 1));
    a->ping_pong = is_first("assignment.case.cell.pattern", "ping-pong", "stream");
    a->producer = is_first("assignment.role", "producer:0", "consumer:0");
    a->len = read_payload(bytes);
    a->capacity = packet_number("assignment.case.cell.capacity", UINT32_MAX);
    a->window = read_window();
    a->seed = packet_number("assignment.seed", MAX_SEED);
    a->secret = packet_number("assignment.secret", MAX_SEED);
    packet_text("assignment.dir", a->dir, sizeof a->dir);
}
