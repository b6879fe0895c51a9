//! Rankings: what a record says of each cell.

use std::collections::BTreeMap;

use crate::bound::{Bound, bind};
use crate::burst::Held;
use crate::case::Cell;
use crate::codec::CodecFigures;
use crate::record::{FEWEST_LAPS, Figures, InstanceRecord, Outcome, Record};
use crate::spec::{Spec, Standing};
use crate::stats::{
    CONFIDENCE, Interval, Margins, Verdict, log_ratio_sd, median, median_interval, noise_floor, verdict,
};

/// One cell of a record, its mechanisms best first.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// The cell.
    pub cell: Cell,
    /// Its mechanisms, best first; those without a result last. The first is what the others are compared with.
    pub rows: Vec<Row>,
    /// The A/A control: a second instance of one of the mechanisms, compared with the first instance of the same mechanism.
    pub control: Option<Row>,
    /// The noise floor, a ln ratio: no difference below it is decided. None with too few valid rounds.
    pub floor: Option<f64>,
    /// The standard deviation of the control's ln ratios.
    pub noise: Option<f64>,
    /// The least time the machine allows.
    pub bound: Option<Bound>,
    /// Instances that were discarded on a signal declared beforehand.
    pub discarded: usize,
    /// The comparison of each row with each one below it: `pairs[i][j - i - 1]` is row j against row i.
    pairs: Vec<Vec<Comparison>>,
}

/// One mechanism against another, better placed one.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The ln ratio: positive where it is better than the other. None with too few rounds.
    pub interval: Option<Interval>,
    /// What follows from the interval and the cell's noise floor.
    pub verdict: Verdict,
}

impl Ranking {
    /// How the row at `below` compares with the one at `above`, which stands before it.
    ///
    /// # Panics
    /// If `above` does not stand before `below`, or one of them is no row.
    pub fn comparison(&self, above: usize, below: usize) -> &Comparison {
        &self.pairs[above][below - above - 1]
    }

    /// The smallest difference that this cell can show, as a ln ratio: a typical interval that is centred on it lies wholly
    /// beyond what decides. None where nothing is decided, or nothing is compared.
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
    /// How many messages may be in flight, as probed; none where that could not be probed.
    pub effective_capacity: Option<u64>,
    /// System calls per message or round trip, of all its processes; none where they were not counted.
    pub calls: Option<f64>,
    /// What it measured; none where every instance failed or was discarded.
    pub result: Option<RowResult>,
    /// The number of instances that failed, and the first one's reason.
    pub failed: Option<(usize, String)>,
    /// The promise it broke.
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
    /// Its place among the cell's mechanisms; none for the control, and where nothing is decided.
    pub rank: Option<Rank>,
    /// Against the first row, as a ln ratio: negative is worse. None for the first itself, and with too few rounds.
    pub versus: Option<Interval>,
    /// What follows from it; none for the first itself.
    pub verdict: Option<Verdict>,
}

/// A place in a ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// One more than the number of mechanisms that are known to be better.
    pub place: usize,
    /// Whether another mechanism has the same place: the two are not told apart.
    pub tied: bool,
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
    group(record, &mut rows, floor);
    let pairs = compare_all(record, &rows, floor);
    compare_with_first(&mut rows, &pairs);
    let is_discarded = |instance: &&InstanceRecord| match &instance.outcome {
        Outcome::Measured(figures) => figures.discarded.is_some(),
        Outcome::Failed { .. } => false,
    };
    let of_cell = |instance: &&InstanceRecord| record.entrants[instance.entrant].case.cell == *cell;
    let discarded = record.instances.iter().filter(of_cell).filter(is_discarded).count();
    let reference_ns = reference_ns(&rows);
    Ranking {
        cell: cell.clone(),
        rows: rows.into_iter().map(|(_, row)| row).collect(),
        control: control.and_then(|(original, control)| control_row(record, original, control)),
        floor,
        noise: log_ratio_sd(&control_pairs),
        bound: record.limits.as_ref().and_then(|limits| bind(cell, limits, reference_ns, &record.handling)),
        discarded,
        pairs,
    }
}

/// The control against its other instance. Only the margins decide: it cannot exceed a noise floor that it sets itself.
fn control_row(record: &Record, original: usize, control: usize) -> Option<Row> {
    let mut row = row(record, control)?;
    if let Some(result) = &mut row.result {
        let comparison = compare(record, original, control, Some(0.0));
        (result.versus, result.verdict) = (comparison.interval, Some(comparison.verdict));
    }
    Some(row)
}

/// Sorts rows, best first, by what their pairs say, as verdicts do: on a machine that drifts, medians of different rounds may
/// say otherwise.
fn sort(record: &Record, rows: &mut [(usize, Row)]) {
    let measured = rows.iter().filter(|(_, row)| row.result.is_some()).map(|(at, row)| (*at, row.metric())).collect();
    if let Some(first) = best_of(record, measured) {
        let key = |(at, row): &(usize, Row)| (row.result.is_none(), *at != first, -advantage(record, first, *at));
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

/// Every row against every one above it.
fn compare_all(record: &Record, rows: &[(usize, Row)], floor: Option<f64>) -> Vec<Vec<Comparison>> {
    let below = |above: usize| rows[above + 1..].iter().map(move |(at, _)| (rows[above].0, *at));
    (0..rows.len()).map(|above| below(above).map(|(a, b)| compare(record, a, b, floor)).collect()).collect()
}

/// Gives each sorted row its place. Rows which the same number of others is known to be better than share a place and stand
/// together: a row that is not told apart from the first is never placed below one that is.
fn group(record: &Record, rows: &mut [(usize, Row)], floor: Option<f64>) {
    let pairs = compare_all(record, rows, floor);
    let better =
        |below: usize| (0..below).filter(|above| pairs[*above][below - above - 1].verdict == Verdict::Slower).count();
    let better: Vec<usize> = (0..rows.len()).map(better).collect();
    let mut order: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].1.result.is_some()).collect();
    order.sort_by_key(|at| better[*at]);
    for (index, &at) in order.iter().enumerate() {
        let group = order.iter().filter(|other| better[**other] == better[at]).count();
        let first = order[..index].iter().filter(|other| better[**other] != better[at]).count();
        if let Some(result) = rows[at].1.result.as_mut().filter(|_| floor.is_some()) {
            result.rank = Some(Rank { place: first + 1, tied: group > 1 });
        }
    }
    // Stable: within a place the best stays first.
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

/// The median of the row that stands for the least which can be written.
fn reference_ns(rows: &[(usize, Row)]) -> Option<f64> {
    let reference = rows.iter().find(|(_, row)| row.spec.standing == Standing::Reference);
    reference.and_then(|(_, row)| Some(row.result.as_ref()?.metric_ns))
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
        p99_ns: middle(&|figures| Some(figures.latency.as_ref()?.p99_ns? as f64)),
        p999_ns: middle(&|figures| Some(figures.latency.as_ref()?.p999_ns? as f64)),
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
        rank: None,
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

    /// A record of one cell: of each mechanism the nanoseconds per message in each round. The first has a control, which
    /// measures the same.
    fn record(mechanisms: &[(&str, &[u64])]) -> Record {
        let cell = crate::suite::Suite::Overview.cells(crate::suite::Profile::Quick)[1].clone();
        let case = |name: &str| serde_json::json!({ "mechanism": name, "cell": cell });
        let control = mechanisms[0];
        let all: Vec<_> = mechanisms.iter().map(|of| (of, false)).chain([(&control, true)]).collect();
        let instances = all.iter().enumerate().flat_map(|(entrant, ((_, rounds), _))| {
            rounds.iter().enumerate().map(move |(round, ns)| InstanceRecord {
                round,
                entrant,
                ..measured(None, *ns, &[]).0
            })
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
    fn mechanisms_that_are_not_told_apart_share_a_place() {
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
        // `wide` is worse than `steady` at the median, but nothing is known to be better than it.
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
    fn nothing_is_ranked_with_too_few_rounds() {
        let record = record(&[("task/a", &[1, 1, 1]), ("task/b", &[9, 9, 9])]);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let rank = |at: usize| ranking.rows[at].result.as_ref().unwrap().rank;
        assert_eq!([rank(0), rank(1)], [None; 2]);
        assert_eq!(ranking.rows[0].spec.name, "task/a", "they are sorted");
        assert_eq!((ranking.floor, ranking.resolution()), (None, None));
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
