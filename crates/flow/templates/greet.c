// Greets each message: `7` becomes `Hello, message 7`.

#include <stdint.h>

static const char GREETING[] = "Hello, message ";
static const uint32_t GREETING_LENGTH = sizeof GREETING - 1;

// Sends a message to the output topic with this index. 0 means that it is sent.
__attribute__((import_module("estafette"), import_name("send")))
int32_t estafette_send(uint32_t topic, const void *data, uint32_t length);

// A message is put together here. There is no library: the memory behind the program's own is ours.
static uint8_t *output;

// What the function does: this is the part to change.
static void handle(const uint8_t *message, uint32_t length) {
    __builtin_memcpy(output, GREETING, GREETING_LENGTH);
    __builtin_memcpy(output + GREETING_LENGTH, message, length);
    if (estafette_send(0, output, GREETING_LENGTH + length) != 0)
        __builtin_trap();
}

extern uint8_t __heap_base;

static uint32_t aligned(uint32_t address) { return (address + 7) & ~7u; }

// The host asks for a place of so many bytes. The output is behind it.
__attribute__((export_name("estafette_buffer")))
uint32_t estafette_buffer(uint32_t capacity) {
    uint32_t input = aligned((uint32_t)&__heap_base);
    output = (uint8_t *)aligned(input + capacity);
    uint32_t end = (uint32_t)output + capacity + GREETING_LENGTH;
    uint32_t pages = (end + 65535) / 65536, present = __builtin_wasm_memory_size(0);
    if (pages > present && __builtin_wasm_memory_grow(0, pages - present) == (__SIZE_TYPE__)-1)
        __builtin_trap();
    return input;
}

// The host has written `count` messages there: each is its length in 4 bytes, 4 bytes to be ignored,
// and its bytes, filled up to a multiple of 8.
__attribute__((export_name("estafette_batch")))
void estafette_batch(const uint8_t *record, uint32_t length, uint32_t count) {
    (void)length;
    for (; count > 0; count--) {
        uint32_t size = *(const uint32_t *)record;
        handle(record + 8, size);
        record += 8 + aligned(size);
    }
}
