//! Passes each message on to output topic 0 in upper case.

use estafette_guest::Outputs;

estafette_guest::function!(upper_case);

fn upper_case(message: &[u8], outputs: &mut Outputs) {
    outputs.send(0, &message.to_ascii_uppercase());
}

#[cfg(test)]
mod tests {
    use estafette_guest::testing::Harness;

    #[test]
    fn letters_are_raised_and_the_rest_is_kept() {
        let mut harness = Harness::new(super::upper_case);
        harness.batch(&["abc 1".as_bytes(), "ä".as_bytes()]);
        assert_eq!(harness.take_sent(), [(0, b"ABC 1".to_vec()), (0, "ä".as_bytes().to_vec())]);
    }
}
