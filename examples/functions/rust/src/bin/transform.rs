//! Converts each message to upper case, and sends it to output topic 0.

use estafette_guest::Outputs;

estafette_guest::function!(upper_case);

fn upper_case(message: &[u8], outputs: &mut Outputs) {
    outputs.send(0, &message.to_ascii_uppercase());
}

#[cfg(test)]
mod tests {
    use estafette_guest::testing::Harness;

    #[test]
    fn only_ascii_letters_are_changed() {
        let mut harness = Harness::new(super::upper_case);
        harness.batch(&["abc 1".as_bytes(), "ä".as_bytes()]);
        assert_eq!(harness.take_sent(), [(0, b"ABC 1".to_vec()), (0, "ä".as_bytes().to_vec())]);
    }
}
