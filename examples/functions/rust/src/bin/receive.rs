//! Counts messages; prints the count each 100,000, and count and time at the last message.

use estafette_example_functions::Counter;

estafette_guest::function!({
    let mut counter = Counter::default();
    move |message, _| counter.count(message)
});
