//! Several producers send to as many consumers through one channel, as fast as they can. Each
//! message goes to one consumer.

use super::rules::{Rules, StreamEnd};
use crate::bound::{Cost, Costs};
use crate::case::{Case, Cell};
use crate::message::{Faults, StreamCount, digest};
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::{Scope, Spec};

/// The maximum number of producers, and of consumers, of one shared channel. Their reports must fit
/// in one packet.
const MAX_SHARING: usize = 32;

pub(super) struct Mpmc;

impl Rules for Mpmc {
    fn result(&self) -> &'static str {
        "a message of several producers and consumers takes"
    }

    fn has_several_parties(&self) -> bool {
        true
    }

    fn consumers(&self, cell: &Cell) -> usize {
        cell.producers
    }

    fn default_producers(&self, _: Scope) -> usize {
        4
    }

    fn stream_end(&self) -> StreamEnd {
        StreamEnd::Close
    }

    fn consumers_compete(&self) -> bool {
        true
    }

    fn account(&self, producer: usize, sent: u64, counts: &[&StreamCount]) -> Faults {
        received_once(producer, sent, counts)
    }

    fn admit(&self, _: &Spec, case: &Case) -> Result<(), Inadmissible> {
        if case.producers > MAX_SHARING {
            return Err(RefusalKind::Parties.because(format!(
                "each of {} consumers would report on each producer: choose at most {MAX_SHARING} producers",
                case.consumers()
            )));
        }
        Ok(())
    }

    fn handling(&self, costs: &Costs) -> Option<(Cost, f64)> {
        // Several senders and several receivers may use any number of cores.
        if costs.is_one_core() { costs.fill_and_check() } else { None }
    }
}

/// The faults of a producer's messages that several consumers shared. Together they must have
/// received each message once.
pub(super) fn received_once(producer: usize, sent: u64, counts: &[&StreamCount]) -> Faults {
    let (received, sum) =
        counts.iter().fold((0u64, 0u64), |(n, sum), count| (n + count.received, sum.wrapping_add(count.digest)));
    let (lost, duplicated) = (sent.saturating_sub(received), received.saturating_sub(sent));
    let mut faults = Faults { lost, duplicated, ..Faults::default() };
    if received == sent && sum != digest(producer, 0, sent) {
        // The number is right, but the messages are not: at least one came twice and another was
        // lost.
        faults.add(Faults { lost: 1, duplicated: 1, ..Faults::default() });
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_consumers_must_receive_each_message_once() {
        let count =
            |from, received| StreamCount { producer: 2, received, announced: None, digest: digest(2, from, received) };
        let faults = |counts: [StreamCount; 2]| Mpmc.account(2, 100, &counts.iter().collect::<Vec<_>>());
        assert_eq!(faults([count(0, 30), count(30, 70)]), Faults::default());
        assert_eq!(faults([count(0, 30), count(30, 69)]), Faults { lost: 1, ..Faults::default() });
        assert_eq!(faults([count(0, 31), count(30, 70)]), Faults { duplicated: 1, ..Faults::default() });
        let both = Faults { lost: 1, duplicated: 1, ..Faults::default() };
        assert_eq!(faults([count(0, 30), count(29, 70)]), both);
    }
}
