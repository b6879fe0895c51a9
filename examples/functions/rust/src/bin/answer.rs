//! Answers each message of a stream in upper case, and passes it on to output topic 0 as it was.

use estafette_guest::Outputs;

estafette_guest::function!(answer);

fn answer(message: &[u8], outputs: &mut Outputs) {
    outputs.reply(&message.to_ascii_uppercase());
    outputs.send(0, message);
}

#[cfg(test)]
mod tests {
    use estafette_guest::testing::Harness;

    #[test]
    fn a_message_is_answered_and_passed_on() {
        let mut harness = Harness::new(super::answer);
        harness.message(b"hello");
        assert_eq!(harness.take_replies(), [b"HELLO".to_vec()]);
        assert_eq!(harness.take_sent(), [(0, b"hello".to_vec())]);
    }
}
