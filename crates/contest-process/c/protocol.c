#define _GNU_SOURCE
#include "protocol.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const int coordinator = 0;
/* Deeper than any packet of the protocol. */
static const int max_depth = 16;

/* The packet received last, and the packet being written. */
static char incoming[MAX_PACKET], outgoing[MAX_PACKET + 1];
static size_t incoming_len, outgoing_len;

/* A value within `incoming`, from its first character to the one after its last. `at` is null
 * if there is no such value. */
typedef struct {
    const char *at, *end;
} Json;

static bool is_one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

/* JSON. Each `skip` function returns the end of the item, or null if there is none. */

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_one_of(*at, " \t\n\r"))
        at++;
    return at;
}

static const char *skip_string(const char *at, const char *end)
{
    if (at == end || *at != '"')
        return NULL;
    while (++at < end && (unsigned char)*at >= 0x20) {
        if (*at == '"')
            return at + 1;
        /* Functions that extract a string reject escapes. Here an escape only must not end the
         * string. */
        if (*at == '\\' && ++at == end)
            return NULL;
    }
    return NULL;
}

/* A number or a literal. Functions that extract it check its form. */
static const char *skip_word(const char *at, const char *end)
{
    const char *first = at;
    while (at < end && (isalnum((unsigned char)*at) || is_one_of(*at, "+-.")))
        at++;
    return at == first ? NULL : at;
}

/* Returns the rest of a path inside the value under this key, or null if the path leads elsewhere. */
static const char *step(const char *path, const char *key, size_t len)
{
    if (!path || !*path || strcspn(path, ".") != len || memcmp(path, key, len) != 0)
        return NULL;
    return path[len] == '.' ? path + len + 1 : path + len;
}

/* Parses a value and notes in `found` the value that the path leads to. Returns the end of the
 * value, or null if it is not JSON. */
static const char *walk(const char *at, const char *end, const char *path, Json *found, int depth)
{
    const char *first = at;
    if (at == end || depth > max_depth)
        return NULL;
    if (*at == '"') {
        at = skip_string(at, end);
    } else if (*at != '{' && *at != '[') {
        at = skip_word(at, end);
    } else {
        char close = *at == '{' ? '}' : ']';
        at = skip_space(at + 1, end);
        for (unsigned index = 0; at == end || *at != close; index++) {
            char number[16];
            const char *key = number;
            size_t len = (size_t)snprintf(number, sizeof number, "%u", index);
            if (index > 0) {
                if (at == end || *at != ',')
                    return NULL;
                at = skip_space(at + 1, end);
            }
            if (close == '}') {
                key = at + 1;
                if (!(at = skip_string(at, end)))
                    return NULL;
                len = (size_t)(at - 1 - key);
                if ((at = skip_space(at, end)) == end || *at != ':')
                    return NULL;
                at = skip_space(at + 1, end);
            }
            if (!(at = walk(at, end, step(path, key, len), found, depth + 1)))
                return NULL;
            at = skip_space(at, end);
        }
        at++;
    }
    if (path && !*path)
        *found = (Json){first, at};
    return at;
}

/* Looks up a path. There is no such value unless the whole packet is JSON. */
static Json look_up(const char *path)
{
    const char *end = incoming + incoming_len;
    Json found = {NULL, NULL};
    const char *past = walk(skip_space(incoming, end), end, path, &found, 0);
    return past && skip_space(past, end) == end ? found : (Json){NULL, NULL};
}

bool packet_has(const char *path)
{
    Json value = look_up(path);
    return value.at && *value.at != 'n';
}

uint64_t packet_number(const char *path, uint64_t max)
{
    Json value = look_up(path);
    const char *at = value.at;
    uint64_t number = 0;
    for (; at < value.end && *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (number > max / 10 || number * 10 > max - digit)
            break;
        number = number * 10 + digit;
    }
    if (!value.at || at < value.end)
        fail("`%s` is not a whole number of at most %llu", path, (unsigned long long)max);
    return number;
}

void packet_text(const char *path, char *out, size_t size)
{
    Json value = look_up(path);
    if (!value.at || *value.at != '"')
        fail("`%s` is not a string", path);
    size_t len = (size_t)(value.end - value.at) - 2;
    if (len >= size || memchr(value.at, '\\', len + 1))
        fail("`%s` is longer than %zu bytes or has escapes in it", path, size - 1);
    memcpy(out, value.at + 1, len);
    out[len] = '\0';
}

/* Packets. */

/* The control data of a packet: its descriptors. */
typedef union {
    struct cmsghdr aligned;
    char space[CMSG_SPACE(MAX_DESCRIPTORS * sizeof(int))];
} ControlBuffer;

void connect_coordinator(void)
{
    int domain = 0, type = 0;
    socklen_t size = sizeof domain;
    if (getsockopt(coordinator, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX ||
        getsockopt(coordinator, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_SEQPACKET) {
        fputs("peer: descriptor 0 is not a coordinator's socket; `estafette bench 'process/*-c'` starts this program\n",
              stderr);
        exit(2);
    }
    fcntl(coordinator, F_SETFD, FD_CLOEXEC);
}

/* Receives one packet and its descriptors. Returns the number of descriptors. */
static size_t receive(int descriptors[MAX_DESCRIPTORS])
{
    ControlBuffer control;
    struct iovec text = {incoming, sizeof incoming};
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    size_t count = 0;
    ssize_t got;
    do
        got = recvmsg(coordinator, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got == 0 || (got < 0 && errno == ECONNRESET))
        fail("the coordinator went away");
    if (got < 0)
        fail("receiving a packet: %s", strerror(errno));
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        fail("a packet longer than %d bytes or with over %d descriptors", MAX_PACKET, MAX_DESCRIPTORS);
    incoming_len = (size_t)got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        /* There is at most one such header: the kernel puts all of a packet's descriptors into it. */
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(descriptors, CMSG_DATA(c), count * sizeof(int));
    }
    return count;
}

/* Receives a packet that must have this name. Returns the number of its descriptors. */
static size_t receive_named(const char *name, int descriptors[MAX_DESCRIPTORS])
{
    size_t had = receive(descriptors);
    if (!look_up(name).at)
        fail("expected `%s`, the coordinator said %.*s", name, incoming_len < 200 ? (int)incoming_len : 200, incoming);
    return had;
}

void expect_packet(const char *name, int *descriptors, size_t count)
{
    int control[MAX_DESCRIPTORS];
    size_t had = receive_named(name, control);
    if (had != count)
        fail("`%s` came with %zu descriptors, not %zu", name, had, count);
    if (count > 0)
        memcpy(descriptors, control, count * sizeof(int));
}

int expect_packet_with_option(const char *name)
{
    int control[MAX_DESCRIPTORS];
    size_t had = receive_named(name, control);
    if (had > 1)
        fail("`%s` came with %zu descriptors, not at most one", name, had);
    return had == 1 ? control[0] : -1;
}

void packet_begin(void)
{
    outgoing_len = 0;
}

bool packet_add(const char *format, ...)
{
    va_list arguments;
    size_t capacity = sizeof outgoing - outgoing_len;
    va_start(arguments, format);
    int len = vsnprintf(outgoing + outgoing_len, capacity, format, arguments);
    va_end(arguments);
    if (len < 0 || (size_t)len >= capacity)
        return false;
    outgoing_len += (size_t)len;
    return true;
}

/* Sends the written packet. Returns false and sets errno if that fails. */
static bool transmit(const int *descriptors, size_t count)
{
    ControlBuffer control = {0};
    struct iovec text = {outgoing, outgoing_len};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), descriptors, count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(coordinator, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

void packet_send(const int *descriptors, size_t count)
{
    if (!transmit(descriptors, count))
        fail("sending a packet: %s", strerror(errno));
}

void publish(const char *name, const int *descriptors, size_t count)
{
    packet_begin();
    packet_add("{\"publish\":{\"name\":\"%s\"}}", name);
    packet_send(descriptors, count);
}

void request(const char *name, int *descriptors, size_t count)
{
    packet_begin();
    packet_add("{\"request\":{\"name\":\"%s\"}}", name);
    packet_send(NULL, 0);
    expect_packet("published", descriptors, count);
}

void fail(const char *format, ...)
{
    char why[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    packet_begin();
    packet_add("{\"failed\":{\"error\":\"");
    for (const char *c = why; *c; c++) {
        bool plain = *c >= 0x20 && *c < 0x7f;
        packet_add("%s%c", is_one_of(*c, "\"\\") ? "\\" : "", plain ? *c : '?');
    }
    packet_add("\"}}");
    /* If the coordinator has exited, report the error on stderr. */
    if (!transmit(NULL, 0))
        fprintf(stderr, "peer: %s\n", why);
    exit(1);
}
