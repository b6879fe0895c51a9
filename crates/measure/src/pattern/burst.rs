//! One producer sends [`BURST`] messages before the consumer receives the first. Shows how much
//! memory the channel takes when full, and how much it keeps when it is empty again.

use super::rules::{Metric, Rules, TableKind};
use crate::case::{Case, Payload};
use crate::pattern_figures::{PatternFigures, PatternResult};
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::Spec;
use crate::window::Window;

/// The number of messages in a burst.
pub const BURST: u64 = 1_000_000;

/// The maximum length of a burst's messages in bytes. All of them together stay within one GiB.
const MAX_LEN: usize = 1024;

pub(super) struct Burst;

impl Rules for Burst {
    fn result(&self) -> &'static str {
        "a message of a burst takes"
    }

    fn table_kind(&self) -> TableKind {
        TableKind::Memory
    }

    fn default_capacity(&self) -> usize {
        // The whole burst must fit.
        (BURST as usize).next_power_of_two()
    }

    fn window(&self, _: Window) -> Window {
        Window::Count { warmup: 1, messages: BURST - 1 }
    }

    fn fills_before_receiving(&self) -> bool {
        true
    }

    fn can_pause(&self) -> bool {
        false
    }

    fn metric(&self) -> Metric {
        Metric::NotRanked
    }

    fn pattern_result(&self, instances: &[PatternFigures], _: u64) -> PatternResult {
        PatternResult::of_burst(instances)
    }

    fn admit(&self, _: &Spec, case: &Case) -> Result<(), Inadmissible> {
        if (case.capacity as u64) < BURST {
            return Err(RefusalKind::Capacity
                .because(format!("a burst of {BURST} messages must fit in the channel: use --capacity {BURST}")));
        }
        if matches!(case.payload, Payload::Bytes(len) if len > MAX_LEN) {
            return Err(RefusalKind::Size.because(format!(
                "a burst of {BURST} messages would take too much memory: use {MAX_LEN} bytes or less"
            )));
        }
        Ok(())
    }
}
