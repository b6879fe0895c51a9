//! One thread sends a message and receives it, over and over (loopback in one thread). Shows the
//! cost without any wake-up.

use anyhow::Result;

use super::assignment::{LoopPlan, Opened, requests_and_replies};
use super::rules::{Layout, Metric, ResultParty, Rules};
use crate::bound::{Bound, Costs};
use crate::case::{Case, Pattern, Place};
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::Spec;

/// The maximum length of a message, in bytes, that a thread sends before it receives it.
const MAX_LEN: usize = 64 << 10;

pub(super) struct SameThread;

impl Rules for SameThread {
    fn result(&self) -> &'static str {
        "a message sent and received by one thread takes"
    }

    fn is_bidirectional(&self) -> bool {
        true
    }

    fn layout(&self) -> Layout {
        Layout::OneThread
    }

    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        requests_and_replies(pattern, parties)
    }

    fn metric(&self) -> Metric {
        Metric::RoundTrip
    }

    fn lead(&self) -> ResultParty {
        ResultParty::Requester
    }

    fn admit(&self, _: &Spec, case: &Case) -> Result<(), Inadmissible> {
        if case.place != Place::SameCore {
            return Err(
                RefusalKind::Cores.because(format!("one thread runs on one core: use --place {}", Place::SameCore))
            );
        }
        if case.payload.len() > MAX_LEN {
            return Err(RefusalKind::Size.because(format!(
                "a message must fit in the channel's buffers until its sender receives it: use {MAX_LEN} bytes or less"
            )));
        }
        Ok(())
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        Bound::of([costs.two_system_calls()])
    }
}
