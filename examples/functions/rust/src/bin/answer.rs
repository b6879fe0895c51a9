//! Replies to each message of a stream in upper case, and sends the original to output topic 0.

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
    fn a_message_gets_a_reply_and_is_forwarded() {
        let mut harness = Harness::new(super::answer);
        harness.message(b"hello");
        assert_eq!(harness.take_replies(), [b"HELLO".to_vec()]);
        assert_eq!(harness.take_sent(), [(0, b"hello".to_vec())]);
    }
}
