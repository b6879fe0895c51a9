// The same as receive.c with the reference's ABI: one call per message.
#include "message.h"

static uint8_t buffer[1024 * 1024];

// The address to which the host writes each message.
__attribute__((export_name("buffer_pointer")))
uint8_t *buffer_pointer(void) { return buffer; }

__attribute__((export_name("on_message")))
void on_message(const uint8_t *message, uint32_t length) { count(message, length); }
