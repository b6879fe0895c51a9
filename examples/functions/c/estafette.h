// SDK for functions of Estafette pipelines in C: the batched ABI, see docs/flow-abi.md.
//
// A processor defines `estafette_message` and is linked with estafette.c. A sender sends in `main`,
// and needs only this header.
#ifndef ESTAFETTE_H
#define ESTAFETTE_H

#include <stdint.h>

#define ESTAFETTE_IMPORT(name) __attribute__((import_module("estafette"), import_name(name)))
#define ESTAFETTE_EXPORT(name) __attribute__((export_name(name)))

// The result codes of the calls below.
enum estafette_result {
    ESTAFETTE_SENT = 0,
    // The function has no output topic with this index, or no stream to reply on.
    ESTAFETTE_NO_SUCH_TOPIC = 1,
    ESTAFETTE_TOO_LONG = 2,
};

// A message to the output topic with this index in `output.topics`.
struct estafette_outgoing {
    uint32_t topic;
    const void *data;
    uint32_t length;
};

// Sends a message. Blocks while the topic is full.
ESTAFETTE_IMPORT("send")
int32_t estafette_send(uint32_t topic, const void *data, uint32_t length);

// Sends several messages, in order. If the result is not ESTAFETTE_SENT, none was sent.
ESTAFETTE_IMPORT("send_batch")
int32_t estafette_send_batch(const struct estafette_outgoing *list, uint32_t count);

// Sends a reply on the function's input stream.
ESTAFETTE_IMPORT("reply")
int32_t estafette_reply(const void *data, uint32_t length);

// Handles a message. A processor defines this function. It may change the bytes, which are valid
// until the end of the batch.
void estafette_message(uint8_t *message, uint32_t length);

// Sends a message, together with the others of its batch in one call. Its bytes must not change
// until the end of the batch. Traps if the host refuses the message.
void estafette_gather(uint32_t topic, const void *data, uint32_t length);

#endif
