// Sends N messages of one size to output topic 0, then a last one.
//
// Arguments: the number of messages and the size of each in bytes, as ["1000000", "1000"].
#include "estafette.h"
#include "send_main.h"

enum {
    BYTES_PER_CALL = 256 * 1024,
    MESSAGES_PER_CALL = 512,
};

static struct estafette_outgoing list[MESSAGES_PER_CALL];

static void send_all(const uint8_t *message, uint32_t length, uint64_t messages) {
    uint32_t per_call = BYTES_PER_CALL / length;
    per_call = per_call < 1 ? 1 : per_call > MESSAGES_PER_CALL ? MESSAGES_PER_CALL : per_call;
    for (uint32_t index = 0; index < per_call; index++)
        list[index] = (struct estafette_outgoing){0, message, length};
    for (; messages > 0; messages -= per_call) {
        if (messages < per_call)
            per_call = (uint32_t)messages;
        if (estafette_send_batch(list, per_call) != ESTAFETTE_SENT)
            fail("the host refused a message: is there a topic, is the message too long for it?");
    }
}
