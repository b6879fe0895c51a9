//! Whether a report from another host is possible. Its numbers are added, multiplied and put into
//! histograms here, and a wrong one must not make this process overflow or take much memory.

use crate::message::MAX_PRODUCERS;
use crate::pattern_figures::PatternFigures;
use crate::protocol::{LatencyCounts, PartyReport, Report};

/// More than any number of nanoseconds or bytes.
const MAX: u64 = 1 << 53;
/// More than any number of messages of all streams of a child. Sums over all parties and producers
/// do not overflow.
const MAX_MESSAGES_OF_ALL: u64 = 1 << 45;
/// The maximum number of parties of a child between two hosts: both threads of each side of a
/// duplex.
const MAX_PARTIES: usize = 4;
/// More pairs than a histogram with three significant digits has.
const MAX_COUNTS: usize = 1 << 17;
/// The highest number of equal times.
const MAX_COUNT: u64 = 1 << 40;

/// Whether every number of a report is possible.
pub(super) fn is_possible(report: &Report) -> bool {
    let usage = report.usage.is_none_or(|usage| {
        [usage.cpu_ns, usage.voluntary_switches, usage.involuntary_switches].iter().all(|number| *number < MAX)
    });
    usage
        && report.memory.is_none_or(|bytes| bytes < MAX)
        && report.parties.len() <= MAX_PARTIES
        && report.parties.iter().all(is_possible_party)
}

fn is_possible_party(party: &PartyReport) -> bool {
    let faults = party.faults;
    let times = [party.window_ns, party.longest_stall_ns];
    let messages = [
        party.sent,
        party.messages,
        party.late,
        party.lost,
        faults.lost,
        faults.duplicated,
        faults.reordered,
        faults.damaged,
    ];
    let received = party.received.iter().all(|count| {
        let counts = [count.received, count.announced.unwrap_or_default()];
        count.producer < MAX_PRODUCERS && counts.iter().all(|count| *count < MAX_MESSAGES_OF_ALL)
    });
    // Parties between two hosts have no slices, and no pattern with figures of its own.
    let is_of_hosts = party.slices.is_empty() && party.of_pattern == PatternFigures::None;
    times.iter().all(|time| *time < MAX)
        && messages.iter().chain(&party.shares).all(|number| *number < MAX_MESSAGES_OF_ALL)
        && received
        && party.received.len() <= MAX_PRODUCERS
        && party.shares.len() <= MAX_PRODUCERS
        && party.latency.as_ref().is_none_or(is_possible_latency)
        && is_of_hosts
}

fn is_possible_latency(latency: &LatencyCounts) -> bool {
    let is_possible = |&(ns, count): &(u64, u64)| ns < MAX && count < MAX_COUNT;
    (1..MAX).contains(&latency.batch) && latency.counts.len() <= MAX_COUNTS && latency.counts.iter().all(is_possible)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Role;

    fn with(change: impl FnOnce(&mut PartyReport)) -> Report {
        let mut party = PartyReport::new(Role::Consumer(0));
        change(&mut party);
        Report { parties: vec![party], ..Default::default() }
    }

    #[test]
    fn numbers_that_would_overflow_are_impossible() {
        assert!(is_possible(&with(|party| (party.messages, party.window_ns) = (1_000_000, 50_000_000))));
        assert!(!is_possible(&with(|party| party.messages = u64::MAX)));
        assert!(!is_possible(&with(|party| party.faults.lost = u64::MAX)));
        assert!(!is_possible(&with(|party| party.shares = vec![0; MAX_PRODUCERS + 1])));
        // The largest counts that are possible: their sum over all producers and parties is no overflow.
        assert!(is_possible(&with(|party| party.shares = vec![MAX_MESSAGES_OF_ALL - 1; MAX_PRODUCERS])));
        assert!((MAX_MESSAGES_OF_ALL - 1).checked_mul((MAX_PRODUCERS * MAX_PARTIES * 2) as u64).is_some());
        let latency = |batch, counts| Some(LatencyCounts { batch, counts });
        assert!(is_possible(&with(|party| party.latency = latency(1, vec![(27_903, 12)]))));
        assert!(!is_possible(&with(|party| party.latency = latency(0, vec![]))));
        assert!(!is_possible(&with(|party| party.latency = latency(1, vec![(1, u64::MAX)]))));
        let parties = vec![PartyReport::new(Role::Consumer(0)); MAX_PARTIES + 1];
        assert!(!is_possible(&Report { parties, ..Report::default() }));
        assert!(!is_possible(&Report { memory: Some(u64::MAX), ..with(|_| {}) }));
    }
}
