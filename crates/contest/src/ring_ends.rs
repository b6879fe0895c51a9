//! The limit ring's ends as ends of a mechanism: messages are filled and checked where they lie.

use std::io::{self, ErrorKind};

use anyhow::Result;
use estafette_measure::case::Case;
use estafette_measure::spec::Wait as WaitMode;
use estafette_measure::{Generator, Rx, Tx, Verifier};

use crate::limit_ring::{Consumer, Producer, Shape, Wait};

/// A ring is no longer than this where that leaves it at least [`LEAST_SLOTS`]: beyond the cores' own caches it would
/// measure memory, not the way between two cores.
const MOST_BYTES: usize = 256 * 1024;
const LEAST_SLOTS: usize = 4;

/// The ring of a case: its capacity in messages, as far as caches hold it.
pub(crate) fn shape(case: &Case) -> Result<Shape> {
    let slot = case.payload.len();
    let slots = case.capacity.min((MOST_BYTES / slot).max(LEAST_SLOTS));
    Ok(Shape::new(slot, slots)?)
}

/// How its ends wait.
pub(crate) fn wait(case: &Case) -> Wait {
    match case.wait {
        WaitMode::Spin => Wait::Spin,
        _ => Wait::Futex,
    }
}

impl Tx for Producer {
    #[inline(always)]
    async fn put(&mut self, next: &mut Generator) -> io::Result<()> {
        let mut slot = self.wait_slot().map_err(|_| ErrorKind::BrokenPipe)?;
        next.fill(&mut slot);
        slot.commit();
        Ok(())
    }
}

impl Rx for Consumer {
    #[inline(always)]
    async fn get(&mut self, seen: &mut Verifier) -> io::Result<()> {
        let message = self.wait_message().map_err(|_| ErrorKind::UnexpectedEof)?;
        seen.bytes(&message);
        message.release();
        Ok(())
    }
}
