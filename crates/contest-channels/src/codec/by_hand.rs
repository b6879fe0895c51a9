//! A layout by hand: the topic in little-endian order, then a copy of the data. It shows in four
//! lines what a codec of this message has to do.

use anyhow::{Context, Result};
use estafette_contest_common::typed;
use estafette_measure::message::Message;
use estafette_measure::{Codec, Generator, Spec, Value, Verifier};

use super::description::spec;

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
        let (topic, data) = typed::ByHand::parts(encoded).context("the bytes are too short for a topic")?;
        Message { topic, data: data.to_vec() }.check(verifier);
        Ok(())
    }
}
