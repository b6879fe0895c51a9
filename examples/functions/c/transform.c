// Passes each message on to output topic 0 in upper case.
#include "estafette.h"

void estafette_message(uint8_t *message, uint32_t length) {
    for (uint32_t index = 0; index < length; index++)
        if (message[index] >= 'a' && message[index] <= 'z')
            message[index] -= 'a' - 'A';
    // It is changed where it lies, so there is nothing to copy.
    estafette_gather(0, message, length);
}
