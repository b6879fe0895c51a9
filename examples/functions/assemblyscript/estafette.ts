// SDK for functions of Estafette pipelines in AssemblyScript: the batched ABI, see
// docs/flow-abi.md.
//
// A processor passes its handler to `handle`, and exports `estafette_buffer` and `estafette_batch`
// from its entry file.

import { trap } from "./wasi";

@external("estafette", "send_batch")
declare function host_send_batch(list: usize, count: u32): i32;
@external("estafette", "reply")
declare function host_reply(data: usize, length: u32): i32;

const HEADER: u32 = 8;

// An entry of the host's list: topic, address, length.
const ENTRY: u32 = 12;
const MAX_GATHERED: u32 = 1024;
const list = memory.data(12 * 1024, 8);
let gathered: u32 = 0;

// Sends a message of `length` bytes, together with the others of its batch in one call. The bytes
// must not change until the end of the batch, or until `flush`. Traps if the host refuses the
// message.
export function send(topic: u32, data: usize, length: u32): void {
  const entry = list + ENTRY * gathered;
  store<u32>(entry, topic);
  store<u32>(entry, <u32>data, 4);
  store<u32>(entry, length, 8);
  gathered++;
  if (gathered == MAX_GATHERED) flush();
}

// Sends all collected messages.
export function flush(): void {
  if (gathered == 0) return;
  const result = host_send_batch(list, gathered);
  if (result == 1) trap("cannot send: no output topic has this index, add it to output.topics");
  if (result != 0) trap("cannot send: the message is longer than max_message of its topic");
  gathered = 0;
}

// Sends a reply on the function's input stream.
export function reply(data: usize, length: u32): void {
  if (host_reply(data, length) != 0) trap("cannot reply: the function is not fed by a stream");
}

// A handler of messages. It may change the bytes, which are valid until the end of the batch.
type Handler = (message: usize, length: u32) => void;
let handler: Handler = () => {};

export function handle(handle: Handler): void {
  handler = handle;
}

let buffer: usize = 0;

// Called by the host. Returns the address of a buffer of at least `capacity` bytes.
export function estafette_buffer(capacity: u32): usize {
  if (buffer) heap.free(buffer);
  buffer = heap.alloc(capacity);
  return buffer;
}

// Called by the host. Passes `count` records to the handler: u32 length, u32 reserved, payload,
// padding to a multiple of 8.
export function estafette_batch(record: usize, bytes: u32, count: u32): void {
  for (; count > 0; count--) {
    const length = load<u32>(record);
    handler(record + HEADER, length);
    record += HEADER + ((length + 7) & ~7);
  }
  flush();
}
