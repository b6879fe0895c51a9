//! The results of one mechanism in a cell, over all of its instances.

use std::collections::BTreeSet;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::bound::kernel_ns;
use crate::breach::Breach;
use crate::case::Load;
use crate::pairs::{ValidInstance, valid};
use crate::pattern_figures::{PatternFigures, PatternResult};
use crate::plan::slice_length;
use crate::record::{Figures, Latency, MIN_LAPS, Outcome, Record, with_lost};
use crate::spec::Spec;
use crate::stats::{Interval, Modes, Verdict, median, modes};
use crate::window::Window;

/// One mechanism in a cell.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its description.
    pub spec: Spec,
    /// The number of messages that may be in flight, as probed. `None` if it could not be probed.
    pub effective_capacity: Option<u64>,
    /// System calls of all its processes per message or round trip. `None` if they were not
    /// counted.
    pub calls: Option<f64>,
    /// The processor time of these calls and of the kernel's copies: see [`kernel_ns`].
    pub kernel_ns: Option<f64>,
    /// Its results. `None` if every instance failed or was discarded, or for the reason in
    /// `no_result`.
    pub result: Option<RowResult>,
    /// The number of failed instances, and the reason of the first failure.
    pub failed: Option<(usize, String)>,
    /// The promise that it broke.
    pub breach: Option<Breach>,
    /// Why it has no result, although instances are valid.
    pub no_result: Option<NoResult>,
}

/// Why a mechanism with valid instances has no result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoResult {
    /// It lost this share of the messages of an open loop, from 0 to 1. It has no 99th percentile,
    /// by which it would be compared.
    LosesTooMuch(f64),
    /// Its round trips take this many nanoseconds, which is longer than a slice. It may wait for a
    /// timer of the kernel. Timers run on while its processes are stopped and its clock is not read.
    LongerThanSlice(f64),
}

/// If a mechanism loses this part of the messages of an open loop, there is no 99th percentile, by
/// which it would be compared.
const NO_P99: f64 = 0.01;

/// The results of a mechanism in a cell: medians over its instances, unless stated otherwise.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// The metric by which mechanisms are compared: see [`Figures::metric_ns`].
    pub metric_ns: f64,
    /// The number of rounds with an instance that counts.
    pub rounds: usize,
    /// Which measurement of each instance is compared.
    pub basis: Basis,
    /// The fast and the slow mode of its slices. `None` if there is one mode, or if it was not
    /// measured in slices.
    pub modes: Option<Modes>,
    /// The median round-trip time in nanoseconds, which is then the metric too, or in an open loop
    /// the median latency.
    pub p50_ns: Option<f64>,
    /// The 99th percentile of the round trips or latencies of all instances together.
    pub p99_ns: Option<f64>,
    /// The 99.9th percentile of the same.
    pub p999_ns: Option<f64>,
    /// The maximum number of round trips that were timed together, because one is too short for the
    /// clock. Each time is the mean of such a batch.
    pub batch: u64,
    /// Processor time per message, in nanoseconds.
    pub cpu_ns: Option<f64>,
    /// The parts of the sender and of the receiver, if they are separate processes.
    pub sides_cpu_ns: [Option<f64>; 2],
    /// What only its pattern has.
    pub of_pattern: PatternResult,
    /// Context switches per message.
    pub switches: Option<f64>,
    /// The messages received from the slowest producer, as a part of the mean of all producers.
    /// Only with several producers.
    pub fairness: Option<f64>,
    /// The memory of all processes at the end of the window, in bytes, beyond what they had before
    /// the mechanism was opened.
    pub memory: Option<f64>,
    /// The share of messages lost within the windows, from 0 to 1, over all instances.
    pub lost: f64,
    /// Its rank among the cell's mechanisms. `None` for the control, if the noise floor is unknown,
    /// and if it cannot be compared with the first one: it has too few rounds in common with
    /// others.
    pub rank: Option<Rank>,
    /// The comparison with the first row, as a ln ratio. Negative is worse. `None` for the first
    /// row and with too few rounds.
    pub versus: Option<Interval>,
    /// The verdict from that comparison. `None` for the first row.
    pub verdict: Option<Verdict>,
}

/// The part of an instance by which a mechanism is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Short slices in turns with the other mechanisms.
    Slices,
    /// The same, although too few rounds have an unpaused run to find out whether pauses change it.
    UncheckedSlices,
    /// One unpaused run, because it runs differently after a pause.
    UnpausedRun,
    /// The whole window.
    Window,
}

/// The minimum number of unpaused runs that say whether pauses change a mechanism: with fewer, no
/// interval over them has the confidence.
const MIN_UNPAUSED_RUNS: usize = 6;

impl Basis {
    /// `has_unpaused_runs`: whether the run measured unpaused runs at all.
    fn of(figures: &[&Figures], has_unpaused_runs: bool) -> Basis {
        if figures.iter().any(|figures| figures.slices.len() >= MIN_LAPS) {
            let unpaused_runs = figures.iter().filter(|figures| figures.unpaused_run_ns.is_some()).count();
            let is_unchecked = has_unpaused_runs && unpaused_runs < MIN_UNPAUSED_RUNS;
            if is_unchecked { Basis::UncheckedSlices } else { Basis::Slices }
        } else if figures.iter().any(|figures| figures.unpaused_run_ns.is_some()) {
            Basis::UnpausedRun
        } else {
            Basis::Window
        }
    }
}

/// A rank in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The rank, from 1: one more than the number of mechanisms with a better rank.
    pub number: usize,
    /// Whether another mechanism has the same rank, because the difference is not decided.
    pub tied: bool,
}

impl Row {
    /// The metric of its result in nanoseconds. Infinite without a result.
    pub fn metric_ns(&self) -> f64 {
        self.result.as_ref().map_or(f64::INFINITY, |result| result.metric_ns)
    }
}

/// The row of an entrant. `None` if the record does not describe its mechanism.
pub(super) fn row(record: &Record, at: usize) -> Option<Row> {
    let entrant = &record.entrants[at];
    let outcomes =
        || record.instances.iter().filter(|instance| instance.entrant == at).map(|instance| &instance.outcome);
    let mut failures = outcomes().filter_map(|outcome| match outcome {
        Outcome::Failed { why, .. } => Some(why),
        Outcome::Measured(_) => None,
    });
    let first = failures.next().cloned();
    let spec = record.spec(&entrant.case.mechanism)?;
    let result = row_result(record, at);
    let no_result = reason_without_result(record, at, result.as_ref());
    Some(Row {
        spec: spec.clone(),
        effective_capacity: entrant.effective_capacity,
        calls: entrant.calls,
        kernel_ns: record.limits.as_ref().and_then(|limits| kernel_ns(&entrant.case, spec, entrant.calls, limits)),
        result: result.filter(|_| no_result.is_none()),
        no_result,
        failed: first.map(|why| (1 + failures.count(), why)),
        breach: outcomes().find_map(|outcome| match outcome {
            Outcome::Measured(figures) => figures.breach.clone(),
            Outcome::Failed { .. } => None,
        }),
    })
}

/// Why an entrant with valid instances has no result. `None` if it has one, or no valid instance.
pub fn no_result(record: &Record, at: usize) -> Option<NoResult> {
    reason_without_result(record, at, row_result(record, at).as_ref())
}

/// As [`no_result`], for an entrant with the result `computed` from its valid instances.
fn reason_without_result(record: &Record, at: usize, computed: Option<&RowResult>) -> Option<NoResult> {
    let lost = loss_without_p99(record, at).map(NoResult::LosesTooMuch);
    lost.or_else(|| longer_than_slice(record, at, computed?))
}

/// Whether the round trips of an entrant that ran in slices, and is not compared by unpaused runs, are
/// longer than a slice.
fn longer_than_slice(record: &Record, at: usize, result: &RowResult) -> Option<NoResult> {
    let cell = &record.entrants[at].case.cell;
    let sliced = match record.window {
        Window::Time { measure_ns, .. } => Some(Duration::from_nanos(measure_ns)),
        Window::Count { .. } => None,
    };
    let slice = slice_length(Duration::from_nanos(record.slice_ns?), cell.payload.len(), sliced);
    let slice_ns = slice.as_nanos() as f64;
    let is_sliced = result.basis != Basis::UnpausedRun && valid(record, at).any(|measured| measured.ran_in_slices());
    let is_longer = is_sliced && cell.pattern.is_round_trip() && result.metric_ns > slice_ns;
    is_longer.then_some(NoResult::LongerThanSlice(result.metric_ns))
}

/// The share of messages that an entrant lost in an open loop, if it lost so many that it has no
/// 99th percentile and so no result.
pub fn loss_without_p99(record: &Record, entrant: usize) -> Option<f64> {
    let is_open_loop = record.entrants[entrant].case.load != Load::Saturated;
    Some(share_lost(valid(record, entrant))).filter(|lost| is_open_loop && *lost >= NO_P99)
}

/// The share of messages that an entrant lost within the window of each valid instance, from 0 to
/// 1.
pub fn losses(record: &Record, entrant: usize) -> Vec<f64> {
    valid(record, entrant).map(|instance| instance.figures.share_lost()).collect()
}

/// The share of messages lost within the windows of instances.
fn share_lost<'a>(instances: impl Iterator<Item = ValidInstance<'a>>) -> f64 {
    let (mut arrived, mut lost) = (0.0, 0.0);
    for ValidInstance { figures, .. } in instances {
        arrived += figures.messages as f64;
        lost += figures.lost_in_window as f64;
    }
    lost / f64::max(arrived + lost, 1.0)
}

/// Whether a run measured unpaused runs. Runs by count do not, and older versions did not.
fn has_unpaused_runs(record: &Record) -> bool {
    record
        .instances
        .iter()
        .any(|instance| matches!(&instance.outcome, Outcome::Measured(figures) if figures.unpaused_run_ns.is_some()))
}

/// The results of an entrant. `None` if no instance is valid.
fn row_result(record: &Record, at: usize) -> Option<RowResult> {
    let figures: Vec<&Figures> = valid(record, at).map(|measured| measured.figures).collect();
    let middle = |of: &dyn Fn(&Figures) -> Option<f64>| {
        median(&figures.iter().filter_map(|figures| of(figures)).collect::<Vec<_>>())
    };
    let sum = |of: fn(&Figures) -> u64| figures.iter().map(|figures| of(figures) as f64).sum::<f64>();
    let of_pattern: Vec<PatternFigures> = figures.iter().map(|figures| figures.of_pattern).collect();
    let slices: Vec<Vec<f64>> = figures
        .iter()
        .map(|figures| figures.slices.iter().map(|slice| slice.ns).filter(|ns| *ns > 0.0).collect())
        .collect();
    let metric_ns = middle(&|figures| Some(figures.metric_ns()))?;
    let latencies = all_latencies(&figures);
    let is_open_loop = record.entrants[at].case.load != Load::Saturated;
    let lost_of_percentiles = if is_open_loop { sum(|figures| figures.lost_in_window) as u64 } else { 0 };
    let percentile = |quantile: f64, fewest: u64| {
        let all = latencies.as_ref().filter(|all| all.len() >= fewest)?;
        Some(with_lost(all, lost_of_percentiles, quantile)? as f64)
    };
    Some(RowResult {
        metric_ns,
        rounds: valid(record, at).map(|measured| measured.round()).collect::<BTreeSet<_>>().len(),
        basis: Basis::of(&figures, has_unpaused_runs(record)),
        modes: modes(&slices),
        // The median of all pooled round trips would differ: a slow mode has fewer of them.
        p50_ns: match figures.iter().all(|figures| figures.latency.as_ref().is_some_and(|latency| !latency.open_loop)) {
            true => Some(metric_ns),
            false => middle(&|figures| Some(figures.latency.as_ref()?.p50_ns as f64)),
        },
        p99_ns: percentile(0.99, Latency::MIN_FOR_P99),
        p999_ns: percentile(0.999, Latency::MIN_FOR_P999),
        batch: figures.iter().filter_map(|figures| Some(figures.latency.as_ref()?.batch)).max().unwrap_or(1),
        cpu_ns: middle(&|figures| figures.cpu_ns_per_message),
        sides_cpu_ns: [
            middle(&|figures: &Figures| figures.sender_cpu_ns),
            middle(&|figures: &Figures| figures.receiver_cpu_ns),
        ],
        of_pattern: record.entrants[at]
            .case
            .pattern
            .rules()
            .pattern_result(&of_pattern, sum(|figures| figures.faults.lost) as u64),
        switches: middle(&|figures| figures.switches_per_message),
        fairness: middle(&|figures| figures.fairness),
        memory: middle(&|figures| figures.memory.map(|bytes| bytes as f64)),
        lost: share_lost(valid(record, at)),
        rank: None,
        versus: None,
        verdict: None,
    })
}

/// The latencies of all instances together. `None` without any.
fn all_latencies(figures: &[&Figures]) -> Option<Histogram<u64>> {
    let mut histograms = figures.iter().filter_map(|figures| figures.latency.as_ref()?.times());
    let mut all = histograms.next()?;
    all.auto(true);
    histograms.try_for_each(|histogram| all.add(histogram)).ok()?;
    Some(all)
}
