/*
 * The child protocol: packets of JSON, and descriptors beside them, to and from the coordinator on descriptor 0.
 *
 * docs/child-protocol.md describes it. Everything here that can go wrong ends the process through `fail`.
 */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROTOCOL_VERSION = 1, MAX_PACKET = 160 * 1024, MAX_DESCRIPTORS = 16 };

/* Makes sure that descriptor 0 is a coordinator's socket. */
void connect_coordinator(void);

/* Waits for the packet of this name, with exactly so many descriptors beside it. */
void hear(const char *name, int *descriptors, size_t count);

/* What the packet last heard holds under a path such as `assignment.cpus.0`: whether there is anything but null, a
 * whole number of at most `max`, and a string without escapes. What is missing or different is fatal. */
bool heard_any(const char *path);
uint64_t heard_number(const char *path, uint64_t max);
void heard_text(const char *path, char *out, size_t size);

/* A packet to send: begun, written piece by piece, sent. `packet_add` says whether there was room. */
void packet_begin(void);
__attribute__((format(printf, 1, 2))) bool packet_add(const char *format, ...);
void packet_send(const int *descriptors, size_t count);

/* Hands descriptors to the other side under a name; waits for those that it hands over. */
void offer(const char *name, const int *descriptors, size_t count);
void want(const char *name, int *descriptors, size_t count);

/* Tells the coordinator what went wrong, and ends. */
__attribute__((format(printf, 1, 2))) _Noreturn void fail(const char *format, ...);

#endif
