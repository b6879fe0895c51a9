//! The processor time and the context switches of a message.

use crate::case::{Pattern, Role};
use crate::coordinator::Measured;
use crate::protocol::PartyReport;
use crate::usage::Usage;

/// The maximum difference between a child's window and the lead's, as a part of the lead's. With a
/// larger difference the child's usage is not comparable. If there are more parties than cores, one
/// may open and close its window within a single time slice of the scheduler.
const MAX_WINDOW_DIFFERENCE: f64 = 0.1;

/// The cost of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub(super) cpu_ns: f64,
    /// The parts of the sending and of the receiving children, if they are separate processes.
    pub(super) sender_cpu_ns: Option<f64>,
    pub(super) receiver_cpu_ns: Option<f64>,
    pub(super) switches: f64,
}

/// Processor time and context switches of all children per message. `None` if the windows of the
/// children differ too much.
///
/// The usage of a child covers its own window and is divided by the messages of that window. The
/// usage of a broker, and of the children of a pipeline, covers the whole instance and is divided
/// by all messages.
pub(super) fn spent(
    measured: &Measured,
    pattern: Pattern,
    lead: &PartyReport,
    messages: u64,
    delivered: u64,
) -> Option<Spent> {
    let mut spent = Spent::default();
    for (role, report) in &measured.reports {
        let Usage { cpu_ns, voluntary_switches, involuntary_switches } = report.usage?;
        // The driver reads the usage in the window of this party.
        let leader = report.parties.iter().max_by_key(|party| matches!(party.role, Role::Consumer(_)));
        let window = leader.map(|party| party.window_ns);
        // The messages are those of the lead's window. A slightly longer window has proportionally
        // more.
        let handled = match (role, window) {
            (Role::Broker, _) | (_, None) => delivered as f64,
            _ if pattern.is_pipeline() => delivered as f64,
            (_, Some(window_ns)) => {
                let part = window_ns as f64 / lead.window_ns as f64;
                if (part - 1.0).abs() > MAX_WINDOW_DIFFERENCE {
                    return None;
                }
                messages as f64 * part
            }
        };
        if handled <= 0.0 {
            return None;
        }
        let cpu_ns = cpu_ns as f64 / handled;
        spent.cpu_ns += cpu_ns;
        match role {
            Role::Producer(_) => *spent.sender_cpu_ns.get_or_insert_default() += cpu_ns,
            Role::Consumer(_) => *spent.receiver_cpu_ns.get_or_insert_default() += cpu_ns,
            Role::All | Role::Broker => {}
        }
        spent.switches += (voluntary_switches + involuntary_switches) as f64 / handled;
    }
    Some(spent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol;

    #[test]
    fn the_cost_of_each_side_is_separate() {
        let child = |role, cpu_ns, window_ns| {
            let usage = Usage { cpu_ns, voluntary_switches: 10, involuntary_switches: 0 };
            let party = PartyReport { messages: 100, window_ns, ..PartyReport::new(role) };
            (role, protocol::Report { parties: vec![party], usage: Some(usage), memory: None })
        };
        let (sender, receiver) = (Role::Producer(0), Role::Consumer(0));
        let measured = |reports| Measured { reports, ..Measured::default() };
        let both = measured(vec![child(receiver, 2_000, 1_000), child(sender, 4_200, 1_050)]);
        let lead = |measured: &Measured| measured.reports[0].1.parties[0].clone();
        let spent = super::spent(&both, Pattern::Stream, &lead(&both), 100, 100).unwrap();
        // The sender's window was 5 % longer.
        assert_eq!((spent.sender_cpu_ns, spent.receiver_cpu_ns), (Some(40.0), Some(20.0)));
        assert_eq!(spent.cpu_ns, 60.0);
        let one = measured(vec![child(Role::All, 6_000, 1_000)]);
        let spent = super::spent(&one, Pattern::Stream, &lead(&one), 100, 100).unwrap();
        assert_eq!((spent.cpu_ns, spent.sender_cpu_ns, spent.receiver_cpu_ns), (60.0, None, None));
    }
}
