//! Compares the messages that an instance received with those that it sent.

use super::instance::{Failure, FailureKind};
use crate::case::{Case, Pattern, Role};
use crate::message::{Faults, StreamCount, digest};
use crate::pipeline;
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
        let counts = parties()
            .filter(|party| matches!(party.role, Role::Consumer(_)))
            .flat_map(|party| &party.received)
            .filter(|count| count.producer == index || case.pattern == Pattern::Connections);
        faults.add(sent_against_received(case, index, sender.sent, counts));
    }
    Ok(faults)
}

/// The faults of one producer's messages.
fn sent_against_received<'a>(
    case: &Case,
    producer: usize,
    sent: u64,
    counts: impl Iterator<Item = &'a StreamCount>,
) -> Faults {
    let mut faults = Faults::default();
    match case.pattern {
        // One party has sent on all connections. The end mark of each connection has shown that its
        // stream was complete.
        Pattern::Connections => {
            let counts: Vec<_> = counts.collect();
            let received: u64 = counts.iter().map(|count| count.received).sum();
            match counts.iter().map(|count| count.announced).sum::<Option<u64>>() {
                Some(announced) => faults.damaged += u64::from(announced != sent),
                None => faults.lost += sent.saturating_sub(received),
            }
        }
        Pattern::Mpmc => faults.add(faults_of_shared(producer, sent, counts)),
        pattern if pattern.is_pipeline() => faults.add(pipeline::account(sent, counts)),
        // Without the end mark, a consumer does not know how many messages were sent.
        _ => {
            for count in counts {
                if count.announced.is_none() {
                    faults.lost += sent.saturating_sub(count.received);
                } else if count.announced != Some(sent) {
                    faults.damaged += 1;
                }
            }
        }
    }
    faults
}

/// The faults of a producer's messages that several consumers shared. Together they must have
/// received each message once.
fn faults_of_shared<'a>(producer: usize, sent: u64, counts: impl Iterator<Item = &'a StreamCount>) -> Faults {
    let (received, sum) =
        counts.fold((0u64, 0u64), |(n, sum), count| (n + count.received, sum.wrapping_add(count.digest)));
    let mut faults =
        Faults { lost: sent.saturating_sub(received), duplicated: received.saturating_sub(sent), ..Faults::default() };
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
        let faults = |counts: &[StreamCount]| faults_of_shared(2, 100, counts.iter());
        assert_eq!(faults(&[count(0, 30), count(30, 70)]), Faults::default());
        assert_eq!(faults(&[count(0, 30), count(30, 69)]), Faults { lost: 1, ..Faults::default() });
        assert_eq!(faults(&[count(0, 31), count(30, 70)]), Faults { duplicated: 1, ..Faults::default() });
        let both = Faults { lost: 1, duplicated: 1, ..Faults::default() };
        assert_eq!(faults(&[count(0, 30), count(29, 70)]), both);
    }
}
