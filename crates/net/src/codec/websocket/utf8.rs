//! Incremental UTF-8 validation, which fails at the first byte that makes the text invalid.

/// The state between two pieces: the start of an incomplete character.
#[derive(Debug, Default)]
pub(crate) struct Utf8 {
    begun: [u8; 4],
    len: usize,
}

/// The bytes are not valid UTF-8.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invalid;

impl Utf8 {
    /// Validates the next piece.
    pub(crate) fn feed(&mut self, mut piece: &[u8]) -> Result<(), Invalid> {
        while self.len > 0 {
            let Some((first, rest)) = piece.split_first() else { return Ok(()) };
            self.begun[self.len] = *first;
            self.len += 1;
            piece = rest;
            match std::str::from_utf8(&self.begun[..self.len]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_some() => return Err(Invalid),
                Err(_) => {}
            }
        }
        if let Err(error) = std::str::from_utf8(piece) {
            if error.error_len().is_some() {
                return Err(Invalid);
            }
            let begun = &piece[error.valid_up_to()..];
            self.begun[..begun.len()].copy_from_slice(begun);
            self.len = begun.len();
        }
        Ok(())
    }

    /// Ends the text, and resets the state.
    pub(crate) fn finish(&mut self) -> Result<(), Invalid> {
        if std::mem::take(&mut self.len) == 0 { Ok(()) } else { Err(Invalid) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The index of the byte at which validation fails, if each piece has one byte.
    fn fails_at(bytes: &[u8]) -> Option<usize> {
        let mut state = Utf8::default();
        bytes.iter().position(|byte| state.feed(&[*byte]).is_err())
    }

    #[test]
    fn validation_fails_at_the_first_byte_that_makes_the_text_invalid() {
        // A surrogate, more than U+10FFFF, an overlong encoding, a lone continuation byte.
        assert_eq!(fails_at(&[0xed, 0xa0, 0x80]), Some(1));
        assert_eq!(fails_at(&[0xf4, 0x90, 0x80, 0x80]), Some(1));
        assert_eq!(fails_at(&[b'a', 0xc0, 0xaf]), Some(1));
        assert_eq!(fails_at(&[0x80]), Some(0));
    }

    proptest! {
        #[test]
        fn pieces_are_validated_like_the_whole_text(
            text in "\\PC{0,20}", noise in prop::collection::vec(any::<u8>(), 0..3), cuts in prop::collection::vec(0_usize..60, 0..5),
        ) {
            let mut bytes = text.into_bytes();
            bytes.extend_from_slice(&noise);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let mut state = Utf8::default();
            let judged = cuts.windows(2).try_for_each(|cut| state.feed(&bytes[cut[0]..cut[1]])).and_then(|()| state.finish());
            prop_assert_eq!(judged.is_ok(), std::str::from_utf8(&bytes).is_ok());
        }
    }
}
