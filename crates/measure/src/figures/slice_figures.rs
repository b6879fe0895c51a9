//! The results of the slices of an instance, and of its unpaused run.

use std::collections::BTreeMap;

use crate::case::Role;
use crate::laps::UNPAUSED_LAP;
use crate::protocol::PartyReport;
use crate::record::{MIN_LAPS, SliceFigure};
use crate::slices::{SETTLE_NS, SliceCounts};
use crate::window::Window;

/// The least part of the window that slices must cover. Steady messages give 0.75 and more:
/// stopping and resuming the processes takes time, too.
const MIN_COVERAGE: f64 = 0.6;

/// The result of each complete slice: the time per message, or the median round trip.
///
/// If any party has latencies, the parties that have them count, otherwise the consumers. A slice
/// is complete if each of these parties has counts for its lap.
///
/// There are none if messages arrive in bursts. A slice ends with the last message of a turn, so
/// it does not contain the time in which the consumer waited for the next burst, for example while
/// the producer ran on the same core.
pub(super) fn slices<'a>(copies: usize, parties: impl Iterator<Item = &'a PartyReport> + Clone) -> Vec<SliceFigure> {
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
        party.slices.iter().partition(|slice| slice.lap == UNPAUSED_LAP);
    let time = |slices: &[SliceCounts]| slices.iter().map(|slice| slice.ns).sum::<u64>();
    let uncounted = time(&first) + party.slices.len() as u64 * SETTLE_NS;
    let counted = party.window_ns.checked_sub(uncounted).filter(|ns| *ns > 0)?;
    (!slices.is_empty()).then(|| time(&slices) as f64 / counted as f64)
}

/// Takes the result of the unpaused run from the slices. It is the first lap. `None` if there is
/// none, or if there are too few slices, so that the whole window counts.
pub(super) fn take_unpaused_run(slices: &mut Vec<SliceFigure>, window: Window) -> Option<f64> {
    if matches!(window, Window::Count { .. }) {
        return None;
    }
    let first = slices.first().filter(|slice| slice.lap == UNPAUSED_LAP).map(|slice| slice.ns);
    slices.retain(|slice| slice.lap != UNPAUSED_LAP);
    first.filter(|_| slices.len() >= MIN_LAPS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::LatencyCounts;

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
    fn the_unpaused_run_is_no_slice() {
        let laps = |count: u64| (1..=count).map(|lap| SliceFigure { lap, ns: lap as f64 }).collect::<Vec<_>>();
        let taken = |slices: &[SliceFigure], window| {
            let mut slices = slices.to_vec();
            (take_unpaused_run(&mut slices, window), slices.len())
        };
        let time = Window::Time { warmup_ns: 0, measure_ns: 1_000 };
        assert_eq!(taken(&laps(MIN_LAPS as u64 + 1), time), (Some(1.0), MIN_LAPS));
        assert_eq!(taken(&laps(MIN_LAPS as u64), time), (None, MIN_LAPS - 1), "the whole window counts");
        assert_eq!(taken(&laps(MIN_LAPS as u64 + 2)[1..], time), (None, MIN_LAPS + 1), "discarded");
        assert_eq!(taken(&laps(9), Window::Count { warmup: 0, messages: 9 }), (None, 9));
    }
}
