//! One producer sends to one consumer, which drops every receive that is not ready at once and
//! starts a new one. Shows whether a message is lost when the receive for it is cancelled.

use super::rules::{Metric, Rules, StreamEnd, TableKind};
use crate::case::Case;
use crate::pattern_figures::{PatternFigures, PatternResult};
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::{self, Runtime, Spec};

pub(super) struct DroppedReceives;

impl Rules for DroppedReceives {
    fn result(&self) -> &'static str {
        "a message of a stream with dropped receives takes"
    }

    fn table_kind(&self) -> TableKind {
        TableKind::Losses
    }

    fn default_capacity(&self) -> usize {
        // Both sides wait for each message.
        1
    }

    fn stream_end(&self) -> StreamEnd {
        StreamEnd::Close
    }

    fn drops_receives(&self) -> bool {
        true
    }

    fn metric(&self) -> Metric {
        Metric::NotRanked
    }

    fn pattern_result(&self, instances: &[PatternFigures], lost: u64) -> PatternResult {
        PatternResult::of_cancel(instances, lost)
    }

    fn excuses_loss(&self, spec: &Spec) -> bool {
        // Showing such losses is the purpose of the pattern.
        spec.cancel != spec::Cancel::Safe
    }

    fn admit(&self, _: &Spec, case: &Case) -> Result<(), Inadmissible> {
        if case.runtime == Runtime::Thread {
            return Err(RefusalKind::Unsupported.because("blocks its thread: a pending receive cannot be dropped"));
        }
        Ok(())
    }
}
