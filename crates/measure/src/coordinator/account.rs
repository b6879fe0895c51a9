//! Compares the messages that an instance received with those that it sent.

use super::failure::{Failure, FailureKind};
use crate::case::{Case, Role};
use crate::message::{Faults, StreamCount};
use crate::protocol::Report;

/// If a party saw no progress for longer than this, a message was late.
const LATE_NS: u64 = 1_000_000_000;

/// The faults of all consumers together, compared with what the producers sent. `is_whole` says
/// whether the instance ran to its end.
///
/// # Errors
/// When a message was late.
pub(super) fn account(case: &Case, reports: &[(Role, Report)], is_whole: bool) -> Result<Faults, Failure> {
    let parties = || reports.iter().flat_map(|(_, report)| &report.parties);
    let mut faults = Faults::default();
    for party in parties() {
        faults.add(party.faults);
        if party.longest_stall_ns > LATE_NS {
            let seconds = party.longest_stall_ns as f64 / 1e9;
            let text = format!("late: {} saw no message for {seconds:.1} s, where the limit is 1 s", party.role);
            return Err(Failure::new(FailureKind::Late, text));
        }
    }
    for sender in parties().filter(|_| is_whole) {
        let Role::Producer(index) = sender.role else { continue };
        let rules = case.pattern.rules();
        let counts: Vec<&StreamCount> = parties()
            .filter(|party| matches!(party.role, Role::Consumer(_)))
            .flat_map(|party| &party.received)
            .filter(|count| rules.is_of_producer(count, index))
            .collect();
        faults.add(rules.account(index, sender.sent, &counts));
    }
    Ok(faults)
}
