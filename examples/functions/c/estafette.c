// The functions that the host calls to deliver batches to a processor.
#include "estafette.h"

#include <stdlib.h>

enum {
    HEADER = 8,
    MAX_GATHERED = 1024,
};

static uint8_t *buffer;

static struct estafette_outgoing gathered[MAX_GATHERED];
static uint32_t gathered_count;

// Called by the host. Returns the address of a buffer of at least `capacity` bytes, or 0 if there
// is no memory for it.
ESTAFETTE_EXPORT("estafette_buffer")
uint8_t *estafette_buffer(uint32_t capacity) {
    free(buffer);
    // malloc returns multiples of 16.
    buffer = malloc(capacity);
    return buffer;
}

static void flush(void) {
    if (gathered_count > 0 && estafette_send_batch(gathered, gathered_count) != ESTAFETTE_SENT)
        abort();
    gathered_count = 0;
}

void estafette_gather(uint32_t topic, const void *data, uint32_t length) {
    gathered[gathered_count++] = (struct estafette_outgoing){topic, data, length};
    if (gathered_count == MAX_GATHERED)
        flush();
}

// Called by the host. Passes `count` records to the handler: u32 length, u32 reserved, payload,
// padding to a multiple of 8.
ESTAFETTE_EXPORT("estafette_batch")
void estafette_batch(uint8_t *record, uint32_t bytes, uint32_t count) {
    (void)bytes;
    for (; count > 0; count--) {
        uint32_t length = *(const uint32_t *)record;
        estafette_message(record + HEADER, length);
        record += HEADER + ((length + 7) & ~7u);
    }
    flush();
}
