//! `bincode` 1 with serde: integers of a fixed width. `ipc-channel` serialized values with it in
//! the version that `ipc-channel-throughput` used.

use std::marker::PhantomData;

use anyhow::Result;
use estafette_contest_common::typed::Shape;
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::{spec, variant};

pub(super) struct Bincode1<M>(PhantomData<M>);

impl<M> Default for Bincode1<M> {
    fn default() -> Bincode1<M> {
        Bincode1(PhantomData)
    }
}

impl<M: Shape> Codec for Bincode1<M> {
    type Message = M;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec(
            &variant::<M>("bincode-1", ""),
            env!("LOCKED_BINCODE_1"),
            &format!("bincode::serialize_into and deserialize of {}", M::TYPE),
        )
    }

    fn make(source: &mut Generator) -> M {
        M::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        Ok(bincode_1::serialize_into(out, message)?)
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        bincode_1::deserialize::<M>(encoded)?.check(verifier);
        Ok(())
    }
}
