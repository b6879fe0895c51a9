/*
 * The child protocol: JSON packets with optional descriptors, to and from the coordinator on
 * descriptor 0.
 *
 * docs/child-protocol.md describes it. Every failure in these functions ends the process through
 * `fail`.
 */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROTOCOL_VERSION = 4, MAX_PACKET = 160 * 1024, MAX_DESCRIPTORS = 16 };

/* Checks that descriptor 0 is a coordinator's socket. */
void connect_coordinator(void);

/* Waits for the next packet, which must have this name and exactly `count` descriptors. */
void expect_packet(const char *name, int *descriptors, size_t count);
/* As `expect_packet`, for a packet with at most one descriptor. Returns it, or -1. */
int expect_packet_with_option(const char *name);

/* Read the packet received last, under a path such as `assignment.cpus.0`: whether there is a value
 * other than null, a whole number of at most `max`, and a string without escapes. A missing or
 * different value is fatal. */
bool packet_has(const char *path);
uint64_t packet_number(const char *path, uint64_t max);
void packet_text(const char *path, char *out, size_t size);

/* Write a packet: begin it, add its parts, send it. `packet_add` returns whether the part fits. */
void packet_begin(void);
__attribute__((format(printf, 1, 2))) bool packet_add(const char *format, ...);
void packet_send(const int *descriptors, size_t count);

/* Pass descriptors to the other side under a name; wait for the descriptors that it passes. */
void publish(const char *name, const int *descriptors, size_t count);
void request(const char *name, int *descriptors, size_t count);

/* Reports an error to the coordinator and exits. */
__attribute__((format(printf, 1, 2))) _Noreturn void fail(const char *format, ...);

#endif
