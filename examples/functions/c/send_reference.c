// The same as send.c with the reference's ABI: one call per message.
#include "send_main.h"

__attribute__((import_module("io"), import_name("send_message_to_topic_idx")))
void send_message_to_topic_idx(uint32_t topic, const void *data, uint32_t length);

static void send_all(const uint8_t *message, uint32_t length, uint64_t messages) {
    for (; messages > 0; messages--)
        send_message_to_topic_idx(0, message, length);
}
