// Counts messages; prints the count each 100,000, and count and time at the last message.

import { handle } from "./estafette";
import { count } from "./message";
export { estafette_batch, estafette_buffer } from "./estafette";

handle(count);
