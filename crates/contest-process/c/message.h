/*
 * Messages with deterministic content, so that both ends can compute, write, read and verify every
 * byte.
 *
 * The format is described, with test vectors, in docs/child-protocol.md. This file contains the
 * part that one producer and one consumer on an ordered stream need. The Rust original is
 * crates/measure/src/message.
 */
#ifndef MESSAGE_H
#define MESSAGE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MULTIPLIER UINT64_C(0x9E3779B97F4A7C15)
#define INVERSE UINT64_C(0xF1DE83E19937733D)
/* The difference of the tags of consecutive sequence numbers, before the seed is mixed in. */
#define NEXT (MULTIPLIER << 1)
#define SEQUENCE_BITS 36
#define PRODUCER_BITS 11
#define MAX_MESSAGES (UINT64_C(1) << SEQUENCE_BITS)

_Static_assert(MULTIPLIER * INVERSE == 1, "each undoes the other modulo 2^64");

/* The tag of a message before the seed is mixed in. */
static inline uint64_t unseeded_tag(uint64_t producer, uint64_t sequence, bool end)
{
    return (producer << (SEQUENCE_BITS + 1) | sequence << 1 | end) * MULTIPLIER;
}

/* The step from word to word of a message. */
static inline uint64_t step_of(uint64_t tag, uint64_t key)
{
    unsigned __int128 product = (unsigned __int128)(tag ^ key) * ((key << 32 | key >> 32) | 1);
    return ((uint64_t)(product >> 64) ^ (uint64_t)product) | 1;
}

/* Writes one producer's messages, in sequence. */
typedef struct {
    uint64_t next; /* the next tag, before the seed is mixed in */
    uint64_t seed;
    uint64_t key; /* what bodies are made with */
    uint64_t producer;
    uint64_t made;
} Generator;

static inline Generator generator(uint64_t seed, uint64_t secret, uint64_t producer)
{
    return (Generator){.next = unseeded_tag(producer, 0, false),
                       .seed = seed,
                       .key = secret * MULTIPLIER,
                       .producer = producer};
}

/* Makes the next message the end mark of the stream. It carries the number of messages before it. */
static inline void generator_end(Generator *g)
{
    g->next = unseeded_tag(g->producer, g->made, true);
}

/* Writes every byte of the next message. */
static inline void fill(Generator *g, unsigned char *out, size_t len)
{
    uint64_t word = g->next ^ g->seed, step = step_of(word, g->key), bytes;
    size_t words = len / 8;
    for (size_t i = 0; i < words; i++) {
        bytes = htole64(word);
        memcpy(out + 8 * i, &bytes, 8);
        word += step;
    }
    bytes = htole64(word);
    memcpy(out + 8 * words, &bytes, len % 8);
    g->next += NEXT;
    g->made++;
}

/* Makes the next message if messages have no bytes. Returns whether it is the end mark. */
static inline bool pulse(Generator *g)
{
    /* The multiplier is odd, so a tag keeps the lowest bit of its input, which is `end`. */
    bool end = g->next & 1;
    g->next += NEXT;
    g->made++;
    return end;
}

/* Verifies the messages of producer 0 as they arrive and counts faults. */
typedef struct {
    uint64_t expected; /* the tag expected next, before the seed is mixed in */
    uint64_t seed;
    uint64_t key; /* what bodies are made with */
    uint64_t received;
    uint64_t skipped; /* received + skipped is the sequence number expected next */
    uint64_t duplicated, damaged;
    uint64_t announced;
    bool ended; /* the end mark has arrived, and `announced` is its count; or a message was damaged */
} Verifier;

static inline Verifier verifier(uint64_t seed, uint64_t secret)
{
    return (Verifier){.seed = seed, .key = secret * MULTIPLIER};
}

/* Handles everything but the next message: the end mark, damage, and what an ordered stream should
 * never do. */
__attribute__((noinline)) static void unexpected(Verifier *v, const unsigned char *message, size_t len, uint64_t tag,
                                                 bool whole)
{
    uint64_t next = v->received + v->skipped, sequence;
    bool end;
    if (len < 8) {
        /* The first bytes of a tag do not identify the message: it is the next one, or the end
         * mark, or neither. */
        uint64_t mark = htole64(unseeded_tag(0, next, true) ^ v->seed);
        end = memcmp(message, &mark, len) == 0;
        sequence = next;
        if (!end) {
            v->damaged++;
            v->ended = true;
            return;
        }
    } else {
        uint64_t raw = (tag ^ v->seed) * INVERSE;
        end = raw & 1;
        sequence = raw >> 1;
        if (!whole || sequence >= MAX_MESSAGES) {
            /* What damages one message may damage all, the end mark too. */
            v->damaged++;
            v->ended = true;
            return;
        }
        if (!end && sequence < next) {
            v->duplicated++;
        } else if (!end) {
            v->skipped += sequence - next;
            v->received++;
        }
    }
    if (end) {
        v->ended = true;
        v->announced = sequence;
    }
    v->expected = unseeded_tag(0, v->received + v->skipped, false);
}

/* Reads and verifies every byte of a message. */
static inline void check(Verifier *v, const unsigned char *message, size_t len)
{
    uint64_t tag = v->expected ^ v->seed, word, bytes = 0, wrong = 0;
    size_t words = len / 8;
    if (words > 0) {
        memcpy(&bytes, message, 8);
        tag = le64toh(bytes);
    }
    uint64_t step = step_of(tag, v->key);
    word = tag;
    for (size_t i = 0; i < words; i++) {
        memcpy(&bytes, message + 8 * i, 8);
        wrong |= le64toh(bytes) ^ word;
        word += step;
    }
    bytes = htole64(word);
    bool whole = wrong == 0 && memcmp(message + 8 * words, &bytes, len % 8) == 0;
    if (whole && (tag ^ v->seed) == v->expected) {
        v->expected += NEXT;
        v->received++;
    } else {
        unexpected(v, message, len, tag, whole);
    }
}

/* Counts a message that has no bytes. */
static inline void count_pulse(Verifier *v)
{
    v->received++;
}

/* Records that the stream ended after `announced` messages without bytes. */
static inline void last_pulse(Verifier *v, uint64_t announced)
{
    v->ended = true;
    v->announced = announced;
}

/* Returns the number of messages that were sent, as far as is known, and never received. */
static inline uint64_t lost(const Verifier *v)
{
    uint64_t sent = v->received + v->skipped;
    if (v->ended && v->damaged == 0 && v->announced > sent)
        sent = v->announced;
    return sent - v->received;
}

#endif
