//! The lower bound for codecs: one copy of the bytes into the buffer, which are then verified in
//! place.

use anyhow::{Context, Result};
use estafette_contest_common::typed::ByHand;
use estafette_measure::message::Message;
use estafette_measure::spec::{Ownership, Standing};
use estafette_measure::{Codec, Generator, Spec, Value, Verifier};

use super::spec;

/// The length of a message before its data, in bytes.
const HEAD: usize = size_of::<u32>();

#[derive(Default)]
pub(super) struct LimitCopy;

impl Codec for LimitCopy {
    type Message = Message;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec("limit-copy", env!("CARGO_PKG_VERSION"), "topic and data copied once and checked in place")
            .ownership(Ownership::Loaned)
            .standing(Standing::Reference)
    }

    fn make(source: &mut Generator) -> Message {
        Message::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<()> {
        // Changes the length only for the first message.
        out.resize(HEAD + message.data.len(), 0);
        out[..HEAD].copy_from_slice(&message.topic.to_le_bytes());
        out[HEAD..].copy_from_slice(&message.data);
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let (topic, data) = ByHand::parts(encoded).context("the bytes are too short for a topic")?;
        verifier.message(topic, data);
        Ok(())
    }
}
