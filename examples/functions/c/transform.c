// Converts each message to upper case, and sends it to output topic 0.
#include "estafette.h"

void estafette_message(uint8_t *message, uint32_t length) {
    for (uint32_t index = 0; index < length; index++)
        if (message[index] >= 'a' && message[index] <= 'z')
            message[index] -= 'a' - 'A';
    // The message was changed in place, so no copy is needed.
    estafette_gather(0, message, length);
}
