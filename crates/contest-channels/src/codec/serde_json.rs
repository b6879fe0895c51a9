//! `serde_json`: text, for comparison. JSON has no bytes, so both rows write numbers.

use std::marker::PhantomData;

use anyhow::Result;
use estafette_contest_common::typed::Shape;
use estafette_measure::spec::Tier;
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::{spec, variant};

pub(super) struct SerdeJson<M>(PhantomData<M>);

impl<M> Default for SerdeJson<M> {
    fn default() -> SerdeJson<M> {
        SerdeJson(PhantomData)
    }
}

impl<M: Shape> Codec for SerdeJson<M> {
    type Message = M;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec(
            &variant::<M>("serde-json", ""),
            env!("LOCKED_SERDE_JSON"),
            &format!("serde_json::to_writer and from_slice of {}", M::TYPE),
        )
        .tier(if M::NAME == "plain" { Tier::Suite } else { Tier::Standard })
    }

    fn make(source: &mut Generator) -> M {
        M::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        Ok(::serde_json::to_writer(out, message)?)
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        ::serde_json::from_slice::<M>(encoded)?.check(verifier);
        Ok(())
    }
}
