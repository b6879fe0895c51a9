//! A layout by hand: the topic, little-endian, and the data copied behind it. What a codec of this message has to do, written
//! down in four lines.

use anyhow::{Context, Result};
use estafette_contest_common::typed;
use estafette_measure::message::Message;
use estafette_measure::{Codec, Generator, Spec, Value, Verifier};

use super::spec;

#[derive(Default)]
pub(super) struct ByHand;

impl Codec for ByHand {
    type Message = Message;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec("by-hand", env!("CARGO_PKG_VERSION"), "topic and data copied into a vector, and out of it")
    }

    fn make(source: &mut Generator) -> Message {
        Message::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Message, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        out.extend_from_slice(&message.topic.to_le_bytes());
        out.extend_from_slice(&message.data);
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let (topic, data) = typed::ByHand::parts(encoded).context("there is no topic")?;
        Message { topic, data: data.to_vec() }.check(verifier);
        Ok(())
    }
}
