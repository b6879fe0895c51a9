// Checks and counts messages. Reports a wrong checksum, then traps.

import { handle } from "./estafette";
import { count, hasChecksum, messages } from "./message";
import { trap } from "./wasi";
export { estafette_batch, estafette_buffer } from "./estafette";

handle((message, length) => {
  if (!hasChecksum(message, length)) {
    trap("Message " + (messages + 1).toString() + " has a wrong checksum");
  }
  count(message, length);
});
