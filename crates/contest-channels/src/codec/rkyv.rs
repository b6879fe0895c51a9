//! `rkyv`: the bytes have the layout of the value in memory and are read in place, so nothing is
//! deserialized. One row validates the bytes, as is necessary for untrusted input; the other does
//! not.
//!
//! Validated bytes can be trusted only while nobody else can write them. A hostile peer can still
//! change bytes in shared memory after the validation.

use std::mem::take;

use ::rkyv::rancor::Error;
use ::rkyv::util::AlignedVec;
use ::rkyv::{access, access_unchecked, api::high::to_bytes_in};
use anyhow::Result;
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::description::spec;
use super::written::{ArchivedWritten, Written};

#[inline(always)]
fn encode(message: &Written, out: &mut AlignedVec) -> Result<()> {
    let mut buffer = take(out);
    buffer.clear();
    *out = to_bytes_in::<_, Error>(message, buffer)?;
    Ok(())
}

#[inline(always)]
fn verify(found: &ArchivedWritten, verifier: &mut Verifier) {
    verifier.message(found.topic.to_native(), &found.data);
}

/// Validates the bytes, then reads them.
#[derive(Default)]
pub(super) struct Rkyv;

impl Codec for Rkyv {
    type Message = Written;
    type Encoded = AlignedVec;

    fn spec() -> Spec {
        spec("rkyv", env!("LOCKED_RKYV"), "rkyv::api::high::to_bytes_in and access, read in place")
            .ownership(Ownership::Loaned)
    }

    fn make(source: &mut Generator) -> Written {
        Written::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Written, out: &mut AlignedVec) -> Result<()> {
        encode(message, out)
    }

    #[inline]
    fn decode(&mut self, encoded: &AlignedVec, verifier: &mut Verifier) -> Result<()> {
        verify(access::<ArchivedWritten, Error>(encoded)?, verifier);
        Ok(())
    }
}

/// Reads the bytes without validation.
#[derive(Default)]
pub(super) struct RkyvUnchecked;

impl Codec for RkyvUnchecked {
    type Message = Written;
    type Encoded = AlignedVec;

    fn spec() -> Spec {
        spec(
            "rkyv-unchecked",
            env!("LOCKED_RKYV"),
            "the same with access_unchecked: for bytes that one has made oneself",
        )
        .ownership(Ownership::Loaned)
        .tier(Tier::Standard)
    }

    fn make(source: &mut Generator) -> Written {
        Written::make(source)
    }

    #[inline]
    fn encode(&mut self, message: &Written, out: &mut AlignedVec) -> Result<()> {
        encode(message, out)
    }

    #[inline]
    #[allow(unsafe_code)]
    fn decode(&mut self, encoded: &AlignedVec, verifier: &mut Verifier) -> Result<()> {
        // SAFETY: this function only gets buffers into which `encode` has written a whole message
        // in this process, and nothing has accessed them since.
        verify(unsafe { access_unchecked::<ArchivedWritten>(encoded) }, verifier);
        Ok(())
    }
}
