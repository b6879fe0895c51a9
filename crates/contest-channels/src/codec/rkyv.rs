//! `rkyv`: the bytes are laid out as the value is in memory, and read where they lie, so nothing is made anew. With the checks
//! that bytes from elsewhere need, and without.
//!
//! Checked bytes can be trusted only while nobody else can write to them: in memory that a hostile peer shares, what was
//! checked can still change.

use std::mem::take;

use ::rkyv::rancor::Error;
use ::rkyv::util::AlignedVec;
use ::rkyv::{access, access_unchecked, api::high::to_bytes_in};
use anyhow::Result;
use estafette_measure::spec::{Ownership, Tier};
use estafette_measure::{Codec, Generator, Spec, Verifier};

use super::spec;
use super::written::{ArchivedWritten, Written};

#[inline(always)]
fn encode(message: &Written, out: &mut AlignedVec) -> Result<()> {
    let mut buffer = take(out);
    buffer.clear();
    *out = to_bytes_in::<_, Error>(message, buffer)?;
    Ok(())
}

#[inline(always)]
fn show(found: &ArchivedWritten, verifier: &mut Verifier) {
    verifier.message(found.topic.to_native(), &found.data);
}

/// Checks the bytes, then reads them.
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
        show(access::<ArchivedWritten, Error>(encoded)?, verifier);
        Ok(())
    }
}

/// Reads the bytes as they are.
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
        // SAFETY: a buffer is only ever given here after `encode` has written a whole message into it, in this process, and
        // nothing has touched it since.
        show(unsafe { access_unchecked::<ArchivedWritten>(encoded) }, verifier);
        Ok(())
    }
}
