//! Rankings: what a record says of each cell.

use std::collections::BTreeMap;

use crate::bound::{Bound, bind};
use crate::burst::Held;
use crate::case::{Cell, Pattern};
use crate::codec::CodecFigures;
use crate::record::{FEWEST_LAPS, Figures, InstanceRecord, Outcome, Record};
use crate::spec::{Ownership, Spec, Standing};
use crate::stats::{
    CONFIDENCE, Interval, Margins, Verdict, log_ratio_sd, median, median_interval, noise_floor, verdict,
};

/// One cell of a record, its mechanisms best first.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The cell.
    pub cell: Cell,
    /// Its mechanisms, best first; those without a figure last.
    pub rows: Vec<Row>,
    /// How far two selves of one mechanism were apart, as a ln ratio: what no difference is decided within.
    pub floor: Option<f64>,
    /// The standard deviation of the ln ratio between the two selves.
    pub noise: Option<f64>,
    /// The limit that binds the cell.
    pub bound: Option<Bound>,
    /// Instances left out on a signal declared beforehand.
    pub discarded: usize,
}

/// One mechanism in a cell.
#[derive(Clone, Debug)]
pub struct Row {
    /// What it says of itself.
    pub spec: Spec,
    /// Whether it is the cell's control, a second self of another row.
    pub control: bool,
    /// How many messages may be under way, as tried; none where that could not be told.
    pub effective_capacity: Option<u64>,
    /// System calls for a message, or round trip, of all its children; none where they were not counted.
    pub calls: Option<f64>,
    /// What it measured; none where every instance failed or was discarded.
    pub result: Option<RowResult>,
    /// Instances that failed, and the first one's reason.
    pub failed: Option<(usize, String)>,
    /// What it broke of its promises.
    pub breach: Option<String>,
}

/// What a mechanism measured in a cell: medians over its instances.
#[derive(Clone, Debug)]
pub struct RowResult {
    /// Nanoseconds a message, or the median round trip.
    pub metric_ns: f64,
    /// The median round trip, or in an open loop the median latency.
    pub p50_ns: Option<f64>,
    /// The same that 1 in 100 exceeds.
    pub p99_ns: Option<f64>,
    /// The same that 1 in 1,000 exceeds.
    pub p999_ns: Option<f64>,
    /// Round trips timed together at the most, where one is too short for the clock: the times are means over so many.
    pub batch: u64,
    /// Processor time a message.
    pub cpu_ns: Option<f64>,
    /// The part of it that the sender spends, and the receiver; where they are processes of their own.
    pub sides_cpu_ns: [Option<f64>; 2],
    /// What a codec takes to encode and to decode, and the bytes that it makes.
    pub codec: Option<CodecFigures>,
    /// Context switches a message.
    pub switches: Option<f64>,
    /// What the slowest producer got through, as a part of the mean, where there are several.
    pub fairness: Option<f64>,
    /// What a burst took of memory, in bytes.
    pub held: Option<[f64; 3]>,
    /// Receives that were dropped while they waited, and messages that were lost to them, over all instances.
    pub dropped: (u64, u64),
    /// The part of the messages that was lost within the windows, from 0 to 1, over all instances.
    pub lost: f64,
    /// Against the cell's best candidate of the same ownership class, as a ln ratio: positive is better. None for the
    /// best itself, and with too few rounds.
    pub versus: Option<Interval>,
    /// What follows from it; none for the best itself.
    pub verdict: Option<Verdict>,
}

/// The pairs of one mechanism's figure and another's in the same round, as ln ratios, positive where `b` is better. Where the two
/// took turns, a round's pair is the median over the laps of their heat.
pub fn log_ratios(record: &Record, a: usize, b: usize) -> Vec<f64> {
    let by_round = |entrant| valid(record, entrant).map(|(instance, figures)| (instance.round, (instance, figures)));
    let a: BTreeMap<_, _> = by_round(a).collect();
    let b: BTreeMap<_, _> = by_round(b).collect();
    a.iter().filter_map(|(round, a)| Some(log_ratio(*a, *b.get(round)?))).collect()
}

fn log_ratio((a, figures_a): (&InstanceRecord, &Figures), (b, figures_b): (&InstanceRecord, &Figures)) -> f64 {
    if a.heat.is_some() && a.heat == b.heat {
        let laps: BTreeMap<u64, f64> = figures_b.slices.iter().map(|slice| (slice.lap, slice.ns)).collect();
        let ratios = figures_a.slices.iter().filter_map(|slice| Some((slice.ns / laps.get(&slice.lap)?).ln()));
        let ratios: Vec<f64> = ratios.collect();
        if let Some(median) = median(&ratios).filter(|_| ratios.len() >= FEWEST_LAPS) {
            return median;
        }
    }
    (figures_a.metric_ns() / figures_b.metric_ns()).ln()
}

/// The instances of an entrant whose figures count.
fn valid(record: &Record, entrant: usize) -> impl Iterator<Item = (&InstanceRecord, &Figures)> {
    record.instances.iter().filter(move |instance| instance.entrant == entrant).filter_map(|instance| {
        match &instance.outcome {
            Outcome::Measured(figures) if figures.discarded.is_none() => Some((instance, figures.as_ref())),
            _ => None,
        }
    })
}

/// The rankings of a record, in the order of its entrants.
pub fn rank(record: &Record) -> Vec<Ranking> {
    let mut cells: Vec<&Cell> = Vec::new();
    for entrant in &record.entrants {
        if !cells.contains(&&entrant.case.cell) {
            cells.push(&entrant.case.cell);
        }
    }
    cells.into_iter().map(|cell| rank_cell(record, cell)).collect()
}

fn rank_cell(record: &Record, cell: &Cell) -> Ranking {
    let entrants: Vec<usize> =
        (0..record.entrants.len()).filter(|&at| record.entrants[at].case.cell == *cell).collect();
    let control = entrants.iter().copied().find(|&at| record.entrants[at].control);
    let original = control.and_then(|control| {
        let of = &record.entrants[control].case;
        entrants.iter().copied().find(|&at| at != control && record.entrants[at].case == *of)
    });
    let selves = original.zip(control).map(|(a, b)| log_ratios(record, a, b)).unwrap_or_default();
    let floor = noise_floor(&selves);
    let mut rows: Vec<(usize, Row)> = entrants.iter().filter_map(|&at| Some((at, row(record, at)?))).collect();
    let best = |class: Ownership| {
        let ranked = rows.iter().filter(|(_, row)| !row.control && row.spec.ownership == class && row.result.is_some());
        let of = |standing| {
            let like = ranked.clone().filter(move |(_, row)| row.spec.standing == standing);
            best_of(record, like.map(|(at, row)| (*at, row.metric())).collect())
        };
        // Baselines only where nothing else is.
        of(Standing::Candidate).or_else(|| of(Standing::Baseline))
    };
    let bests: Vec<_> = rows.iter().map(|(_, row)| best(row.spec.ownership)).collect();
    for ((at, row), best) in rows.iter_mut().zip(bests) {
        // A control is held against its other self, and against the margins alone: it cannot exceed a floor that it sets.
        let (against, floor) = if row.control { (original, Some(0.0)) } else { (best, floor) };
        if let (Some(result), Some(against)) = (&mut row.result, against)
            && against != *at
        {
            result.versus = median_interval(&log_ratios(record, against, *at), CONFIDENCE);
            result.verdict = Some(verdict(result.versus.as_ref(), floor, Margins::default()));
        }
    }
    // By what the pairs say, like the verdicts: on a machine that drifts, medians of different rounds may say otherwise.
    let all = rows.iter().filter(|(_, row)| row.result.is_some()).map(|(at, row)| (*at, row.metric())).collect();
    if let Some(first) = best_of(record, all) {
        let place = |(at, row): &(usize, Row)| (row.result.is_none(), -advantage(record, first, *at));
        rows.sort_by(|a, b| place(a).0.cmp(&place(b).0).then(place(a).1.total_cmp(&place(b).1)));
    }
    let discarded = record
        .instances
        .iter()
        .filter(|instance| entrants.contains(&instance.entrant))
        .filter(|instance| matches!(&instance.outcome, Outcome::Measured(figures) if figures.discarded.is_some()));
    Ranking {
        cell: cell.clone(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        floor,
        noise: log_ratio_sd(&selves),
        bound: record.limits.as_ref().and_then(|limits| bind(cell, limits, ring_ns(record, cell), &record.handling)),
        discarded: discarded.count(),
    }
}

/// By how much `b` is better than `a`: the median of their pairs' ln ratios. Zero without pairs.
fn advantage(record: &Record, a: usize, b: usize) -> f64 {
    median(&log_ratios(record, a, b)).unwrap_or(0.0)
}

/// Of entrants and their median figures, the one that is best by what their pairs say.
fn best_of(record: &Record, mut entrants: Vec<(usize, f64)>) -> Option<usize> {
    entrants.sort_by(|(_, a), (_, b)| a.total_cmp(b));
    let entrants: Vec<usize> = entrants.into_iter().map(|(at, _)| at).collect();
    least_beaten(&entrants, |a, b| advantage(record, a, b))
}

/// The one that no other is better than. Where each is beaten by another, as in a circle, the one whose worst defeat is the least
/// (minimax, of Simpson and Kramer); of equals the first.
fn least_beaten(entrants: &[usize], advantage: impl Fn(usize, usize) -> f64) -> Option<usize> {
    let worst = |a: usize| entrants.iter().filter(|&&b| b != a).map(|&b| advantage(a, b)).fold(0.0, f64::max);
    let worst_of: Vec<(usize, f64)> = entrants.iter().map(|&at| (at, worst(at))).collect();
    worst_of.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(at, _)| at)
}

impl Row {
    fn metric(&self) -> f64 {
        self.result.as_ref().map_or(f64::INFINITY, |result| result.metric_ns)
    }
}

fn row(record: &Record, at: usize) -> Option<Row> {
    let entrant = &record.entrants[at];
    let figures: Vec<&Figures> = valid(record, at).map(|(_, figures)| figures).collect();
    let middle = |of: &dyn Fn(&Figures) -> Option<f64>| {
        median(&figures.iter().filter_map(|figures| of(figures)).collect::<Vec<_>>())
    };
    let sum = |of: fn(&Figures) -> u64| figures.iter().map(|figures| of(figures) as f64).sum::<f64>();
    let memory = |of: fn(&Held) -> u64| middle(&|figures| figures.held.as_ref().map(|held| of(held) as f64));
    let codec = |of: fn(&CodecFigures) -> f64| middle(&|figures| figures.codec.as_ref().map(of));
    let (arrived, lost) = (sum(|figures| figures.messages), sum(|figures| figures.lost_in_window));
    let result = middle(&|figures| Some(figures.metric_ns())).map(|metric_ns| RowResult {
        metric_ns,
        p50_ns: middle(&|figures| Some(figures.latency.as_ref()?.p50_ns as f64)),
        p99_ns: middle(&|figures| Some(figures.latency.as_ref()?.p99_ns as f64)),
        p999_ns: middle(&|figures| Some(figures.latency.as_ref()?.p999_ns as f64)),
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
        held: memory(|held| held.empty)
            .zip(memory(|held| held.full))
            .zip(memory(|held| held.after))
            .map(|((empty, full), after)| [empty, full, after]),
        dropped: (sum(|figures| figures.dropped_receives) as u64, sum(|figures| figures.faults.lost) as u64),
        lost: lost / (arrived + lost).max(1.0),
        versus: None,
        verdict: None,
    });
    let outcomes =
        || record.instances.iter().filter(|instance| instance.entrant == at).map(|instance| &instance.outcome);
    let mut failures = outcomes().filter_map(|outcome| match outcome {
        Outcome::Failed { why } => Some(why),
        Outcome::Measured(_) => None,
    });
    let first = failures.next().cloned();
    Some(Row {
        spec: record.spec(&entrant.case.mechanism)?.clone(),
        control: entrant.control,
        effective_capacity: entrant.effective_capacity,
        calls: entrant.calls,
        result,
        failed: first.map(|why| (1 + failures.count(), why)),
        breach: outcomes().find_map(|outcome| match outcome {
            Outcome::Measured(figures) => figures.breach.clone(),
            Outcome::Failed { .. } => None,
        }),
    })
}

/// What the reference ring needed in the same rounds for what this cell does: in a round trip, waiting the same way; in a
/// stream, in whichever way was faster. The ring of the same distance where it took part, else any.
fn ring_ns(record: &Record, cell: &Cell) -> Option<f64> {
    let pattern = match cell.pattern {
        Pattern::FanIn | Pattern::Merge | Pattern::Mpmc | Pattern::PubSub => Pattern::Stream,
        Pattern::Writers | Pattern::Connections => Pattern::Stream,
        Pattern::RequestReply => Pattern::PingPong,
        pattern => pattern,
    };
    let like = |other: &Cell| {
        let waits = pattern == Pattern::Stream || other.wait == cell.wait;
        other.load == cell.load
            && other.pattern == pattern
            && other.payload == cell.payload
            && other.place == cell.place
            && waits
    };
    let rings = || {
        record.entrants.iter().enumerate().filter(|(_, entrant)| {
            let limit = record.spec(&entrant.case.mechanism).is_some_and(|spec| spec.standing == Standing::Reference);
            // Not the ring's second self, or the limit would be the better of two.
            limit && !entrant.control && like(&entrant.case.cell)
        })
    };
    let fastest = |of: &dyn Fn(&Cell) -> bool| {
        let medians = rings().filter(|(_, entrant)| of(&entrant.case.cell)).filter_map(|(at, _)| {
            median(&valid(record, at).map(|(_, figures)| figures.metric_ns()).collect::<Vec<_>>())
        });
        medians.min_by(f64::total_cmp)
    };
    fastest(&|ring| ring.scope == cell.scope).or_else(|| fastest(&|_| true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Faults;
    use crate::record::SliceFigure;

    /// An instance that took so long a message as a whole, and in laps 1, 2, ...
    fn measured(heat: Option<usize>, whole_ns: u64, laps: &[f64]) -> (InstanceRecord, Figures) {
        let slices = (1..).zip(laps).map(|(lap, &ns)| SliceFigure { lap, ns }).collect();
        let figures = Figures {
            messages: 1,
            window_ns: whole_ns,
            latency: None,
            cpu_ns_per_message: None,
            sender_cpu_ns: None,
            receiver_cpu_ns: None,
            switches_per_message: None,
            fairness: None,
            dropped_receives: 0,
            codec: None,
            held: None,
            offered: 1,
            delivered: 1,
            lost_in_window: 0,
            faults: Faults::default(),
            breach: None,
            steal: 0.0,
            discarded: None,
            slices,
        };
        let outcome = Outcome::Measured(Box::new(figures.clone()));
        (InstanceRecord { round: 0, entrant: 0, line_ns: None, heat, outcome }, figures)
    }

    #[test]
    fn those_that_took_turns_are_compared_lap_by_lap() {
        let ratio = |(a, b): (&(InstanceRecord, Figures), &(InstanceRecord, Figures))| {
            log_ratio((&a.0, &a.1), (&b.0, &b.1)).exp()
        };
        // The machine becomes ten times slower in the middle; one lap of `b` is disturbed.
        let a = measured(Some(1), 5, &[10.0, 10.0, 10.0, 10.0, 100.0, 100.0, 100.0, 100.0, 100.0]);
        let mut laps = [5.0, 5.0, 5.0, 5.0, 50.0, 50.0, 50.0, 50.0, 999.0];
        let b = measured(Some(1), 1, &laps);
        assert!((ratio((&a, &b)) - 2.0).abs() < 1e-9);
        // Too few laps, or another heat: as a whole.
        let few = measured(Some(1), 1, &laps[..4]);
        assert!((ratio((&measured(Some(1), 5, &[1.0]), &few)) - 5.0).abs() < 1e-9);
        laps.reverse();
        let elsewhere = measured(Some(2), 1, &laps);
        assert!((ratio((&a, &elsewhere)) - 100.0 / 50.0).abs() < 1e-9, "by the medians of their own turns");
    }

    #[test]
    fn best_is_who_is_beaten_by_nobody_and_of_a_circle_who_is_beaten_by_least() {
        let of = |advantages: [[f64; 3]; 3]| least_beaten(&[0, 1, 2], |a, b| advantages[a][b]);
        assert_eq!(of([[0.0, 0.3, -0.1], [-0.3, 0.0, -0.2], [0.1, 0.2, 0.0]]), Some(1));
        // 1 is better than 0, 2 than 1, and 0 than 2, by least.
        assert_eq!(of([[0.0, 0.3, -0.1], [-0.3, 0.0, 0.2], [0.1, -0.2, 0.0]]), Some(2));
        assert_eq!(of([[0.0; 3]; 3]), Some(0));
        assert_eq!(least_beaten(&[], |_, _| 0.0), None);
    }
}
