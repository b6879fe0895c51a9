// Sends N messages of one size to output topic 0, then a last one.
//
// Arguments: the number of messages and the size of each in bytes, as ["1000000", "1000"].

import { flush, send } from "./estafette";
import { LAST_MARK, MARK, setMark } from "./message";
import { args, fail, now, print } from "./wasi";

// The maximum number of bytes per call, unless a single message is longer.
const BYTES_PER_CALL: u32 = 256 * 1024;

function number(text: string): u64 {
  for (let index = 0; index < text.length; index++) {
    const digit = text.charCodeAt(index);
    if (digit < 0x30 || digit > 0x39) return 0;
  }
  return text.length > 0 ? U64.parseInt(text) : 0;
}

// Fills the message with random bytes: xorshift, seeded by the clock.
function fill(message: usize, length: u32): void {
  let state = now() | 1;
  for (let index: u32 = 0; index < length; index++) {
    if (index % 8 == 0) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
    }
    store<u8>(message + index, <u8>(state >> ((index % 8) * 8)));
  }
}

function sendAll(message: usize, size: u32, messages: u64): void {
  const perCall = max<u32>(BYTES_PER_CALL / size, 1);
  for (let index: u64 = 1; index <= messages; index++) {
    send(0, message, size);
    if (index % perCall == 0) flush();
  }
  flush();
}

const list = args();
let messages = list.length == 2 ? number(list[0]) : 0;
const size = list.length == 2 ? number(list[1]) : 0;
if (messages == 0 || size == 0 || size > <u64>i32.MAX_VALUE) {
  fail("send: args must be two numbers from 1: the messages and the bytes of each");
}
const message = heap.alloc(<usize>size);
fill(message, <u32>size);
setMark(message, <u32>size, MARK);
const start = now();
sendAll(message, <u32>size, messages);
setMark(message, <u32>size, LAST_MARK);
sendAll(message, <u32>size, 1);
const ms = (now() - start) / 1000000;
messages++;
print("Sent " + messages.toString() + " messages in " + ms.toString() + " ms");
const speed = (messages * size * 1000) / max<u64>(ms, 1) / 1024 / 1024;
print("Message size " + size.toString() + " speed " + speed.toString() + " MiB/s");
