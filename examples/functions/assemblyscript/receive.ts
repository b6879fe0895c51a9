// Counts messages. Prints the count every 100,000 messages, and the count and the time at the last
// message.

import { handle } from "./estafette";
import { count } from "./message";
export { estafette_batch, estafette_buffer } from "./estafette";

handle(count);
