//! Rankings: compares and ranks the mechanisms of each cell of a record.

use hdrhistogram::Histogram;

use crate::bound::{Bound, bind, kernel_ns};
use crate::breach::Breach;
use crate::burst::BurstMemory;
use crate::case::{Cell, Load, Place};
use crate::core_distance::{Comparable, LeftOut};
use crate::pace::message_loss;
use crate::pairs::{Measured, log_ratios, valid};
use crate::protocol::CodecFigures;
use crate::record::{Figures, InstanceRecord, Latency, MIN_LAPS, Outcome, Record, with_lost};
use crate::spec::{Spec, Standing};
use crate::stats::{
    CONFIDENCE, Interval, Margins, Modes, Verdict, log_ratio_sd, median, median_interval, modes, noise_floor, verdict,
};

/// The ranking of one cell.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The cell.
    pub cell: Cell,
    /// Its mechanisms, best first. Those without a result are last. The others are compared with
    /// the first.
    pub rows: Vec<Row>,
    /// The A/A control: a second entrant with one of the mechanisms. It is compared with the first
    /// entrant of the same mechanism.
    pub control: Option<Row>,
    /// The noise floor, as a ln ratio. A difference below it is never decided. `None` with too few
    /// valid rounds.
    pub floor: Option<f64>,
    /// The standard deviation of the control's ln ratios.
    pub noise: Option<f64>,
    /// The lower bound of the time that the machine allows.
    pub bound: Option<Bound>,
    /// Whether the run measured in slices whatever can be.
    pub slices: bool,
    /// The number of discarded instances. Only causes that were defined before the run count.
    pub discarded: usize,
    /// The rounds that do not count, because the cores were at another distance. `None` if all
    /// count.
    pub left_out: Option<LeftOut>,
    /// The largest share of messages that the link between two hosts may lose, by its measured packet loss. 0 on one host.
    pub link_loss: f64,
    /// How wrong the times may be, if they were measured from one host to the other.
    pub one_way: Option<OneWay>,
    /// The comparison of each row with each row below it. `pairs[i][j - i - 1]` compares row `j`
    /// with row `i`.
    pairs: Vec<Vec<Comparison>>,
}

/// What is known about times that were measured from one host's clock to another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneWay {
    /// The largest error of any instance, in nanoseconds: [`crate::hosts::ClockError::max_ns`].
    pub error_ns: f64,
    /// Half of the fastest round trip of a minimal packet on the link, in nanoseconds. `None` if the link was not
    /// measured.
    pub half_round_trip_ns: Option<f64>,
}

/// The comparison of two mechanisms.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The ln ratio. Positive if the second mechanism is better. `None` with too few rounds.
    pub interval: Option<Interval>,
    /// The verdict from the interval and the cell's noise floor.
    pub verdict: Verdict,
}

impl Ranking {
    /// The comparison of row `second` with row `first`.
    ///
    /// # Panics
    /// If they are the same, or if one of them is not the index of a row.
    pub fn comparison(&self, first: usize, second: usize) -> Comparison {
        if first < second {
            self.pairs[first][second - first - 1].clone()
        } else {
            let Comparison { interval, verdict } = &self.pairs[second][first - second - 1];
            Comparison { interval: interval.as_ref().map(Interval::inverse), verdict: verdict.inverse() }
        }
    }

    /// The best of some rows, which are given by their indexes: the first that no other of them is known to beat.
    /// It need not be the first of them, because rows are sorted by their comparisons with the first row of all. Where each is beaten
    /// by another, in a cycle, it is the first. `None` without rows.
    pub fn best_of(&self, rows: &[usize]) -> Option<usize> {
        let is_beaten = |row: usize| {
            rows.iter().any(|other| *other != row && self.comparison(row, *other).verdict == Verdict::Faster)
        };
        rows.iter().copied().find(|row| !is_beaten(*row)).or(rows.first().copied())
    }

    /// The smallest difference that this cell detects, as a ln ratio. If a difference is this
    /// large, an interval of median width around it lies completely above the decision threshold.
    /// `None` if the noise floor is unknown, or if no mechanisms are compared.
    pub fn resolution(&self) -> Option<f64> {
        let threshold = Margins::default().decision_threshold(self.floor?)?;
        let compared = self.rows.iter().filter_map(|row| row.result.as_ref()?.versus.as_ref());
        let widths: Vec<f64> = compared.map(Interval::half_width).collect();
        Some(threshold + median(&widths)?)
    }
}

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
    /// Its results. `None` if every instance failed or was discarded, or if it lost too much.
    pub result: Option<RowResult>,
    /// The number of failed instances, and the reason of the first failure.
    pub failed: Option<(usize, String)>,
    /// The promise that it broke.
    pub breach: Option<Breach>,
    /// The share of messages that it lost, if it lost so many of an open loop that it has no result.
    pub lost: Option<f64>,
}

/// If a mechanism loses this part of the messages of an open loop, there is no 99th percentile, by which it would be compared.
const NO_P99: f64 = 0.01;

/// The results of a mechanism in a cell: medians over its instances, unless stated otherwise.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// The metric by which mechanisms are compared: see [`Figures::metric_ns`].
    pub metric_ns: f64,
    /// What of its instances is compared.
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
    /// The time that a codec takes to encode and to decode a message, and the encoded length.
    pub codec: Option<CodecFigures>,
    /// Context switches per message.
    pub switches: Option<f64>,
    /// The messages received from the slowest producer, as a part of the mean of all producers.
    /// Only with several producers.
    pub fairness: Option<f64>,
    /// The memory of all processes at the end of the window, in bytes, beyond what they had before the
    /// mechanism was opened.
    pub memory: Option<f64>,
    /// The memory of the channel in bytes: when it was opened, with the whole burst in it, and
    /// after all messages were received.
    pub burst_memory: Option<[f64; 3]>,
    /// The number of pending receives that were dropped, and of messages that were lost, over all
    /// instances.
    pub dropped: (u64, u64),
    /// The share of messages lost within the windows, from 0 to 1, over all instances.
    pub lost: f64,
    /// Its place among the cell's mechanisms. `None` for the control, and if the noise floor is
    /// unknown.
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
    /// The same, although too few rounds have a long turn to find out whether pauses change it.
    UncheckedSlices,
    /// One long turn, because it runs differently after a pause.
    LongTurn,
    /// The whole window.
    Window,
}

/// The minimum number of long turns that say whether pauses change a mechanism: with fewer, no
/// interval over them has the confidence.
const MIN_LONG_TURNS: usize = 6;

impl Basis {
    /// `has_long_turns`: whether the run measured long turns at all.
    fn of(figures: &[&Figures], has_long_turns: bool) -> Basis {
        if figures.iter().any(|figures| figures.slices.len() >= MIN_LAPS) {
            let long_turns = figures.iter().filter(|figures| figures.long_turn_ns.is_some()).count();
            let is_unchecked = has_long_turns && long_turns < MIN_LONG_TURNS;
            if is_unchecked { Basis::UncheckedSlices } else { Basis::Slices }
        } else if figures.iter().any(|figures| figures.long_turn_ns.is_some()) {
            Basis::LongTurn
        } else {
            Basis::Window
        }
    }
}

/// A place in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The place, from 1: one more than the number of mechanisms with a better place.
    pub place: usize,
    /// Whether another mechanism has the same place, because the difference is not decided.
    pub tied: bool,
}

/// The rankings of a record, in the order of its entrants. Only rounds at one distance of the cores
/// count in a cell: see [`Comparable`].
pub fn rank(record: &Record) -> Vec<Ranking> {
    let comparable = Comparable::of(record);
    let record = &comparable.record;
    let mut cells: Vec<&Cell> = Vec::new();
    for entrant in &record.entrants {
        if !cells.contains(&&entrant.case.cell) {
            cells.push(&entrant.case.cell);
        }
    }
    cells.into_iter().map(|cell| rank_cell(record, cell, comparable.left_out(cell))).collect()
}

fn rank_cell(record: &Record, cell: &Cell, left_out: Option<LeftOut>) -> Ranking {
    let (controls, entrants): (Vec<usize>, Vec<usize>) = (0..record.entrants.len())
        .filter(|&at| record.entrants[at].case.cell == *cell)
        .partition(|&at| record.entrants[at].control);
    let control = controls.first().copied().and_then(|control| {
        let case = &record.entrants[control].case;
        Some((entrants.iter().copied().find(|&at| record.entrants[at].case == *case)?, control))
    });
    let control_pairs = control.map(|(original, control)| log_ratios(record, original, control)).unwrap_or_default();
    let floor = noise_floor(&control_pairs);
    let mut rows: Vec<(usize, Row)> = entrants.iter().filter_map(|&at| Some((at, row(record, at)?))).collect();
    sort(record, &mut rows);
    assign_places(record, &mut rows, floor);
    let pairs = compare_all(record, &rows, floor);
    compare_with_first(&mut rows, &pairs);
    let of_cell = |instance: &&InstanceRecord| record.entrants[instance.entrant].case.cell == *cell;
    let measured = record.instances.iter().filter(of_cell).filter_map(|instance| match &instance.outcome {
        Outcome::Measured(figures) => Some(figures),
        Outcome::Failed { .. } => None,
    });
    let (discarded, counted): (Vec<_>, Vec<_>) = measured.partition(|figures| figures.discarded.is_some());
    let clock_error_ns = counted.iter().filter_map(|figures| Some(figures.clock_error?.max_ns)).max();
    let half_round_trip_ns = record.link().map(|link| link.round_trip_fastest_ns / 2.0);
    let reference_ns = reference_ns(&rows);
    let fastest_ns = rows.iter().filter_map(|(_, row)| Some(row.result.as_ref()?.metric_ns)).min_by(f64::total_cmp);
    Ranking {
        cell: cell.clone(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        control: control.and_then(|(original, control)| control_row(record, original, control)),
        floor,
        slices: record.slice_ns.is_some(),
        noise: log_ratio_sd(&control_pairs),
        bound: record
            .limits
            .as_ref()
            .and_then(|limits| bind(cell, limits, reference_ns, &record.handling, record.link(), fastest_ns)),
        discarded: discarded.len(),
        left_out,
        link_loss: record
            .link()
            .filter(|_| cell.place == Place::OtherHost)
            .map_or(0.0, |link| message_loss(link.loss.largest(), cell.payload.len())),
        one_way: clock_error_ns.map(|ns| OneWay { error_ns: ns as f64, half_round_trip_ns }),
        pairs,
    }
}

/// The comparison of the control with the other entrant of its mechanism. Only the margins decide
/// here. The noise floor does not count, because it comes from the same comparison.
fn control_row(record: &Record, original: usize, control: usize) -> Option<Row> {
    let mut row = row(record, control)?;
    if let Some(result) = &mut row.result {
        let comparison = compare(record, original, control, Some(0.0));
        (result.versus, result.verdict) = (comparison.interval, Some(comparison.verdict));
    }
    Some(row)
}

/// Sorts rows, best first, by their paired ratios, from which the verdicts follow too. The order of
/// the medians may differ from this on a machine that drifts between rounds.
fn sort(record: &Record, rows: &mut [(usize, Row)]) {
    let of_row = |(at, row): &(usize, Row)| Contender { at: *at, metric_ns: row.metric() };
    let measured = rows.iter().filter(|(_, row)| row.result.is_some()).map(of_row).collect();
    if let Some(first) = best(record, measured) {
        let key = |row: &(usize, Row)| {
            let of_row = of_row(row);
            (row.1.result.is_none(), of_row.at != first.at, -advantage(record, first, of_row))
        };
        rows.sort_by(|a, b| {
            let ((a_none, a_other, a_worse), (b_none, b_other, b_worse)) = (key(a), key(b));
            (a_none, a_other).cmp(&(b_none, b_other)).then(a_worse.total_cmp(&b_worse))
        });
    }
}

fn compare(record: &Record, above: usize, below: usize, floor: Option<f64>) -> Comparison {
    let interval = median_interval(&log_ratios(record, above, below), CONFIDENCE);
    let verdict = verdict(interval.as_ref(), floor, Margins::default());
    Comparison { interval, verdict }
}

/// Compares every row with every row above it.
fn compare_all(record: &Record, rows: &[(usize, Row)], floor: Option<f64>) -> Vec<Vec<Comparison>> {
    // What has no result is not compared, although it may have valid instances: it lost too much.
    let of = |(a, above): &(usize, Row), (b, below): &(usize, Row)| match (&above.result, &below.result) {
        (Some(_), Some(_)) => compare(record, *a, *b, floor),
        _ => Comparison { interval: None, verdict: Verdict::Inconclusive },
    };
    let with_others = |above: usize| rows[above + 1..].iter().map(|below| of(&rows[above], below)).collect();
    (0..rows.len()).map(with_others).collect()
}

/// Gives each sorted row its place. It depends on how many rows are known to be better. Rows with
/// the same number share a place and are adjacent. A row that has too few rounds in common with every other
/// row has no place, and comes after those that have one.
fn assign_places(record: &Record, rows: &mut [(usize, Row)], floor: Option<f64>) {
    let pairs = compare_all(record, rows, floor);
    let mut better = vec![0; rows.len()];
    let mut is_compared = vec![rows.len() == 1; rows.len()];
    for (above, pairs) in pairs.iter().enumerate() {
        for (below, pair) in (above + 1..).zip(pairs) {
            if pair.interval.is_some() {
                (is_compared[above], is_compared[below]) = (true, true);
            }
            match pair.verdict {
                Verdict::Slower => better[below] += 1,
                Verdict::Faster => better[above] += 1,
                Verdict::Equivalent | Verdict::Inconclusive => {}
            }
        }
    }
    let mut order: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].1.result.is_some() && is_compared[*at]).collect();
    order.sort_by_key(|at| better[*at]);
    for (index, &at) in order.iter().enumerate() {
        let group = order.iter().filter(|other| better[**other] == better[at]).count();
        let first = order[..index].iter().filter(|other| better[**other] != better[at]).count();
        if let Some(result) = rows[at].1.result.as_mut().filter(|_| floor.is_some()) {
            result.rank = Some(Rank { place: first + 1, tied: group > 1 });
        }
    }
    // The sort is stable, so the best row of a place stays first.
    rows.sort_by_key(|(_, row)| {
        row.result.as_ref().and_then(|result| result.rank).map_or(usize::MAX, |rank| rank.place)
    });
}

/// Compares each row with the first.
fn compare_with_first(rows: &mut [(usize, Row)], pairs: &[Vec<Comparison>]) {
    for (index, (_, row)) in rows.iter_mut().enumerate().skip(1) {
        if let Some(result) = &mut row.result {
            let comparison = &pairs[0][index - 1];
            (result.versus, result.verdict) = (comparison.interval, Some(comparison.verdict));
        }
    }
}

/// The metric of the cell's reference, the simplest implementation that is possible.
fn reference_ns(rows: &[(usize, Row)]) -> Option<f64> {
    let reference = rows.iter().find(|(_, row)| row.spec.standing == Standing::Reference);
    reference.and_then(|(_, row)| Some(row.result.as_ref()?.metric_ns))
}

/// An entrant with its median metric.
#[derive(Clone, Copy)]
struct Contender {
    at: usize,
    metric_ns: f64,
}

/// The median ln ratio of `a` and `b`; without common rounds, the ln ratio of their metrics. Positive if `b` is better.
fn advantage(record: &Record, a: Contender, b: Contender) -> f64 {
    median(&log_ratios(record, a.at, b.at)).unwrap_or_else(|| (a.metric_ns / b.metric_ns).ln())
}

/// The best of some entrants, by their paired ratios. The metric decides between equals.
fn best(record: &Record, mut entrants: Vec<Contender>) -> Option<Contender> {
    entrants.sort_by(|a, b| a.metric_ns.total_cmp(&b.metric_ns));
    let indices: Vec<usize> = (0..entrants.len()).collect();
    minimax(&indices, |a, b| advantage(record, entrants[a], entrants[b])).map(|at| entrants[at])
}

/// The entrant with the smallest worst defeat (the minimax method of Simpson and Kramer). That is
/// the one that no other beats, if there is one. If the comparisons form a cycle, each is beaten by
/// another. The first of equals.
///
/// `advantage(a, b)` says by how much `b` is better than `a`.
fn minimax(entrants: &[usize], advantage: impl Fn(usize, usize) -> f64) -> Option<usize> {
    let worst_defeat = |a: usize| entrants.iter().filter(|&&b| b != a).map(|&b| advantage(a, b)).fold(0.0, f64::max);
    let defeats: Vec<(usize, f64)> = entrants.iter().map(|&at| (at, worst_defeat(at))).collect();
    defeats.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}

impl Row {
    fn metric(&self) -> f64 {
        self.result.as_ref().map_or(f64::INFINITY, |result| result.metric_ns)
    }
}

fn row(record: &Record, at: usize) -> Option<Row> {
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
    let lost = loss_without_p99(record, at);
    Some(Row {
        spec: spec.clone(),
        effective_capacity: entrant.effective_capacity,
        calls: entrant.calls,
        kernel_ns: record.limits.as_ref().and_then(|limits| kernel_ns(&entrant.case, spec, entrant.calls, limits)),
        result: result.filter(|_| lost.is_none()),
        lost,
        failed: first.map(|why| (1 + failures.count(), why)),
        breach: outcomes().find_map(|outcome| match outcome {
            Outcome::Measured(figures) => figures.breach.clone(),
            Outcome::Failed { .. } => None,
        }),
    })
}

/// The share of messages that an entrant lost in an open loop, if it lost so many that it has no 99th percentile and so
/// no result.
pub fn loss_without_p99(record: &Record, entrant: usize) -> Option<f64> {
    let is_open_loop = record.entrants[entrant].case.load != Load::Saturated;
    Some(share_lost(valid(record, entrant))).filter(|lost| is_open_loop && *lost >= NO_P99)
}

/// The share of messages that an entrant lost within the window of each valid instance, from 0 to 1.
pub fn losses(record: &Record, entrant: usize) -> Vec<f64> {
    valid(record, entrant).map(|instance| instance.figures.share_lost()).collect()
}

/// The share of messages lost within the windows of instances.
fn share_lost<'a>(instances: impl Iterator<Item = Measured<'a>>) -> f64 {
    let (mut arrived, mut lost) = (0.0, 0.0);
    for Measured { figures, .. } in instances {
        arrived += figures.messages as f64;
        lost += figures.lost_in_window as f64;
    }
    lost / f64::max(arrived + lost, 1.0)
}

/// Whether a run measured long turns. Runs by count do not, and older versions did not.
fn has_long_turns(record: &Record) -> bool {
    record
        .instances
        .iter()
        .any(|instance| matches!(&instance.outcome, Outcome::Measured(figures) if figures.long_turn_ns.is_some()))
}

/// The results of an entrant. `None` if no instance is valid.
fn row_result(record: &Record, at: usize) -> Option<RowResult> {
    let figures: Vec<&Figures> = valid(record, at).map(|measured| measured.figures).collect();
    let middle = |of: &dyn Fn(&Figures) -> Option<f64>| {
        median(&figures.iter().filter_map(|figures| of(figures)).collect::<Vec<_>>())
    };
    let sum = |of: fn(&Figures) -> u64| figures.iter().map(|figures| of(figures) as f64).sum::<f64>();
    let burst =
        |of: fn(&BurstMemory) -> u64| middle(&|figures| figures.burst_memory.as_ref().map(|sizes| of(sizes) as f64));
    let codec = |of: fn(&CodecFigures) -> f64| middle(&|figures| figures.codec.as_ref().map(of));
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
        basis: Basis::of(&figures, has_long_turns(record)),
        modes: modes(&slices),
        // Over all round trips, the median would be another: a slow mode has fewer of them.
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
        codec: codec(|codec| codec.encode_ns)
            .zip(codec(|codec| codec.decode_ns))
            .zip(codec(|codec| codec.encoded_bytes))
            .map(|((encode_ns, decode_ns), encoded_bytes)| CodecFigures { encode_ns, decode_ns, encoded_bytes }),
        switches: middle(&|figures| figures.switches_per_message),
        fairness: middle(&|figures| figures.fairness),
        memory: middle(&|figures| figures.memory.map(|bytes| bytes as f64)),
        burst_memory: burst(|sizes| sizes.empty)
            .zip(burst(|sizes| sizes.full))
            .zip(burst(|sizes| sizes.after))
            .map(|((empty, full), after)| [empty, full, after]),
        dropped: (sum(|figures| figures.dropped_receives) as u64, sum(|figures| figures.faults.lost) as u64),
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pairs::tests::instance;

    /// A record of one cell. `mechanisms` has the nanoseconds per message in each round. The first
    /// mechanism has a control with the same results.
    pub(crate) fn record(mechanisms: &[(&str, &[u64])]) -> Record {
        let cell = crate::suite::Suite::Overview.cells(crate::suite::Profile::Quick)[1].clone();
        let case = |name: &str| serde_json::json!({ "mechanism": name, "cell": cell });
        let control = mechanisms[0];
        let all: Vec<_> = mechanisms.iter().map(|of| (of, false)).chain([(&control, true)]).collect();
        let instances = all.iter().enumerate().flat_map(|(entrant, ((_, rounds), _))| {
            rounds
                .iter()
                .enumerate()
                .map(move |(round, ns)| InstanceRecord { round, ..instance(entrant, None, *ns, &[]) })
        });
        let instances: Vec<_> = instances.collect();
        serde_json::from_value(serde_json::json!({
            "format": crate::record::FORMAT, "version": crate::record::VERSION, "tool": "0", "started": "", "seed": 0,
            "window": { "count": { "warmup": 1, "messages": 1 } }, "rounds_planned": 6, "rounds": 6,
            "fingerprint": crate::fingerprint::Fingerprint::take(), "limits": null, "handling": [],
            "mechanisms": mechanisms.iter().map(|(name, _)| Spec::new(name)).collect::<Vec<_>>(),
            "entrants": all.iter().map(|((name, _), control)| serde_json::json!({ "case": case(name), "control": control }))
                .collect::<Vec<_>>(),
            "refusals": [], "instances": instances,
        }))
        .unwrap()
    }

    #[test]
    fn mechanisms_without_a_decided_difference_share_a_place() {
        let record = record(&[
            ("task/slow", &[200, 201, 199, 200, 200, 200]),
            ("task/steady", &[105, 105, 105, 105, 105, 105]),
            ("task/wide", &[90, 95, 100, 120, 125, 130]),
            ("task/first", &[100, 100, 101, 100, 99, 100]),
        ]);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let places: Vec<_> =
            ranking.rows.iter().map(|row| (&*row.spec.name, row.result.as_ref().unwrap().rank.unwrap())).collect();
        let rank = |place, tied| Rank { place, tied };
        // The median of `wide` is worse than that of `steady`. But its interval is wide, so no
        // mechanism is known to be better.
        assert_eq!(
            places,
            [
                ("task/first", rank(1, true)),
                ("task/wide", rank(1, true)),
                ("task/steady", rank(3, false)),
                ("task/slow", rank(4, false)),
            ]
        );
        let slow = ranking.rows[3].result.as_ref().unwrap();
        assert_eq!(slow.verdict, Some(Verdict::Slower));
        assert!((slow.versus.unwrap().estimate + 2.0_f64.ln()).abs() < 0.01, "twice the time of the first");
        assert_eq!(ranking.comparison(0, 1).verdict, Verdict::Inconclusive);
        let control = ranking.control.as_ref().and_then(|row| row.result.as_ref()).unwrap();
        assert_eq!((control.verdict, control.rank), (Some(Verdict::Equivalent), None));
        assert!(ranking.resolution().is_some_and(|ln| ln > 0.019 && ln < 0.3));
    }

    #[test]
    fn a_row_that_beats_another_has_a_better_place_even_if_its_ratio_to_the_first_is_worse() {
        // Where both were measured, `b` takes 5 % less than `a`. `a` also has rounds in which the
        // reference was slow, and `b` rounds in which it was fast.
        let reference = [99, 99, 99, 50, 50, 50, 90, 90, 90, 20, 20, 20];
        let mut record = record(&[("task/reference", &reference), ("task/a", &[105; 12]), ("task/b", &[100; 12])]);
        record.instances.retain(|one| match one.entrant {
            1 => one.round < 9,
            2 => one.round >= 3,
            _ => true,
        });
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let at = |name: &str| ranking.rows.iter().position(|row| row.spec.name == name).unwrap();
        let (a, b) = (at("task/a"), at("task/b"));
        assert_eq!((at("task/reference"), b, a), (0, 1, 2));
        let advantage = |at: usize| ranking.rows[at].result.as_ref().unwrap().versus.unwrap().estimate;
        assert!(advantage(a) > advantage(b));
        let places = ranking.rows.iter().map(|row| row.result.as_ref().unwrap().rank.unwrap().place);
        assert_eq!(places.collect::<Vec<_>>(), [1, 2, 3]);
        let [forth, back] = [ranking.comparison(a, b), ranking.comparison(b, a)];
        assert_eq!((forth.verdict, back.verdict), (Verdict::Faster, Verdict::Slower));
        let ends = |one: Comparison| one.interval.map(|one| [one.low, one.estimate, one.high].map(f64::exp)).unwrap();
        assert!(ends(forth).iter().all(|ratio| (ratio - 1.05).abs() < 1e-9));
        assert!(ends(back).iter().all(|ratio| (ratio - 1.0 / 1.05).abs() < 1e-9));
        assert_eq!((ranking.best_of(&[b, a]), ranking.best_of(&[a, b])), (Some(b), Some(b)));
        assert_eq!(
            (ranking.best_of(&[0, b, a]), ranking.best_of(&[a]), ranking.best_of(&[])),
            (Some(0), Some(a), None)
        );
    }

    #[test]
    fn nothing_is_ranked_with_too_few_rounds() {
        let record = record(&[("task/a", &[1, 1, 1]), ("task/b", &[9, 9, 9])]);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let rank = |at: usize| ranking.rows[at].result.as_ref().unwrap().rank;
        assert_eq!([rank(0), rank(1)], [None; 2]);
        assert_eq!(ranking.rows[0].spec.name, "task/a", "they are sorted");
        assert_eq!((ranking.floor, ranking.resolution()), (None, None));
    }

    #[test]
    fn a_mechanism_with_few_rounds_has_no_place() {
        let mut record =
            record(&[("task/first", &[100; 12]), ("task/second", &[120; 12]), ("task/failing", &[900; 12])]);
        record.instances.retain(|one| one.entrant != 2 || one.round < 4);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let places: Vec<_> = ranking
            .rows
            .iter()
            .map(|row| (&*row.spec.name, row.result.as_ref().unwrap().rank.map(|rank| rank.place)))
            .collect();
        assert_eq!(places, [("task/first", Some(1)), ("task/second", Some(2)), ("task/failing", None)]);
    }

    #[test]
    fn a_mechanism_without_common_rounds_is_sorted_by_its_time() {
        let mut record = record(&[("task/second", &[120; 12]), ("task/first", &[100; 12]), ("task/alone", &[900; 12])]);
        record.instances.iter_mut().filter(|one| one.entrant == 2).for_each(|one| one.round += 12);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let names: Vec<_> = ranking.rows.iter().map(|row| &*row.spec.name).collect();
        assert_eq!(names, ["task/first", "task/second", "task/alone"]);
        assert!(ranking.rows[2].result.as_ref().unwrap().rank.is_none());
    }

    #[test]
    fn the_best_has_the_smallest_worst_defeat() {
        let best = |advantages: [[f64; 3]; 3]| minimax(&[0, 1, 2], |a, b| advantages[a][b]);
        assert_eq!(best([[0.0, 0.3, -0.1], [-0.3, 0.0, -0.2], [0.1, 0.2, 0.0]]), Some(1));
        // A cycle: 1 is better than 0, 2 than 1, and 0 than 2. The last advantage is the smallest.
        assert_eq!(best([[0.0, 0.3, -0.1], [-0.3, 0.0, 0.2], [0.1, -0.2, 0.0]]), Some(2));
        assert_eq!(best([[0.0; 3]; 3]), Some(0));
        assert_eq!(minimax(&[], |_, _| 0.0), None);
    }
}
