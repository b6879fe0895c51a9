// Counts messages. Prints the count every 100,000 messages, and the count and the time at the last
// message.

import { LAST_MARK } from "./message.js";

let count = 0;
let begin;

export function start() {}

export function handle(messages) {
  for (const message of messages) receive(message);
  return [];
}

function receive(message) {
  begin ??= performance.now();
  count++;
  if (message[0] === LAST_MARK) {
    console.log(`Processed ${count} messages in ${Math.floor(performance.now() - begin)} ms`);
  } else if (count % 100_000 === 0) {
    console.log(`Processed ${count} messages`);
  }
}
