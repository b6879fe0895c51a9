//! `wincode`: the format of `bincode` 1, through its own traits that initialise values in place.

use ::wincode::io::Cursor;
use anyhow::Result;
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::spec;
use super::written::Written;

/// The default maximum of bytes that it allocates for one vector.
const MAX_ALLOCATION: usize = 4 << 20;

#[derive(Default)]
pub(super) struct Wincode;

impl Codec for Wincode {
    type Message = Written;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec("wincode", env!("LOCKED_WINCODE"), "wincode::serialize_into and deserialize, its own derive")
            .max_message(MAX_ALLOCATION)
    }

    fn make(source: &mut Generator) -> Written {
        Written::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Written, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        Ok(::wincode::serialize_into(Cursor::new(out), message)?)
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let Written { topic, data } = ::wincode::deserialize(encoded)?;
        verifier.message(topic, &data);
        Ok(())
    }
}
