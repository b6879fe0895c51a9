//! Computes the figures of an instance from the reports of its parties.

mod latency;
mod message_cost;
mod slice_figures;
#[cfg(test)]
mod tests;
mod validity;

use anyhow::Result;

use self::latency::{latency_of, merged};
use self::message_cost::spent;
use self::slice_figures::{slices, take_unpaused_run};
pub(crate) use self::validity::Disturbance;
use self::validity::{discarded, without_messages};
use crate::breach::Breach;
use crate::case::{Case, Load, Role};
use crate::coordinator::{Failure, Measured};
use crate::message::Faults;
use crate::pattern::{ResultParty, Rules};
use crate::protocol::PartyReport;
use crate::record::Figures;
use crate::spec::Spec;
use crate::window::Window;

/// Computes the figures of an instance.
///
/// # Errors
/// When no message arrived within the window, or when no round trip was timed.
pub(crate) fn figures(
    spec: &Spec,
    case: &Case,
    window: Window,
    measured: &Measured,
    disturbance: Disturbance,
) -> Result<Figures, Failure> {
    let parties = || measured.reports.iter().flat_map(|(_, report)| &report.parties);
    let rules = case.pattern.rules();
    let breach = breach(rules, spec, measured.faults);
    let empty = PartyReport::new(Role::All);
    // If an instance that broke a promise was aborted, no party may have reported.
    let Some(lead) = lead(rules, parties(), breach.is_some()).or(breach.is_some().then_some(&empty)) else {
        return without_messages(spec, measured, disturbance);
    };
    let consumers = || parties().filter(|party| matches!(party.role, Role::Consumer(_)));
    let open_loop = case.load != Load::Saturated;
    let lost_in_window = consumers().map(|party| party.lost).max().unwrap_or(lead.lost);
    let latency = merged(parties().filter_map(|party| party.latency.as_ref()));
    let latency = latency.filter(|counted| breach.is_none() || !counted.counts.is_empty());
    let lost = if open_loop { lost_in_window } else { 0 };
    let latency = latency.map(|counted| latency_of(&counted, open_loop, lost)).transpose()?;
    let [sent, late] = sent_and_late(parties());
    let mut slices = slices(rules.copies(case), parties());
    slices.retain(|slice| !disturbance.discarded_laps.contains(&slice.lap));
    let unpaused_run_ns = take_unpaused_run(&mut slices, window).filter(|_| !measured.is_unpaused_run_stolen);
    let late = late as f64 / sent.max(1) as f64;
    let discarded = discarded(breach.is_some(), measured, disturbance, late, slices.len());
    let (messages, delivered) = received(rules.copies(case) as u64, lead, consumers());
    // Of many copies, some consumers may have received a few, which are not one message.
    if messages == 0 && breach.is_none() {
        return without_messages(spec, measured, disturbance);
    }
    // In an open loop, producers spend processor time while they wait until a message is due. Paced
    // producers do too.
    let spent = match open_loop || spec.is_paced(case) {
        true => None,
        false => spent(measured, case.pattern, lead, messages, delivered),
    };
    Ok(Figures {
        messages,
        // It is 0 if the last message of a pipeline was lost.
        window_ns: lead.window_ns.max(1),
        latency,
        cpu_ns_per_message: spent.map(|spent| spent.cpu_ns),
        sender_cpu_ns: spent.and_then(|spent| spent.sender_cpu_ns),
        receiver_cpu_ns: spent.and_then(|spent| spent.receiver_cpu_ns),
        switches_per_message: spent.map(|spent| spent.switches),
        offered: sent,
        delivered,
        of_pattern: lead.of_pattern,
        memory: memory(measured),
        fairness: fairness(matches!(window, Window::Time { .. }), consumers().map(|party| &*party.shares)),
        lost_in_window,
        faults: measured.faults,
        breach,
        steal: measured.steal,
        peer_load: measured.peer_load,
        clock_error: measured.clock_error,
        discarded,
        slices,
        unpaused_run_ns,
        paused_slices: Vec::new(),
    })
}

/// The promise that a mechanism broke, if these faults break one.
fn breach(rules: &dyn Rules, spec: &Spec, faults: Faults) -> Option<Breach> {
    Breach::of(spec, if rules.excuses_loss(spec) { Faults { lost: 0, ..faults } } else { faults })
}

/// The number of messages that all producers sent, and how many of them were late before the
/// mechanism got them.
fn sent_and_late<'a>(parties: impl Iterator<Item = &'a PartyReport>) -> [u64; 2] {
    let producers = parties.filter(|party| matches!(party.role, Role::Producer(_)));
    producers.fold([0, 0], |[sent, late], party| [sent + party.sent, late + party.late])
}

/// The party whose counts are the result: the side that sends requests, or the consumer that
/// received most. `None` if it has none, and no promise was broken.
fn lead<'a>(
    rules: &dyn Rules,
    parties: impl DoubleEndedIterator<Item = &'a PartyReport> + Clone,
    is_broken: bool,
) -> Option<&'a PartyReport> {
    let all = || parties.clone();
    let requester = all().find(|party| party.latency.is_some() && rules.lead() == ResultParty::Requester);
    // Of several consumers, another may have received nothing.
    let consumer = all()
        .filter(|party| matches!(party.role, Role::Consumer(_)))
        .rev()
        .max_by_key(|party| (rules.lead() == ResultParty::LastReceiver && party.window_ns > 0, party.messages));
    // An instance that broke a promise may have no messages.
    let has_counts = |party: &&PartyReport| (party.messages > 0 && party.window_ns > 0) || is_broken;
    requester.or(consumer).filter(has_counts).or_else(|| all().next().filter(|_| is_broken))
}

/// The memory of all children. `None` if one of them did not measure it.
fn memory(measured: &Measured) -> Option<u64> {
    let children = || measured.reports.iter().map(|(_, report)| report.memory);
    children().next()?;
    children().try_fold(0, |sum: u64, memory| sum.checked_add(memory?))
}

/// The messages received within the window, and over the whole instance.
///
/// The counts of several consumers are added up. Their windows differ only by the time between two
/// readings of the clock. If each consumer gets every message, this is the mean.
fn received<'a>(
    copies: u64,
    lead: &PartyReport,
    consumers: impl Iterator<Item = &'a PartyReport> + Clone,
) -> (u64, u64) {
    let total = |party: &PartyReport| party.received.iter().map(|count| count.received).sum::<u64>();
    if consumers.clone().count() < 2 {
        return (lead.messages, total(lead));
    }
    (consumers.clone().map(|party| party.messages).sum::<u64>() / copies, consumers.map(total).sum::<u64>() / copies)
}

/// The messages received from the slowest producer, as a part of the mean of all producers.
/// `shares` yields, for each consumer, the messages from each producer.
///
/// `None` if the window is a number of messages, because then every producer sends the same number.
fn fairness<'a>(by_time: bool, shares: impl Iterator<Item = &'a [u64]>) -> Option<f64> {
    if !by_time {
        return None;
    }
    let mut sums: Vec<u64> = Vec::new();
    for shares in shares {
        sums.resize(sums.len().max(shares.len()), 0);
        sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
    }
    let total: u64 = sums.iter().sum();
    let slowest = sums.iter().min().filter(|_| total > 0)?;
    Some(*slowest as f64 * sums.len() as f64 / total as f64)
}
