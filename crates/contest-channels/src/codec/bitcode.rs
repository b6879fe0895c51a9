//! `bitcode`: packed fields in columns, through its own traits, which reuse buffers, and through
//! serde.

use std::marker::PhantomData;

use ::bitcode::Buffer;
use anyhow::Result;
use estafette_contest_common::typed::Shape;
use estafette_measure::spec::Tier;
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::{spec, variant};
use super::written::Written;

/// Uses the library's own traits.
#[derive(Default)]
pub(super) struct Bitcode(Buffer);

impl Codec for Bitcode {
    type Message = Written;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec("bitcode", env!("LOCKED_BITCODE"), "bitcode::Buffer, encode and decode, its own derive")
    }

    fn make(source: &mut Generator) -> Written {
        Written::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Written, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        // The codec encodes into its own buffer. `bitcode::encode`, which returns a new one, would
        // allocate all its memory for each message.
        out.extend_from_slice(self.0.encode(message));
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let Written { topic, data } = self.0.decode(encoded)?;
        verifier.message(topic, &data);
        Ok(())
    }
}

/// Uses serde.
pub(super) struct BitcodeSerde<M>(PhantomData<M>);

impl<M> Default for BitcodeSerde<M> {
    fn default() -> BitcodeSerde<M> {
        BitcodeSerde(PhantomData)
    }
}

impl<M: Shape> Codec for BitcodeSerde<M> {
    type Message = M;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        let implementation = format!("bitcode::serialize and deserialize of {}", M::TYPE);
        spec(&variant::<M>("bitcode", ".serde"), env!("LOCKED_BITCODE"), &implementation).tier(Tier::Standard)
    }

    fn make(source: &mut Generator) -> M {
        M::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<()> {
        *out = ::bitcode::serialize(message)?;
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        ::bitcode::deserialize::<M>(encoded)?.check(verifier);
        Ok(())
    }
}
