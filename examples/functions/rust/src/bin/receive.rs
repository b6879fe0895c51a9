//! Counts messages. Prints the count every 100,000 messages, and the count and the time at the last
//! message.

use estafette_example_functions::Counter;

estafette_guest::function!({
    let mut counter = Counter::default();
    move |message, _| counter.count(message)
});
