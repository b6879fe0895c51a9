// Counts messages. Prints the count every 100,000 messages, and the count and the time at the last
// message.
#include "estafette.h"
#include "message.h"

void estafette_message(uint8_t *message, uint32_t length) { count(message, length); }
