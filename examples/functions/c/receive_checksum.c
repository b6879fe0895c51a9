// Checks and counts messages. Reports a wrong checksum, then traps.
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
