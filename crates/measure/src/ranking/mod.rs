//! Rankings: compares and ranks the mechanisms of each cell of a record.

mod order;
mod row;

pub use self::order::Comparison;
use self::order::{Decided, Ratios, assign_ranks, compare_all, compare_with_first, sort};
use self::row::row;
pub use self::row::{Basis, NoResult, Rank, Row, RowResult, loss_without_p99, losses, no_result};
use crate::bound::{Bound, bound_of};
use crate::case::{Cell, Place};
use crate::core_distance::{Comparable, LeftOut};
use crate::pace::message_loss;
use crate::pairs::log_ratios;
use crate::record::{InstanceRecord, Outcome, Record};
use crate::spec::Standing;
use crate::stats::{CONFIDENCE, Interval, Margins, log_ratio_sd, median, median_interval, noise_floor, verdict};

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
    /// Whether the run used slices for the mechanisms that allow it.
    pub is_sliced: bool,
    /// The number of discarded instances. Only causes that were defined before the run count.
    pub discarded: usize,
    /// The rounds that do not count, because the cores were at another distance. `None` if all
    /// count.
    pub left_out: Option<LeftOut>,
    /// By how much pauses change all mechanisms alike: see [`Comparable::pause_effect`].
    pub pause_effect: Option<Interval>,
    /// The largest share of messages that the link between two hosts may lose, by its measured
    /// packet loss. 0 on one host.
    pub link_loss: f64,
    /// How wrong the times may be, if they were measured from one host to the other.
    pub one_way: Option<OneWay>,
    /// The comparison of each row with each row below it. `pairs[i][j - i - 1]` compares row `j`
    /// with row `i`.
    pairs: Vec<Vec<Comparison>>,
    /// Which rows are decided to be better than which.
    decided: Decided,
}

/// What is known about times that were measured from one host's clock to another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneWay {
    /// The largest error of any instance, in nanoseconds: [`crate::hosts::ClockError::max_ns`].
    pub error_ns: f64,
    /// Half of the fastest round trip of a minimal packet on the link, in nanoseconds. `None` if
    /// the link was not measured.
    pub half_round_trip_ns: Option<f64>,
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
            let Comparison { interval, verdict, is_contradicted } = self.pairs[second][first - second - 1].clone();
            Comparison {
                interval: interval.as_ref().map(Interval::inverse),
                verdict: verdict.inverse(),
                is_contradicted,
            }
        }
    }

    /// Whether row `first` is decided to be better than row `second`: by their comparison, or
    /// because it is better than a row that is better than `second`.
    ///
    /// # Panics
    /// If one of them is not the index of a row.
    pub fn is_better(&self, first: usize, second: usize) -> bool {
        self.decided.is_better(first, second)
    }

    /// Returns the given rows that no other given row is decided to beat, in the same order. Not
    /// empty unless `rows` is empty. Rows are given by their indexes.
    pub fn unbeaten(&self, rows: &[usize]) -> Vec<usize> {
        let is_beaten = |row: &usize| rows.iter().any(|other| self.is_better(*other, *row));
        rows.iter().copied().filter(|row| !is_beaten(row)).collect()
    }

    /// Returns the first of the rows that are [`unbeaten`](Self::unbeaten). This may differ from
    /// `rows[0]`, because the order of the table depends on comparisons with its first row only.
    /// `None` without rows.
    pub fn best_of(&self, rows: &[usize]) -> Option<usize> {
        self.unbeaten(rows).first().copied()
    }

    /// The minimum detectable effect, as a ln ratio: the difference that is decided with a
    /// probability of 80 % (the power), unless it is contradicted. It is the decision threshold
    /// plus [`HALF_WIDTHS`] of the median interval.
    /// `None` if the noise floor is unknown, or if no mechanisms are compared.
    pub fn resolution(&self) -> Option<f64> {
        let threshold = Margins::default().decision_threshold(self.floor?)?;
        let compared = self.rows.iter().filter_map(|row| row.result.as_ref()?.versus.as_ref());
        let widths: Vec<f64> = compared.map(Interval::half_width).collect();
        Some(threshold + HALF_WIDTHS * median(&widths)?)
    }
}

/// How far a difference must lie beyond the decision threshold to be decided with a probability of
/// 80 %, in half widths of its interval. At one half width the probability is 50 %. The test
/// `a_difference_of_the_resolution_is_decided_in_four_of_five` has figures.
pub const HALF_WIDTHS: f64 = 1.5;

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
    cells.into_iter().map(|cell| rank_cell(record, cell, &comparable)).collect()
}

fn rank_cell(record: &Record, cell: &Cell, comparable: &Comparable) -> Ranking {
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
    let with_result = rows.iter().filter(|(_, row)| row.result.is_some()).map(|(at, _)| *at);
    let ratios = Ratios::of(record, &with_result.collect::<Vec<_>>());
    sort(&ratios, &mut rows);
    assign_ranks(&ratios, &mut rows, floor);
    let pairs = compare_all(&ratios, &rows, floor);
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
        is_sliced: record.slice_ns.is_some(),
        noise: log_ratio_sd(&control_pairs),
        bound: record
            .limits
            .as_ref()
            .and_then(|limits| bound_of(cell, limits, reference_ns, &record.handling, record.link(), fastest_ns)),
        discarded: discarded.len(),
        left_out: comparable.left_out(cell),
        pause_effect: comparable.pause_effect(cell),
        link_loss: record
            .link()
            .filter(|_| cell.place == Place::OtherHost)
            .map_or(0.0, |link| message_loss(link.loss.largest(), cell.payload.len())),
        one_way: clock_error_ns.map(|ns| OneWay { error_ns: ns as f64, half_round_trip_ns }),
        decided: Decided::of(&pairs),
        pairs,
    }
}

/// The comparison of the control with the other entrant of its mechanism. Only the margins decide
/// here. The noise floor does not count, because it comes from the same comparison.
fn control_row(record: &Record, original: usize, control: usize) -> Option<Row> {
    let mut row = row(record, control)?;
    if let Some(result) = &mut row.result {
        let interval = median_interval(&log_ratios(record, original, control), CONFIDENCE);
        result.verdict = Some(verdict(interval.as_ref(), Some(0.0), Margins::default()));
        result.versus = interval;
    }
    Some(row)
}

/// The metric of the cell's reference, the simplest implementation that is possible.
fn reference_ns(rows: &[(usize, Row)]) -> Option<f64> {
    let reference = rows.iter().find(|(_, row)| row.spec.standing == Standing::Reference);
    reference.and_then(|(_, row)| Some(row.result.as_ref()?.metric_ns))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pairs::tests::instance;
    use crate::spec::Spec;
    use crate::stats::Verdict;

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
    fn mechanisms_without_a_decided_difference_share_a_rank() {
        let record = record(&[
            ("task/slow", &[200, 201, 199, 200, 200, 200]),
            ("task/steady", &[105, 105, 105, 105, 105, 105]),
            ("task/wide", &[90, 95, 100, 120, 125, 130]),
            ("task/first", &[100, 100, 101, 100, 99, 100]),
        ]);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let ranks: Vec<_> =
            ranking.rows.iter().map(|row| (&*row.spec.name, row.result.as_ref().unwrap().rank.unwrap())).collect();
        let rank = |number, tied| Rank { number, tied };
        // The median of `wide` is worse than that of `steady`. But its interval is wide, so no
        // mechanism is known to be better.
        assert_eq!(
            ranks,
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
    fn a_row_that_beats_another_has_a_better_rank_even_if_its_ratio_to_the_first_is_worse() {
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
        let ranks = ranking.rows.iter().map(|row| row.result.as_ref().unwrap().rank.unwrap().number);
        assert_eq!(ranks.collect::<Vec<_>>(), [1, 2, 3]);
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
    fn a_mechanism_with_few_rounds_has_no_rank() {
        let mut record =
            record(&[("task/first", &[100; 12]), ("task/second", &[120; 12]), ("task/failing", &[900; 12])]);
        record.instances.retain(|one| one.entrant != 2 || one.round < 4);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let ranks: Vec<_> = ranking
            .rows
            .iter()
            .map(|row| (&*row.spec.name, row.result.as_ref().unwrap().rank.map(|rank| rank.number)))
            .collect();
        assert_eq!(ranks, [("task/first", Some(1)), ("task/second", Some(2)), ("task/failing", None)]);
    }

    #[test]
    fn mechanisms_that_share_rounds_only_with_each_other_have_no_rank() {
        let rounds = [100; 14];
        let mut record = record(&[
            ("task/first", &rounds),
            ("task/second", &[120; 14]),
            ("task/slow", &[900; 14]),
            ("task/slower", &[990; 14]),
        ]);
        record.instances.retain(|one| if (2..4).contains(&one.entrant) { one.round >= 8 } else { one.round < 8 });
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let ranks: Vec<_> =
            ranking.rows.iter().map(|row| row.result.as_ref().unwrap().rank.map(|rank| rank.number)).collect();
        assert_eq!(ranks, [Some(1), Some(2), None, None]);
    }

    #[test]
    fn the_only_mechanism_with_a_result_has_a_rank() {
        let mut record = record(&[("task/first", &[100; 12]), ("task/failing", &[900; 12])]);
        record.instances.retain(|one| one.entrant != 1);
        let [ranking] = &*rank(&record) else { panic!("one cell") };
        let rank_of =
            |at: usize| ranking.rows[at].result.as_ref().and_then(|result| result.rank).map(|rank| rank.number);
        assert_eq!([rank_of(0), rank_of(1)], [Some(1), None]);
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
}
