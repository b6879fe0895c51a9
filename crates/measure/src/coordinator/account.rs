//! Compares the messages that an instance received with those that it sent.

use std::time::Duration;

use super::failure::{Failure, FailureKind};
use crate::case::{Case, Place, Role};
use crate::message::{Faults, StreamCount};
use crate::protocol::Report;

/// If a party saw no progress for longer than this, a message was late.
const LATE: Duration = Duration::from_secs(1);
/// The same between two hosts. TCP repeats a packet that the network has lost after 200 ms or more,
/// and waits twice as long after each further loss: five in a row take 6 s.
const LATE_BETWEEN_HOSTS: Duration = Duration::from_secs(10);

/// The faults of all consumers together, compared with what the producers sent. `is_whole` says
/// whether the instance ran to its end.
///
/// # Errors
/// When a message was late.
pub(super) fn account(case: &Case, reports: &[(Role, Report)], is_whole: bool) -> Result<Faults, Failure> {
    let parties = || reports.iter().flat_map(|(_, report)| &report.parties);
    let late = if case.place == Place::OtherHost { LATE_BETWEEN_HOSTS } else { LATE };
    let mut faults = Faults::default();
    for party in parties() {
        faults.add(party.faults);
        let stall = Duration::from_nanos(party.longest_stall_ns);
        if stall > late {
            let (seconds, limit) = (stall.as_secs_f64(), late.as_secs());
            let text = format!("late: {} saw no message for {seconds:.1} s, where the limit is {limit} s", party.role);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PartyReport;

    #[test]
    fn a_network_may_pause_for_longer_than_a_host() {
        let account = |place: &str, stall: Duration| {
            let case = format!(
                r#"{{"mechanism": "network/x", "cell": {{"scope": "network", "pattern": "stream", "payload": "u64",
                "producers": 1, "capacity": 1, "runtime": "thread", "wait": "block", "place": "{place}"}}}}"#
            );
            let party =
                PartyReport { longest_stall_ns: stall.as_nanos() as u64, ..PartyReport::new(Role::Consumer(0)) };
            let report = Report { parties: vec![party], ..Default::default() };
            account(&serde_json::from_str(&case).unwrap(), &[(Role::Consumer(0), report)], false).map(drop)
        };
        let stall = Duration::from_millis(6_200);
        account("other-host", stall).unwrap();
        assert!(account("other-core", stall).unwrap_err().text.contains("for 6.2 s, where the limit is 1 s"));
        assert!(account("other-host", stall * 2).unwrap_err().text.contains("the limit is 10 s"));
    }
}
