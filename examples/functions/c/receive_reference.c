// As receive.c, in the reference's ABI: one call for each message.
#include "message.h"

static uint8_t buffer[1024 * 1024];

// Where the host writes a message.
__attribute__((export_name("buffer_pointer")))
uint8_t *buffer_pointer(void) { return buffer; }

__attribute__((export_name("on_message")))
void on_message(const uint8_t *message, uint32_t length) { count(message, length); }
