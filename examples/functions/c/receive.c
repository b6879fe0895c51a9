// Counts messages; prints the count each 100,000, and count and time at the last message.
#include "estafette.h"
#include "message.h"

void estafette_message(uint8_t *message, uint32_t length) { count(message, length); }
