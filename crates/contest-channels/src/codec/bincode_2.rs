//! `bincode` 2 in its standard configuration, with variable-length integers: through its own
//! traits, which treat bytes differently from other numbers, and through serde.
//!
//! Without a configured limit it allocates as many bytes as the message claims before it checks
//! that they exist.

use std::marker::PhantomData;

use anyhow::Result;
use bincode_2::config::standard;
use estafette_contest_common::typed::Shape;
use estafette_measure::spec::Tier;
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::{spec, variant};
use super::written::Written;

/// Uses the library's own traits.
#[derive(Default)]
pub(super) struct Bincode2;

impl Codec for Bincode2 {
    type Message = Written;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec(
            "bincode-2",
            env!("LOCKED_BINCODE_2"),
            "bincode::encode_into_std_write and decode_from_slice, its own derive",
        )
    }

    fn make(source: &mut Generator) -> Written {
        Written::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Written, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        bincode_2::encode_into_std_write(message, out, standard())?;
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        let (Written { topic, data }, _) = bincode_2::decode_from_slice(encoded, standard())?;
        verifier.message(topic, &data);
        Ok(())
    }
}

/// Uses serde.
pub(super) struct Bincode2Serde<M>(PhantomData<M>);

impl<M> Default for Bincode2Serde<M> {
    fn default() -> Bincode2Serde<M> {
        Bincode2Serde(PhantomData)
    }
}

impl<M: Shape> Codec for Bincode2Serde<M> {
    type Message = M;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        let implementation = format!("bincode::serde::encode_into_std_write and decode_from_slice of {}", M::TYPE);
        spec(&variant::<M>("bincode-2", ".serde"), env!("LOCKED_BINCODE_2"), &implementation).tier(Tier::Standard)
    }

    fn make(source: &mut Generator) -> M {
        M::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        bincode_2::serde::encode_into_std_write(message, out, standard())?;
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        bincode_2::serde::decode_from_slice::<M, _>(encoded, standard())?.0.check(verifier);
        Ok(())
    }
}
