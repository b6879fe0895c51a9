//! Checks and counts messages. Reports a wrong checksum, then traps.

use estafette_example_functions::{has_checksum, Counter};

estafette_guest::function!({
    let mut counter = Counter::default();
    move |message, _| {
        assert!(has_checksum(message), "Message {} has a wrong checksum", counter.messages() + 1);
        counter.count(message);
    }
});
