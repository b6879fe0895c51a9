//! Accounts for an instance's messages: what was received against what was sent.

use super::instance::{Failure, FailureKind};
use crate::case::{Case, Pattern, Role};
use crate::message::{Faults, StreamCount, digest};
use crate::pipeline;
use crate::protocol::Report;

/// A party that saw no progress for so long received something late.
const LATE_NS: u64 = 1_000_000_000;

/// What was wrong with the messages, of all consumers together and against what the producers sent. `is_whole` is whether the
/// instance came to its end.
///
/// # Errors
/// When a party received something too late.
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

/// What went wrong with one producer's messages.
fn sent_against_received<'a>(
    case: &Case,
    producer: usize,
    sent: u64,
    counts: impl Iterator<Item = &'a StreamCount>,
) -> Faults {
    let mut faults = Faults::default();
    match case.pattern {
        // One has sent on all of them; that each stream was whole its own end mark has said.
        Pattern::Connections => {
            let announced: u64 = counts.filter_map(|count| count.announced).sum();
            faults.damaged += u64::from(announced != sent);
        }
        Pattern::Mpmc => faults.add(shared_out(producer, sent, counts)),
        pattern if pattern.is_pipeline() => faults.add(pipeline::account(sent, counts)),
        // What a consumer cannot know where the end mark was lost.
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

/// What went wrong with a producer's messages between several consumers: all of them together must have had each once.
fn shared_out<'a>(producer: usize, sent: u64, counts: impl Iterator<Item = &'a StreamCount>) -> Faults {
    let (received, sum) =
        counts.fold((0u64, 0u64), |(n, sum), count| (n + count.received, sum.wrapping_add(count.digest)));
    let mut faults =
        Faults { lost: sent.saturating_sub(received), duplicated: received.saturating_sub(sent), ..Faults::default() };
    if received == sent && sum != digest(producer, 0, sent) {
        // As many as were sent, but not the same: at least one came twice in another's place.
        faults.add(Faults { lost: 1, duplicated: 1, ..Faults::default() });
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_consumers_must_have_had_each_message_once() {
        let count =
            |from, received| StreamCount { producer: 2, received, announced: None, digest: digest(2, from, received) };
        let faults = |counts: &[StreamCount]| shared_out(2, 100, counts.iter());
        assert_eq!(faults(&[count(0, 30), count(30, 70)]), Faults::default());
        assert_eq!(faults(&[count(0, 30), count(30, 69)]), Faults { lost: 1, ..Faults::default() });
        assert_eq!(faults(&[count(0, 31), count(30, 70)]), Faults { duplicated: 1, ..Faults::default() });
        let both = Faults { lost: 1, duplicated: 1, ..Faults::default() };
        assert_eq!(faults(&[count(0, 30), count(29, 70)]), both);
    }
}
