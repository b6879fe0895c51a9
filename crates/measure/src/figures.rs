//! Computes the figures of an instance from the reports of its parties.

use std::collections::BTreeMap;

use anyhow::Result;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::breach::Breach;
use crate::case::{Case, Load, Pattern, Role};
use crate::coordinator::{Failure, FailureKind, Measured};
use crate::discarded::{Discarded, MAX_STEAL};
use crate::laps::LONG_LAP;
use crate::message::Faults;
use crate::other_load::DISTURBING;
use crate::pattern::{ResultParty, Rules};
use crate::protocol::{LatencyCounts, PartyReport};
use crate::record::{Figures, Latency, MIN_LAPS, SliceFigure, with_lost};
use crate::slices::{SETTLE_NS, SliceCounts};
use crate::spec::{Loss, Spec};
use crate::usage::Usage;
use crate::window::Window;

/// What disturbed an instance from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disturbance<'a> {
    /// The laps in which the machine changed. Their slices are left out.
    pub(crate) discarded_laps: &'a [u64],
    /// Whether the host moved the cores during some of these laps.
    pub(crate) cores_moved: bool,
    /// The part of the cores' time that other processes used. `None` if it could not be read.
    pub(crate) other_load: Option<f64>,
}

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
    let excused = rules.excuses_loss(spec);
    let breach = Breach::of(spec, if excused { Faults { lost: 0, ..measured.faults } } else { measured.faults });
    let empty = PartyReport::new(Role::All);
    // If an instance that broke a promise was aborted, no party may have reported.
    let Some(lead) = lead(rules, parties(), breach.is_some()).or(breach.is_some().then_some(&empty)) else {
        return without_messages(spec, measured, disturbance);
    };
    let open_loop = case.load != Load::Saturated;
    let latency = merged(parties().filter_map(|party| party.latency.as_ref()));
    let latency = latency.filter(|counted| breach.is_none() || !counted.counts.is_empty());
    let lost_in_window = parties()
        .filter(|party| matches!(party.role, Role::Consumer(_)))
        .map(|party| party.lost)
        .max()
        .unwrap_or(lead.lost);
    let lost = if open_loop { lost_in_window } else { 0 };
    let latency = latency.map(|counted| latency_of(&counted, open_loop, lost)).transpose()?;
    let producers = || parties().filter(|party| matches!(party.role, Role::Producer(_)));
    let sum = |of: fn(&PartyReport) -> u64| producers().map(of).sum::<u64>();
    let late = sum(|party| party.late) as f64 / sum(|party| party.sent).max(1) as f64;
    let mut slices = slices(rules.copies(case), parties());
    slices.retain(|slice| !disturbance.discarded_laps.contains(&slice.lap));
    let long_turn_ns = take_long_turn(&mut slices, window).filter(|_| !measured.is_long_turn_stolen);
    let discarded = discarded(breach.is_some(), measured, disturbance, late, slices.len());
    let consumers = || parties().filter(|party| matches!(party.role, Role::Consumer(_)));
    let (messages, delivered) = received(rules.copies(case) as u64, lead, consumers());
    // Of many copies, some consumers may have received a few, which are not one message.
    if messages == 0 && breach.is_none() {
        return without_messages(spec, measured, disturbance);
    }
    let by_time = matches!(window, Window::Time { .. });
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
        offered: sum(|party| party.sent),
        delivered,
        codec: lead.codec,
        memory: memory(measured),
        burst_memory: lead.burst_memory,
        dropped_receives: consumers().map(|party| party.dropped).sum(),
        fairness: fairness(by_time, consumers().map(|party| &*party.shares)),
        lost_in_window,
        faults: measured.faults,
        breach,
        steal: measured.steal,
        peer_load: measured.peer_load,
        clock_error: measured.clock_error,
        discarded,
        slices,
        long_turn_ns,
    })
}

/// Takes the result of the long turn from the slices. It is the first lap. `None` if there is none,
/// or if there are too few slices, so that the whole window counts.
fn take_long_turn(slices: &mut Vec<SliceFigure>, window: Window) -> Option<f64> {
    if matches!(window, Window::Count { .. }) {
        return None;
    }
    let first = slices.first().filter(|slice| slice.lap == LONG_LAP).map(|slice| slice.ns);
    slices.retain(|slice| slice.lap != LONG_LAP);
    first.filter(|_| slices.len() >= MIN_LAPS)
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

/// Why an instance with `slices` valid slices is discarded, if it is. `late` is the part of its messages that
/// were late because of their sender.
fn discarded(
    is_broken: bool,
    measured: &Measured,
    disturbance: Disturbance,
    late: f64,
    slices: usize,
) -> Option<Discarded> {
    if is_broken {
        return Some(Discarded::FailedVerification);
    }
    // Without enough slices, the whole window counts, and with it the time of a disturbance.
    if slices < MIN_LAPS {
        if let Some(stolen) = stolen_time(measured) {
            return Some(stolen);
        }
        if disturbance.cores_moved {
            return Some(Discarded::CoresMoved);
        }
    }
    (late > MAX_LATE).then_some(Discarded::LateSender { share: late })
}

/// The memory of all children. `None` if one of them did not measure it.
fn memory(measured: &Measured) -> Option<u64> {
    let children = || measured.reports.iter().map(|(_, report)| report.memory);
    children().next()?;
    children().try_fold(0, |sum: u64, memory| sum.checked_add(memory?))
}

/// Whether a hypervisor took so much time from the instance's cores that it is discarded.
fn stolen_time(measured: &Measured) -> Option<Discarded> {
    if measured.steal > MAX_STEAL {
        return Some(Discarded::StolenTime { share: measured.steal });
    }
    let share = measured.peer_load.map(|load| load.steal).filter(|steal| *steal > MAX_STEAL)?;
    Some(Discarded::StolenTimeOfPeer { share })
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

/// The result of an instance in which no message arrived. If something outside disturbed it, it is
/// discarded and repeated. Otherwise it has failed.
fn without_messages(spec: &Spec, measured: &Measured, disturbance: Disturbance) -> Result<Figures, Failure> {
    let disturbing = |load: Option<f64>| load.filter(|share| *share > DISTURBING);
    let here = || disturbing(disturbance.other_load).map(|share| Discarded::OtherLoad { share });
    let there = || disturbing(measured.peer_load?.other_load).map(|share| Discarded::OtherLoadOfPeer { share });
    if let Some(discarded) = stolen_time(measured).or_else(here).or_else(there) {
        return Ok(empty_figures(measured, discarded));
    }
    let why = match spec.loss {
        Loss::BestEffort => "it lost all of them, or needs a longer --window",
        Loss::Never => "choose a longer --window",
    };
    Err(Failure { kind: FailureKind::Empty, text: format!("no message arrived within the window: {why}") })
}

/// The figures of an instance that received nothing.
fn empty_figures(measured: &Measured, discarded: Discarded) -> Figures {
    Figures {
        messages: 0,
        window_ns: 1,
        latency: None,
        cpu_ns_per_message: None,
        sender_cpu_ns: None,
        receiver_cpu_ns: None,
        switches_per_message: None,
        offered: 0,
        delivered: 0,
        codec: None,
        memory: None,
        burst_memory: None,
        dropped_receives: 0,
        fairness: None,
        lost_in_window: 0,
        faults: measured.faults,
        breach: None,
        steal: measured.steal,
        peer_load: measured.peer_load,
        clock_error: measured.clock_error,
        discarded: Some(discarded),
        slices: Vec::new(),
        long_turn_ns: None,
    }
}

/// The least part of the window that slices must cover. Steady messages give 0.75 and more: stopping
/// and resuming the processes takes time, too.
const MIN_COVERAGE: f64 = 0.6;

/// The result of each complete slice: the time per message, or the median round trip.
///
/// If any party has latencies, the parties that have them count, otherwise the consumers. A slice
/// is complete if each of these parties has counts for its lap.
///
/// There are none if messages arrive in bursts. A slice ends with the last message of a turn, so
/// it does not contain the time in which the consumer waited for the next burst, for example while
/// the producer ran on the same core.
fn slices<'a>(copies: usize, parties: impl Iterator<Item = &'a PartyReport> + Clone) -> Vec<SliceFigure> {
    let has_latency = |party: &&PartyReport| party.latency.is_some();
    let any_latency = parties.clone().any(|party| has_latency(&party));
    let counts =
        |party: &&PartyReport| if any_latency { has_latency(party) } else { matches!(party.role, Role::Consumer(_)) };
    let counting: Vec<&PartyReport> = parties.filter(counts).collect();
    let is_bursty = |party: &&PartyReport| coverage(party).is_some_and(|coverage| coverage < MIN_COVERAGE);
    if !any_latency && counting.iter().any(is_bursty) {
        return Vec::new();
    }
    let mut laps: BTreeMap<u64, Vec<SliceCounts>> = BTreeMap::new();
    for slice in counting.iter().flat_map(|party| &party.slices) {
        laps.entry(slice.lap).or_default().push(*slice);
    }
    let complete = laps.into_iter().filter(|(_, slices)| slices.len() == counting.len());
    let figure = |(lap, slices): (u64, Vec<SliceCounts>)| {
        let parties = slices.len() as f64;
        let ns = if any_latency {
            slices.iter().map(|slice| slice.p50_ns).sum::<Option<f64>>()? / parties
        } else {
            let messages = slices.iter().map(|slice| slice.messages).sum::<u64>() as f64;
            // If each consumer gets every message, this is the mean.
            let messages = messages / copies as f64;
            slices.iter().map(|slice| slice.ns).sum::<u64>() as f64 / parties / messages
        };
        Some(SliceFigure { lap, ns })
    };
    complete.filter_map(figure).collect()
}

/// The part of a party's window that its slices cover, without the first lap and the time at the
/// beginning of each turn that never counts. `None` without slices.
fn coverage(party: &PartyReport) -> Option<f64> {
    let (first, slices): (Vec<SliceCounts>, Vec<SliceCounts>) =
        party.slices.iter().partition(|slice| slice.lap == LONG_LAP);
    let time = |slices: &[SliceCounts]| slices.iter().map(|slice| slice.ns).sum::<u64>();
    let uncounted = time(&first) + party.slices.len() as u64 * SETTLE_NS;
    let counted = party.window_ns.checked_sub(uncounted).filter(|ns| *ns > 0)?;
    (!slices.is_empty()).then(|| time(&slices) as f64 / counted as f64)
}

/// The maximum share of late messages in an open loop, late because of the sender and not of the
/// mechanism. Above it an instance is discarded.
const MAX_LATE: f64 = 0.01;

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

/// The maximum difference between a child's window and the lead's, as a part of the lead's. With a
/// larger difference the child's usage is not comparable. If there are more parties than cores, one
/// may open and close its window within a single time slice of the scheduler.
const MAX_WINDOW_DIFFERENCE: f64 = 0.1;

/// The cost of one message.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    cpu_ns: f64,
    /// The parts of the sending and of the receiving children, if they are separate processes.
    sender_cpu_ns: Option<f64>,
    receiver_cpu_ns: Option<f64>,
    switches: f64,
}

/// Processor time and context switches of all children per message. `None` if the windows of the
/// children differ too much.
///
/// The usage of a child covers its own window and is divided by the messages of that window. The
/// usage of a broker, and of the children of a pipeline, covers the whole instance and is divided
/// by all messages.
fn spent(measured: &Measured, pattern: Pattern, lead: &PartyReport, messages: u64, delivered: u64) -> Option<Spent> {
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

/// Merges the latencies of several parties. `None` if no party has any.
fn merged<'a>(counted: impl Iterator<Item = &'a LatencyCounts>) -> Option<LatencyCounts> {
    counted.cloned().reduce(|mut all, one| {
        all.batch = all.batch.max(one.batch);
        all.counts.extend(one.counts);
        all
    })
}

/// `lost` messages of an open loop have no time.
fn latency_of(counted: &LatencyCounts, open_loop: bool, lost: u64) -> Result<Latency> {
    let mut times = Histogram::<u64>::new_with_bounds(1, 3_600_000_000_000, 3)?;
    for &(time, count) in &counted.counts {
        times.saturating_record_n(time, count);
    }
    anyhow::ensure!(!times.is_empty(), "no round trip was timed within the window: choose a longer --window");
    let percentile = |of: f64, fewest: u64| with_lost(&times, lost, of).filter(|_| times.len() >= fewest);
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(&times, &mut bytes)
        .map_err(|error| anyhow::anyhow!("a histogram: {error:?}"))?;
    Ok(Latency {
        open_loop,
        batch: counted.batch,
        min_ns: times.min(),
        mean_ns: times.mean(),
        stddev_ns: times.stdev(),
        p50_ns: with_lost(&times, lost, 0.5).unwrap_or_else(|| times.max()),
        p99_ns: percentile(0.99, Latency::MIN_FOR_P99),
        p999_ns: percentile(0.999, Latency::MIN_FOR_P999),
        max_ns: times.max(),
        histogram: base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::HostLoad;
    use crate::protocol;

    #[test]
    fn fairness_is_the_slowest_producer_divided_by_the_mean() {
        let of = |shares: &[&[u64]]| fairness(true, shares.iter().copied());
        assert_eq!(of(&[&[10, 10]]), Some(1.0));
        assert_eq!(of(&[&[10, 30]]), Some(0.5));
        assert_eq!(of(&[&[0, 30, 30]]), Some(0.0));
        assert_eq!(of(&[&[10, 0], &[0, 10]]), Some(1.0), "two consumers together");
        assert_eq!((of(&[]), of(&[&[]]), of(&[&[0, 0]])), (None, None, None));
    }

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

    #[test]
    fn memory_is_that_of_all_children_or_unknown() {
        let of = |parts: &[Option<u64>]| {
            let child = |memory: &Option<u64>| (Role::All, protocol::Report { memory: *memory, ..Default::default() });
            memory(&Measured { reports: parts.iter().map(child).collect(), ..Measured::default() })
        };
        assert_eq!(of(&[Some(5), Some(7)]), Some(12));
        assert_eq!(of(&[Some(5), None]), None, "a server of the mechanism is not measured");
        assert_eq!([of(&[]), of(&[Some(u64::MAX), Some(1)])], [None, None]);
    }

    #[test]
    fn a_slice_needs_the_counts_of_every_consumer_or_requester() {
        let party = |role, slices: &[(u64, u64, u64, Option<f64>)]| {
            let count =
                |&(lap, messages, ns, p50_ns): &(u64, u64, u64, Option<f64>)| SliceCounts { lap, messages, ns, p50_ns };
            let window_ns = slices.iter().map(|slice| slice.2 + SETTLE_NS).sum();
            PartyReport { slices: slices.iter().map(count).collect(), window_ns, ..PartyReport::new(role) }
        };
        let figures = |pattern, parties: &[PartyReport]| -> Vec<(u64, f64)> {
            slices(pattern, parties.iter()).into_iter().map(|slice| (slice.lap, slice.ns)).collect()
        };
        let sender = party(Role::Producer(0), &[(1, 9, 9, None)]);
        let one = party(Role::Consumer(0), &[(1, 100, 1_000, None), (2, 100, 2_000, None)]);
        let other = party(Role::Consumer(1), &[(2, 300, 2_000, None)]);
        let all = [sender.clone(), one, other];
        assert_eq!(figures(1, &all[..2]), [(1, 10.0), (2, 20.0)]);
        assert_eq!(figures(1, &all), [(2, 5.0)], "together they received 400");
        assert_eq!(figures(2, &all), [(2, 10.0)], "each has every message");
        let latency = Some(LatencyCounts::default());
        let requester =
            PartyReport { latency, ..party(Role::Producer(0), &[(1, 9, 900, Some(70.0)), (2, 1, 900, None)]) };
        assert_eq!(figures(1, &[requester, all[1].clone()]), [(1, 70.0)]);
        // Half of the time it waited for a burst.
        let waiting = PartyReport { window_ns: all[1].window_ns + 3_000, ..all[1].clone() };
        assert_eq!(figures(1, &[waiting]), []);
    }

    #[test]
    fn the_long_turn_is_no_slice() {
        let laps = |count: u64| (1..=count).map(|lap| SliceFigure { lap, ns: lap as f64 }).collect::<Vec<_>>();
        let taken = |slices: &[SliceFigure], window| {
            let mut slices = slices.to_vec();
            (take_long_turn(&mut slices, window), slices.len())
        };
        let time = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
        assert_eq!(taken(&laps(MIN_LAPS as u64 + 1), time), (Some(1.0), MIN_LAPS));
        assert_eq!(taken(&laps(MIN_LAPS as u64), time), (None, MIN_LAPS - 1), "the whole window counts");
        assert_eq!(taken(&laps(MIN_LAPS as u64 + 2)[1..], time), (None, MIN_LAPS + 1), "discarded");
        assert_eq!(taken(&laps(9), Window::Count { warmup: 0, messages: 9 }), (None, 9));
    }

    #[test]
    fn a_long_turn_with_stolen_time_does_not_count_but_its_slices_do() {
        let slice = |lap| SliceCounts { lap, ns: 1_000, messages: 10, p50_ns: None };
        let of = |is_long_turn_stolen| {
            let party = PartyReport {
                messages: 10 * (MIN_LAPS as u64 + 1),
                window_ns: 100_000,
                slices: (1..=MIN_LAPS as u64 + 1).map(slice).collect(),
                ..PartyReport::new(Role::Consumer(0))
            };
            let report = protocol::Report { parties: vec![party], ..Default::default() };
            let measured =
                Measured { reports: vec![(Role::Consumer(0), report)], is_long_turn_stolen, ..Measured::default() };
            let case = r#"{"mechanism": "thread/x", "cell": {"scope": "thread", "pattern": "stream",
                "payload": "u64", "producers": 1, "capacity": 1, "runtime": "thread", "wait": "spin", "place": "free"}}"#;
            let case = serde_json::from_str(case).unwrap();
            let window = Window::Time { warmup_ns: 0, measure_ns: 100_000 };
            let figures = figures(&Spec::new("thread/x"), &case, window, &measured, Disturbance::default()).unwrap();
            (figures.long_turn_ns, figures.slices.len())
        };
        assert_eq!(of(false), (Some(100.0), MIN_LAPS));
        assert_eq!(of(true), (None, MIN_LAPS));
    }

    #[test]
    fn a_percentile_needs_enough_samples() {
        let percentiles = |samples: u64| {
            let latency = latency_of(&LatencyCounts { batch: 1, counts: vec![(100, samples)] }, false, 0).unwrap();
            [latency.p99_ns, latency.p999_ns].map(|ns| ns.is_some())
        };
        assert_eq!([999, 1_000, 9_999, 10_000].map(percentiles), [[false; 2], [true, false], [true, false], [true; 2]]);
    }

    #[test]
    fn an_instance_that_received_nothing_fails_unless_it_was_disturbed() {
        let case = r#"{"mechanism": "thread/x", "cell": {"scope": "thread", "pattern": "stream", "payload": "u64",
            "producers": 1, "capacity": 1, "runtime": "thread", "wait": "spin", "place": "free"}}"#;
        let case = serde_json::from_str(case).unwrap();
        let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
        let figures = |steal, other_load| {
            let measured = Measured { steal, ..Measured::default() };
            figures(
                &Spec::new("thread/x"),
                &case,
                window,
                &measured,
                Disturbance { other_load, ..Disturbance::default() },
            )
        };
        assert_eq!(figures(0.0, Some(0.05)).unwrap_err().kind, FailureKind::Empty);
        assert_eq!(figures(0.0, None).unwrap_err().kind, FailureKind::Empty);
        assert_eq!(figures(0.0, Some(0.4)).unwrap().discarded, Some(Discarded::OtherLoad { share: 0.4 }));
        assert_eq!(figures(0.5, None).unwrap().discarded, Some(Discarded::StolenTime { share: 0.5 }));
    }

    #[test]
    fn a_few_copies_that_are_not_one_message_are_none() {
        let case = r#"{"mechanism": "process/x", "cell": {"scope": "process", "pattern": "pub-sub", "payload": "u64",
            "producers": 4, "capacity": 1, "runtime": "thread", "wait": "block", "place": "free"}}"#;
        let case: Case = serde_json::from_str(case).unwrap();
        let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
        let messages = |of_each: [u64; 4]| {
            let report = |(index, messages)| {
                let role = Role::Consumer(index);
                let party = PartyReport { messages, window_ns: 1_000, ..PartyReport::new(role) };
                (role, protocol::Report { parties: vec![party], ..Default::default() })
            };
            let measured =
                Measured { reports: of_each.into_iter().enumerate().map(report).collect(), ..Measured::default() };
            figures(&Spec::new("process/x"), &case, window, &measured, Disturbance::default())
                .map(|figures| figures.messages)
        };
        assert_eq!(messages([2, 2, 2, 2]).unwrap(), 2);
        assert_eq!(messages([0, 3, 0, 0]).unwrap_err().kind, FailureKind::Empty);
    }

    #[test]
    fn the_other_host_disturbs_as_this_one_does() {
        let case = r#"{"mechanism": "network/x", "cell": {"scope": "network", "pattern": "stream", "payload": "u64",
            "producers": 1, "capacity": 1, "runtime": "thread", "wait": "block", "place": "other-host"}}"#;
        let case = serde_json::from_str(case).unwrap();
        let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
        let discarded = |messages, steal, other_load| {
            let party = PartyReport { messages, window_ns: 1_000, ..PartyReport::new(Role::Consumer(0)) };
            let report = protocol::Report { parties: vec![party], ..Default::default() };
            let measured = Measured {
                reports: vec![(Role::Consumer(0), report)],
                peer_load: Some(HostLoad { steal, other_load }),
                ..Measured::default()
            };
            figures(&Spec::new("network/x"), &case, window, &measured, Disturbance::default())
                .map(|figures| figures.discarded)
        };
        let stolen = Some(Discarded::StolenTimeOfPeer { share: 0.5 });
        assert_eq!(discarded(9, 0.0, Some(0.4)).unwrap(), None);
        assert_eq!(discarded(9, 0.5, None).unwrap(), stolen);
        assert_eq!(discarded(0, 0.5, Some(0.4)).unwrap(), stolen);
        assert_eq!(discarded(0, 0.0, Some(0.4)).unwrap(), Some(Discarded::OtherLoadOfPeer { share: 0.4 }));
        assert_eq!(discarded(0, 0.0, Some(0.05)).unwrap_err().kind, FailureKind::Empty);
    }

    #[test]
    fn open_loops_are_compared_by_the_99th_percentile_even_of_few_samples() {
        let measured = |rest: u64| {
            let counts = vec![(100, 98), (2_000, rest)];
            let party = PartyReport {
                messages: 100,
                window_ns: 1_000,
                latency: Some(LatencyCounts { batch: 1, counts }),
                ..PartyReport::new(Role::Consumer(0))
            };
            let report = protocol::Report { parties: vec![party], ..Default::default() };
            Measured { reports: vec![(Role::Consumer(0), report)], ..Measured::default() }
        };
        let case = r#"{"mechanism": "thread/x", "cell": {"scope": "thread", "pattern": "stream", "payload": "u64",
            "producers": 1, "capacity": 1, "runtime": "thread", "wait": "spin", "place": "free", "load": "1000/s"}}"#;
        let case = serde_json::from_str(case).unwrap();
        let window = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
        for (rest, ns) in [(0, 100.0), (1, 2_000.0), (2, 2_000.0)] {
            let figures =
                figures(&Spec::new("thread/x"), &case, window, &measured(rest), Disturbance::default()).unwrap();
            assert_eq!(figures.latency.as_ref().and_then(|latency| latency.p99_ns), None);
            assert!((figures.metric_ns() / ns - 1.0).abs() < 0.001, "{rest}: {}", figures.metric_ns());
        }
    }

    #[test]
    fn percentiles_come_from_the_counts() {
        let counted = LatencyCounts { batch: 1, counts: vec![(100, 9_890), (1_000, 100), (5_000, 10)] };
        let latency = latency_of(&counted, false, 0).unwrap();
        assert_eq!((latency.min_ns, latency.p50_ns), (100, 100));
        assert!((999..=1_001).contains(&latency.p999_ns.unwrap()) && latency.max_ns >= 5_000);
        assert!(latency_of(&LatencyCounts::default(), false, 0).is_err());
    }

    #[test]
    fn lost_messages_of_an_open_loop_are_the_slowest() {
        let counted = LatencyCounts { batch: 1, counts: vec![(100, 9_950), (1_000, 50)] };
        let of = |lost| latency_of(&counted, true, lost).unwrap();
        assert_eq!((of(0).p99_ns, of(0).p999_ns.map(|ns| ns / 900)), (Some(100), Some(1)));
        // Of 10,060 messages the slowest hundredth are 60 lost ones and 41 slow ones, the slowest thousandth lost ones.
        assert_eq!((of(60).p99_ns.map(|ns| ns / 900), of(60).p999_ns), (Some(1), None));
        assert_eq!((of(200).p50_ns, of(200).p99_ns), (100, None));
        let figures = Figures {
            latency: Some(of(200)),
            lost_in_window: 200,
            ..empty_figures(&Measured::default(), Discarded::StolenTime { share: 0.0 })
        };
        assert_eq!(figures.quantiles(&[0.5, 0.97, 0.99]), [Some(100), Some(100), None]);
    }
}
