// Passes each message on to output topic 0 in upper case.

import { handle, send } from "./estafette";
export { estafette_batch, estafette_buffer } from "./estafette";

handle((message, length) => {
  for (let at = message; at < message + length; at++) {
    const letter = load<u8>(at);
    if (letter >= 0x61 && letter <= 0x7a) store<u8>(at, letter - 0x20);
  }
  // It is changed where it lies, so there is nothing to copy.
  send(0, message, length);
});
