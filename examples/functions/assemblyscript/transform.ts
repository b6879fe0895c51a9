// Converts each message to upper case, and sends it to output topic 0.

import { handle, send } from "./estafette";
export { estafette_batch, estafette_buffer } from "./estafette";

handle((message, length) => {
  for (let at = message; at < message + length; at++) {
    const letter = load<u8>(at);
    if (letter >= 0x61 && letter <= 0x7a) store<u8>(at, letter - 0x20);
  }
  // The message was changed in place, so no copy is needed.
  send(0, message, length);
});
