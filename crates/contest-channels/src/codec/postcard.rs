//! `postcard` with serde: variable-length integers. The current `ipc-channel` serializes values
//! with it.

use std::marker::PhantomData;
use std::mem::take;

use anyhow::Result;
use estafette_contest_common::typed::Shape;
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::{spec, variant};

pub(super) struct Postcard<M>(PhantomData<M>);

impl<M> Default for Postcard<M> {
    fn default() -> Postcard<M> {
        Postcard(PhantomData)
    }
}

impl<M: Shape> Codec for Postcard<M> {
    type Message = M;
    type Encoded = Vec<u8>;

    fn spec() -> Spec {
        spec(
            &variant::<M>("postcard", ""),
            env!("LOCKED_POSTCARD"),
            &format!("postcard::to_extend and from_bytes of {}", M::TYPE),
        )
    }

    fn make(source: &mut Generator) -> M {
        M::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &M, out: &mut Vec<u8>) -> Result<()> {
        let mut buffer = take(out);
        buffer.clear();
        *out = ::postcard::to_extend(message, buffer)?;
        Ok(())
    }

    #[inline]
    fn decode(&mut self, encoded: &Vec<u8>, verifier: &mut Verifier) -> Result<()> {
        ::postcard::from_bytes::<M>(encoded)?.check(verifier);
        Ok(())
    }
}
