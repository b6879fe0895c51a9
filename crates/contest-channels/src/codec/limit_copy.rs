//! The least that can be done: one copy of the bytes into the buffer, and a look at them where they lie. What codecs are held
//! against.

use anyhow::{Context, Result};
use estafette_contest_common::typed::ByHand;
use estafette_measure::message::Message;
use estafette_measure::spec::{Ownership, Standing};
use estafette_measure::{Codec, Generator, Spec, Value, Verifier};

use super::spec;

/// What a message takes before its data.
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
        // Of its length already but for the first message.
        out.resize(HEAD + message.data.len(), 0);
        out[..HEAD].copy_from_slice(&message.topic.to_le_bytes());
        out[HEAD..].copy_from_slice(&message.data);
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let (topic, data) = ByHand::parts(encoded).context("there is no topic")?;
        verifier.message(topic, data);
        Ok(())
    }
}
