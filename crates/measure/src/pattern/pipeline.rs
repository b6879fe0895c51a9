//! Pipelines: a sender sends a number of messages through functions to its receivers; see
//! [`crate::pipeline_driver`].

use super::rules::{Layout, ResultParty, Rules};
use crate::bound::{Bound, Cost, Costs};
use crate::case::{Case, Cell, Place};
use crate::message::{Faults, StreamCount};
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::Spec;

/// The minimum length of a pipeline's messages in bytes.
const MIN_LEN: usize = 8;

/// One receiver counts the messages.
pub(super) static SEND_RECEIVE: Pipeline = Pipeline { receivers: 1 };
/// One receiver computes the CRC-32 of each message and compares it with the one in the message.
pub(super) static SEND_CHECKSUM: Pipeline = Pipeline { receivers: 1 };
/// Two receivers compete for the messages and count them.
pub(super) static SEND_COMPETE: Pipeline = Pipeline { receivers: 2 };

/// A pipeline of one sender.
pub(super) struct Pipeline {
    receivers: usize,
}

impl Rules for Pipeline {
    fn result(&self) -> &'static str {
        "a message of a pipeline takes"
    }

    fn consumers(&self, _: &Cell) -> usize {
        self.receivers
    }

    fn layout(&self) -> Layout {
        Layout::Pipeline
    }

    fn processes(&self, cell: &Cell) -> (usize, usize) {
        (cell.producers, 1)
    }

    fn can_pause(&self) -> bool {
        false
    }

    fn lead(&self) -> ResultParty {
        ResultParty::LastReceiver
    }

    /// Compares the number sent with the counts of all receivers.
    fn account(&self, _: usize, sent: u64, counts: &[&StreamCount]) -> Faults {
        let received: u64 = counts.iter().map(|count| count.received).sum();
        Faults { lost: sent.saturating_sub(received), duplicated: received.saturating_sub(sent), ..Faults::default() }
    }

    fn admit(&self, _: &Spec, case: &Case) -> Result<(), Inadmissible> {
        if case.payload.len() < MIN_LEN {
            return Err(RefusalKind::Size.because(format!(
                "a message of a pipeline has an end mark and a checksum: use {MIN_LEN} bytes or more"
            )));
        }
        if case.place == Place::OtherCore {
            return Err(RefusalKind::Cores.because(
                "the processes of a pipeline cannot be pinned to different cores: use --place free, or same-core for \
                 all of them",
            ));
        }
        Ok(())
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        Bound::of([costs.reference(Cost::NativePair)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_receivers_are_compared_with_the_number_sent() {
        let faults = |received: &[u64]| {
            let count = |&received: &u64| StreamCount { producer: 0, received, announced: None, digest: 0 };
            let counts: Vec<StreamCount> = received.iter().map(count).collect();
            SEND_COMPETE.account(0, 100, &counts.iter().collect::<Vec<_>>())
        };
        assert_eq!(faults(&[60, 40]), Faults::default());
        assert_eq!(faults(&[60, 39]), Faults { lost: 1, ..Faults::default() });
        assert_eq!(faults(&[101]), Faults { duplicated: 1, ..Faults::default() });
        assert_eq!(faults(&[]), Faults { lost: 100, ..Faults::default() });
    }
}
