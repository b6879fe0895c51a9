//! The lower bound for codecs: one copy of the bytes into the buffer, which are then verified in
//! place. The data comes first, so the copy begins where the buffer does and is aligned.

use anyhow::{Context, Result};
use estafette_measure::message::Message;
use estafette_measure::spec::{Ownership, Standing};
use estafette_measure::{Codec, Generator, Spec, Value, Verifier};

use super::description::spec;

/// The length of the topic after the data, in bytes.
const TOPIC: usize = size_of::<u32>();

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
        let len = message.data.len();
        // Changes the length only for the first message.
        out.resize(len + TOPIC, 0);
        out[..len].copy_from_slice(&message.data);
        out[len..].copy_from_slice(&message.topic.to_le_bytes());
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let (data, topic) = encoded.split_last_chunk::<TOPIC>().context("the bytes are too short for a topic")?;
        verifier.message(u32::from_le_bytes(*topic), data);
        Ok(())
    }
}
