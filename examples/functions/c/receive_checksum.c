// Checks the checksum of each message and counts them; a wrong one is reported, then it traps.
#include "estafette.h"
#include "message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

void estafette_message(uint8_t *message, uint32_t length) {
    if (!has_checksum(message, length)) {
        fprintf(stderr, "Message %" PRIu64 " has a wrong checksum\n", counted() + 1);
        abort();
    }
    count(message, length);
}
