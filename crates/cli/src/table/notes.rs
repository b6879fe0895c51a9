//! The notes below a table: the cell's bound, the reliability of its figures, and how its
//! mechanisms differ in their promises.

use estafette_measure::case::Load;
use estafette_measure::ranking::{Basis, NoResult, OneWay, Ranking, Row, RowResult};
use estafette_measure::record::Record;
use estafette_measure::spec::{Loss, Ordering};
use estafette_measure::stats::ModeLevel;
use estafette_measure::{MAX_LOSS, units};

use super::answer::{TableOutcome, is_ranked, list, outcome, shortened_list};
use super::words::{difference, percent, short, times};
use crate::columns::{columns, lines, plain, wrapped};
use crate::remedy::with_remedy;

/// A time this many times as long as that of a mechanism with a worse rank is noted.
const MISPLACED: f64 = 1.25;
/// If pauses change the time of the median mechanism of a cell by more than this factor, it is noted.
const PAUSE_EFFECT: f64 = 1.1;

/// Returns the footer: see [`facts`].
pub(super) fn footer(ranking: &Ranking) -> String {
    let notes = facts(ranking);
    if notes.is_empty() { String::new() } else { wrapped("  ", &notes.join(" · ")) }
}

/// Returns what is to be known of a cell: the bound, the smallest detectable difference, the
/// control, and the number of discarded instances.
pub(crate) fn facts(ranking: &Ranking) -> Vec<String> {
    let resolution = ranking.resolution().map(|ln| format!("detects differences from {}", difference(ln)));
    let few = (ranking.floor.is_none() && ranking.control.is_some())
        .then(|| String::from("fewer than 6 valid pairs of the control: nothing is decided"));
    let control = ranking.control.as_ref().and_then(|row| row.result.as_ref()?.versus.as_ref());
    let control = control.map(|interval| format!("control {}", times(interval)));
    let batch = ranking.rows.iter().filter_map(|row| Some(row.result.as_ref()?.batch)).max();
    let batch = batch.filter(|batch| *batch > 1);
    let batch = batch.map(|batch| {
        format!("each time is the mean of up to {batch} round trips, because one is too short for the clock")
    });
    let discarded = (ranking.discarded > 0).then(|| match ranking.discarded {
        1 => String::from("1 instance discarded"),
        count => format!("{count} instances discarded"),
    });
    let notes = [
        bound(ranking),
        one_way(ranking),
        resolution,
        few,
        control,
        batch,
        discarded,
        left_out(ranking),
        pause_effect(ranking),
        by_unpaused_runs(ranking),
        unchecked(ranking),
        by_whole_windows(ranking),
    ];
    notes.into_iter().flatten().collect()
}

/// The facts of a cell of a matrix that its columns do not show. `value` is its value on the axis.
pub(super) fn facts_at(ranking: &Ranking, value: &str) -> String {
    let notes = [left_out(ranking), pause_effect(ranking), by_unpaused_runs(ranking), by_whole_windows(ranking)];
    let notes: Vec<String> = notes.into_iter().flatten().collect();
    if notes.is_empty() { String::new() } else { wrapped("  ", &format!("{value}: {}", notes.join(" · "))) }
}

/// The rounds that do not count, because the cores were at another distance.
fn left_out(ranking: &Ranking) -> Option<String> {
    ranking.left_out.map(|left_out| {
        format!(
            "{} of {} rounds left out: a cache line took {} to the other core and back, not {}",
            left_out.rounds,
            left_out.of,
            units::duration(left_out.other_ns),
            units::duration(left_out.counted_ns)
        )
    })
}

/// Says how much more or less time the median mechanism takes without pauses, if that is more than
/// [`PAUSE_EFFECT`].
fn pause_effect(ranking: &Ranking) -> Option<String> {
    let effect = ranking.pause_effect?;
    let is_large = effect.low > PAUSE_EFFECT.ln() || effect.high < -PAUSE_EFFECT.ln();
    let times = units::three_digits((-effect.estimate).exp());
    is_large.then(|| format!("without pauses between slices, the median mechanism takes {times} times as long"))
}

/// The mechanisms of a cell that are compared in this way.
fn compared_by(ranking: &Ranking, basis: Basis) -> Vec<&str> {
    let results = ranking.rows.iter().filter_map(|row| Some((short(row), row.result.as_ref()?)));
    results.filter(|(_, result)| result.basis == basis).map(|(name, _)| name).collect()
}

/// Names the mechanisms that run differently after a pause.
fn by_unpaused_runs(ranking: &Ranking) -> Option<String> {
    let names = compared_by(ranking, Basis::UnpausedRun);
    let words = || format!("compared by runs without pauses, because pauses change them: {}", names.join(", "));
    (!names.is_empty()).then(words)
}

/// Names the mechanisms of which it is not known whether they run differently after a pause.
fn unchecked(ranking: &Ranking) -> Option<String> {
    let names = compared_by(ranking, Basis::UncheckedSlices);
    let words =
        || format!("too few undisturbed runs without pauses to see whether pauses change them: {}", names.join(", "));
    (!names.is_empty()).then(words)
}

/// Names the mechanisms that are compared by whole windows, although the run measures in slices
/// whatever can be.
fn by_whole_windows(ranking: &Ranking) -> Option<String> {
    let names = compared_by(ranking, Basis::Window);
    let results = ranking.rows.iter().filter(|row| row.result.is_some()).count();
    match names.len() {
        _ if !ranking.is_sliced => None,
        0 => None,
        all if all == results => Some(String::from("compared by whole windows, not by slices")),
        _ => Some(format!("compared by whole windows, not by slices: {}", names.join(", "))),
    }
}

/// Formats the bound: the time, its cost, and after `then` the costs that it hides.
fn bound(ranking: &Ranking) -> Option<String> {
    let bound = ranking.bound.as_ref()?;
    let hidden: Vec<_> = bound.hidden().iter().map(|(cost, ns)| format!("{cost} {}", units::duration(*ns))).collect();
    let hidden = if hidden.is_empty() { String::new() } else { format!(" (then {})", hidden.join(", ")) };
    Some(format!("bound {}: {}{hidden}", units::duration(bound.ns()), bound.cost()))
}

/// Says how wrong times from one host to the other may be, and how long the way of a packet is.
fn one_way(ranking: &Ranking) -> Option<String> {
    let OneWay { error_ns, half_round_trip_ns } = ranking.one_way?;
    let half = half_round_trip_ns
        .map_or_else(String::new, |ns| format!("; half of the link's fastest round trip is {}", units::duration(ns)));
    Some(format!(
        "times are from one host's clock to the other's, and each may be wrong by up to {}{half}",
        units::duration(error_ns)
    ))
}

/// Returns notes on the mechanisms of a cell: see [`notes`].
pub(crate) fn caveats(ranking: &Ranking) -> String {
    caveats_at(ranking, "").concat()
}

/// The notes of [`caveats`], for a cell of a matrix. `value` is its value on the matrix's axis.
pub(super) fn caveats_at(ranking: &Ranking, value: &str) -> Vec<String> {
    let notes = notes(ranking, value).into_iter();
    notes.map(|note| note.for_terminal()).collect()
}

/// A note on the mechanisms of a cell.
pub(crate) enum Note {
    /// A sentence or a list of names.
    Words(String),
    /// Text of a mechanism, whose lines are kept.
    Failure(String),
}

impl Note {
    fn for_terminal(&self) -> String {
        match self {
            Note::Words(words) => wrapped("  ", words),
            Note::Failure(text) => format!("  {}\n", text.replace('\n', "\n    ")),
        }
    }

    pub(crate) fn text(&self) -> &str {
        let (Note::Words(text) | Note::Failure(text)) = self;
        text
    }
}

/// Returns notes on the mechanisms of a cell: differences in order and capacity, modes, failures,
/// broken promises and lost messages. `value` is the cell's value on the axis of a matrix.
pub(crate) fn notes(ranking: &Ranking, value: &str) -> Vec<Note> {
    let promises = ranking.rows.iter().map(|row| {
        // With one producer, order per producer is a strict order.
        let in_order = row.spec.ordering == Ordering::PerProducer && ranking.cell.producers == 1;
        (short(row), if in_order { Ordering::Strict } else { row.spec.ordering })
    });
    let mut notes = weaker_orders(&promises.collect::<Vec<_>>());
    notes.extend(capacities(ranking));
    notes.extend(modes(ranking, value));
    notes.extend(misplaced(ranking, value));
    notes.extend(undecided_although_worse(ranking, value));
    notes.extend(contradicted(ranking, value));
    notes.extend(unranked(ranking, value));
    let mut notes: Vec<Note> = notes.into_iter().map(Note::Words).collect();
    if let Some((count, why)) = ranking.control.as_ref().and_then(|control| control.failed.as_ref()) {
        let why = lines(&with_remedy(why));
        notes.push(Note::Failure(format!("the control failed in {count} instance(s): {why}")));
    }
    for row in &ranking.rows {
        if let Some((count, why)) = &row.failed {
            let why = lines(&with_remedy(why));
            notes.push(Note::Failure(format!("{} failed in {count} instance(s): {why}", row.spec.name)));
        }
        if let Some(breach) = &row.breach {
            let breach = plain(&breach.to_string());
            notes.push(Note::Failure(format!("{} broke its promise: {breach}", row.spec.name)));
        }
        if let Some(NoResult::LongerThanSlice(ns)) = row.no_result {
            let (name, time) = (short(row), units::duration(ns));
            let at = at(value);
            notes.push(Note::Words(format!(
                "{name} has no result{at}: its round trips ({time}) are longer than a slice, and timers that it may wait for run on between slices; measure it with --slice off"
            )));
        }
        if let Some(NoResult::LosesTooMuch(lost)) = row.no_result {
            let words = "of the messages it was given, so at this load it has no 99th percentile";
            notes.push(Note::Words(format!("{} lost {} {words}", row.spec.name, percent(lost))));
        }
        if let Some(result) =
            row.result.as_ref().filter(|result| row.spec.loss == Loss::BestEffort && result.lost > 0.0)
        {
            let more = match ranking.cell.load {
                Load::Saturated => loss_limit(result.lost, ranking.link_loss),
                Load::Rate(_) | Load::Poisson(_) => String::from(", which count as the slowest"),
            };
            let (name, lost) = (&row.spec.name, percent(result.lost));
            let offered = offered(ranking, result);
            notes.push(Note::Words(format!("{name} lost {lost} of the messages it was given{more}{offered}")));
        }
    }
    notes
}

/// Says whether a mechanism lost more than a search for its highest rate allows, and what the link
/// loses.
fn loss_limit(lost: f64, link_loss: f64) -> String {
    let allowed = MAX_LOSS + link_loss;
    let more =
        if lost > allowed { format!(", more than the {} to stay below", percent(allowed)) } else { String::new() };
    let link =
        if link_loss > 0.0 { format!(" (the link itself may lose {})", percent(link_loss)) } else { String::new() };
    more + &link
}

/// Names the mechanisms whose capacity is not the requested one.
fn capacities(ranking: &Ranking) -> Option<String> {
    let requested = ranking.cell.capacity as u64;
    // In a round trip, only one message is in flight, so the capacity has no effect.
    let has_effect = !ranking.cell.pattern.is_round_trip();
    let other = ranking
        .rows
        .iter()
        .filter(|row| has_effect && row.effective_capacity.is_some_and(|capacity| capacity != requested));
    let other: Vec<_> =
        other.filter_map(|row| Some(format!("{} {}", short(row), units::grouped(row.effective_capacity?)))).collect();
    let words = || format!("effective capacity, {} asked for: {}", units::grouped(requested), other.join(", "));
    (!other.is_empty()).then(words)
}

/// Returns ` at VALUE` for a cell of a matrix, and nothing without a value.
fn at(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!(" at {value}") }
}

/// Names the mechanisms with a fast and a slow mode.
fn modes(ranking: &Ranking, value: &str) -> Option<String> {
    let rows = ranking.rows.iter().filter_map(|row| Some((short(row), row.result.as_ref()?.modes?)));
    let rows: Vec<String> = rows
        .map(|(name, modes)| {
            let [fast, slow] = [modes.fast_ns, modes.slow_ns].map(units::duration);
            let units = match modes.level {
                ModeLevel::Instance => "instances",
                ModeLevel::Slice => "slices",
            };
            format!("{name} {fast} in {:.0} % of its {units}, {slow} in the others", modes.fast_share * 100.0)
        })
        .collect();
    let at = at(value);
    (!rows.is_empty()).then(|| format!("two modes{at}: {}", rows.join("; ")))
}

/// Names the mechanisms whose time is longer than that of one with a worse rank: first those that
/// take longer in the same rounds too, where the difference is not decided, then those that do not.
fn misplaced(ranking: &Ranking, value: &str) -> Vec<String> {
    let rows = &ranking.rows;
    let rank = |at: usize| Some(rows[at].result.as_ref()?.rank?.number);
    let time = |at: usize| rows[at].metric_ns();
    let shorter = |at: usize| {
        let has_worse_rank = move |other: &usize| rank(at).zip(rank(*other)).is_some_and(|(a, b)| a < b);
        (0..rows.len()).filter(has_worse_rank).filter(move |other| time(at) > MISPLACED * time(*other))
    };
    let takes_longer = |at: usize, other: usize| {
        let interval = ranking.comparison(at, other).interval;
        !ranking.is_better(at, other) && interval.is_none_or(|interval| interval.estimate > 0.0)
    };
    let misplaced = (0..rows.len()).filter(|at| shorter(*at).next().is_some());
    let (undecided, by_drift): (Vec<usize>, Vec<usize>) =
        misplaced.partition(|at| shorter(*at).any(|other| takes_longer(*at, other)));
    let at = at(value);
    let names = |of: &[usize]| of.iter().map(|at| short(&rows[*at])).collect::<Vec<_>>().join(", ");
    let undecided = (!undecided.is_empty()).then(|| {
        format!(
            "ranked above rows with shorter times{at}, because the differences are not decided: {}",
            names(&undecided)
        )
    });
    let by_drift = (!by_drift.is_empty()).then(|| {
        format!(
            "times and ranks disagree{at}: {}; trust the ranks, which compare measurements made at the same time",
            names(&by_drift)
        )
    });
    undecided.into_iter().chain(by_drift).collect()
}

/// Names the mechanisms without a rank.
fn unranked(ranking: &Ranking, value: &str) -> Option<String> {
    let is_unranked = |row: &&Row| row.result.is_some() && !is_ranked(row) && ranking.floor.is_some();
    let names: Vec<&str> = ranking.rows.iter().filter(is_unranked).map(short).collect();
    let at = at(value);
    (!names.is_empty()).then(|| format!("too few rounds in common with others for a rank{at}: {}", names.join(", ")))
}

/// Names the mechanisms that have a worse rank than the fastest candidate, because more rows are
/// decided to be faster, although no difference between the two is decided.
fn undecided_although_worse(ranking: &Ranking, value: &str) -> Option<String> {
    let TableOutcome { leaders, .. } = outcome(ranking)?;
    let number = |row: &Row| Some(row.result.as_ref()?.rank?.number);
    let (best, others) = leaders.split_first()?;
    let number_of_best = number(best)?;
    let is_worse = |row: &&&Row| number(row).is_some_and(|number| number > number_of_best);
    let names: Vec<&str> = others.iter().filter(is_worse).map(|row| short(row)).collect();
    let at = at(value);
    let words = || {
        let (best, names) = (short(best), shortened_list(&names, "and"));
        format!(
            "ranked below {best}{at} because more rows are faster, although no difference from it is decided: {names}"
        )
    };
    (!names.is_empty()).then(words)
}

/// Names the pairs that slices and runs without pauses put in opposite orders, by mechanism: first
/// the one with the most such pairs.
fn contradicted(ranking: &Ranking, value: &str) -> Option<String> {
    let rows = ranking.rows.len();
    let pairs = (0..rows).flat_map(|first| (first + 1..rows).map(move |second| (first, second)));
    let mut pairs: Vec<(usize, usize)> =
        pairs.filter(|&(first, second)| ranking.comparison(first, second).is_contradicted).collect();
    let name = |row: usize| short(&ranking.rows[row]);
    let mut groups = Vec::new();
    while !pairs.is_empty() {
        let count = |row: usize| pairs.iter().filter(|(first, second)| *first == row || *second == row).count();
        let most = (0..rows).rev().max_by_key(|&row| count(row))?;
        let others = pairs.extract_if(.., |(first, second)| *first == most || *second == most);
        let others: Vec<&str> =
            others.map(|(first, second)| name(if first == most { second } else { first })).collect();
        groups.push(format!("{} against {}", name(most), list(&others, "and")));
    }
    let words = format!("not decided{}, because slices and runs without pauses give opposite orders", at(value));
    (!groups.is_empty()).then(|| format!("{words}: {}", groups.join("; ")))
}

/// Returns the offered and the delivered rate of a stream that lost messages.
fn offered(ranking: &Ranking, result: &RowResult) -> String {
    if ranking.cell.pattern.is_round_trip() || ranking.cell.load != Load::Saturated || result.lost >= 1.0 {
        return String::new();
    }
    let delivered = 1e9 / result.metric_ns;
    format!(": {} offered, {} delivered", units::rate(delivered / (1.0 - result.lost)), units::rate(delivered))
}

/// Names the mechanisms with a weaker order than others in the cell.
fn weaker_orders(promises: &[(&str, Ordering)]) -> Vec<String> {
    let mut notes = Vec::new();
    for (order, words) in [
        (Ordering::PerProducer, "only the messages of one producer are in order"),
        (Ordering::Unordered, "no order is guaranteed"),
    ] {
        let names: Vec<&str> = promises.iter().filter(|(_, of)| *of == order).map(|(name, _)| *name).collect();
        if !names.is_empty() && names.len() < promises.len() {
            notes.push(format!("{words}: {}", names.join(", ")));
        }
    }
    notes
}

/// Lists the mechanisms that could not run in a cell, by reason.
pub(crate) fn refusals(record: &Record) -> String {
    let refusals = record.refusals.iter().map(|refusal| (&*refusal.case.mechanism, &*refusal.why));
    match &*by_reason(refusals) {
        "" => String::new(),
        rows => format!("Missing in some tables of their scope, and why:\n{rows}\n"),
    }
}

/// A row for each reason, with the mechanisms to which it applies.
pub(crate) fn by_reason<'a>(refusals: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let rows: Vec<_> = reasons(refusals).into_iter().map(Vec::from).collect();
    if rows.is_empty() { String::new() } else { columns(&[], &[], &rows) }
}

/// Each reason and the mechanisms to which it applies.
pub(crate) fn reasons<'a>(refusals: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<[String; 2]> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (mechanism, why) in refusals {
        let at = reasons.iter().position(|(known, _)| *known == why).unwrap_or_else(|| {
            reasons.push((why, Vec::new()));
            reasons.len() - 1
        });
        let names = &mut reasons[at].1;
        if !names.contains(&mechanism) {
            names.push(mechanism);
        }
    }
    reasons.into_iter().map(|(why, names)| [plain(why), plain(&grouped_by_family(&names))]).collect()
}

/// Joins names. Consecutive names that differ only after the last dot are written as one:
/// `task/select-all.{tokio,flume}`. A dot in a version, as in `ipc-channel-0.13`, is none.
pub(crate) fn grouped_by_family(names: &[&str]) -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for name in names {
        match name.rsplit_once('.').filter(|(_, after)| !after.starts_with(|first: char| first.is_ascii_digit())) {
            Some((before, after)) => {
                match groups.last_mut().filter(|(last, afters)| last == &before && !afters.is_empty()) {
                    Some((_, afters)) => afters.push(after),
                    None => groups.push((before, vec![after])),
                }
            }
            None => groups.push((name, Vec::new())),
        }
    }
    let words = groups.into_iter().map(|(before, afters)| match &*afters {
        [] => before.to_owned(),
        [after] => format!("{before}.{after}"),
        afters => format!("{before}.{{{}}}", afters.join(",")),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use estafette_measure::ranking::{Rank, rank};
    use estafette_measure::record::{Outcome, SliceFigure};

    use super::*;
    use crate::comparison::tests::changed;

    #[test]
    fn a_weaker_order_is_reported_if_others_keep_a_stronger_one() {
        let promises = [("a", Ordering::Strict), ("b", Ordering::PerProducer), ("c", Ordering::PerProducer)];
        let notes = weaker_orders(&promises);
        assert_eq!(notes, ["only the messages of one producer are in order: b, c"]);
        assert!(weaker_orders(&promises[1..]).is_empty(), "none keeps a stronger order");
    }

    #[test]
    fn a_row_whose_time_is_much_longer_than_that_of_a_worse_rank_is_named() {
        let mut ranking = rank(&changed("process/unix-stream", 2.0)).remove(1);
        assert!(misplaced(&ranking, "").is_empty());
        for row in ranking.rows.iter_mut().filter(|row| short(row) == "unix-stream") {
            // As if the machine had been fast while it was measured.
            row.result.as_mut().unwrap().metric_ns /= 4.0;
        }
        let words = "pipe; trust the ranks, which compare measurements made at the same time";
        assert_eq!(misplaced(&ranking, ""), [format!("times and ranks disagree: {words}")]);
        assert_eq!(misplaced(&ranking, "4KiB"), [format!("times and ranks disagree at 4KiB: {words}")]);
    }

    #[test]
    fn a_row_that_is_ranked_above_a_shorter_time_is_named() {
        let mut ranking = rank(&changed("process/unix-stream", 2.0)).remove(1);
        // As if the difference were not decided, and the slower one beaten by fewer rows.
        for row in &mut ranking.rows {
            let number = if short(row) == "unix-stream" { 1 } else { 2 };
            row.result.as_mut().unwrap().rank = Some(Rank { number, tied: false });
        }
        let words = "ranked above rows with shorter times, because the differences are not decided: unix-stream";
        assert_eq!(misplaced(&ranking, ""), [words]);
    }

    #[test]
    fn a_pair_whose_order_depends_on_pauses_is_named() {
        let mut record = changed("process/unix-stream", 2.0);
        assert_eq!(rank(&record).iter().find_map(|ranking| contradicted(ranking, "")), None);
        let entrants = &record.entrants;
        for instance in &mut record.instances {
            let Outcome::Measured(figures) = &mut instance.outcome else { continue };
            let (ns, is_changed) =
                (figures.metric_ns(), entrants[instance.entrant].case.mechanism == "process/unix-stream");
            instance.heat = Some(instance.round + 1);
            figures.slices = (1..=10).map(|lap| SliceFigure { lap, ns }).collect();
            // Without pauses, it takes half as long as the others.
            figures.unpaused_run_ns = Some(if is_changed { ns / 4.0 } else { ns });
        }
        let words = "not decided at 4KiB, because slices and runs without pauses give opposite orders: ";
        let note = rank(&record).iter().find_map(|ranking| contradicted(ranking, "4KiB")).unwrap();
        assert!(note.starts_with(words) && note.contains("unix-stream"), "{note}");
    }

    #[test]
    fn a_worse_rank_without_a_decided_difference_is_explained() {
        let mut ranking = rank(&changed("process/unix-stream", 1.0)).remove(1);
        assert_eq!(undecided_although_worse(&ranking, ""), None);
        let at = outcome(&ranking).unwrap().leaders[1].spec.name.clone();
        let worse = ranking.rows.iter_mut().find(|row| row.spec.name == at).unwrap();
        worse.result.as_mut().unwrap().rank = Some(Rank { number: 9, tied: false });
        let outcome = outcome(&ranking).unwrap();
        let [best, worse] = [0, 1].map(|at| short(outcome.leaders[at]));
        let words = format!(
            "ranked below {best} because more rows are faster, although no difference from it is decided: {worse}"
        );
        assert_eq!(undecided_although_worse(&ranking, ""), Some(words));
    }

    #[test]
    fn times_from_one_host_to_the_other_are_labelled_with_their_error() {
        let mut ranking = rank(&changed("", 1.0)).remove(0);
        assert!(facts(&ranking).iter().all(|fact| !fact.contains("clock")));
        ranking.one_way = Some(OneWay { error_ns: 3_000.0, half_round_trip_ns: Some(12_000.0) });
        let words = "times are from one host's clock to the other's, and each may be wrong by up to 3.00 us; half of the link's \
                     fastest round trip is 12.0 us";
        assert!(facts(&ranking).contains(&String::from(words)), "{:?}", facts(&ranking));
    }

    #[test]
    fn names_of_one_family_are_written_as_one() {
        assert_eq!(
            grouped_by_family(&["task/a", "task/b.x", "task/b.y", "task/c.x", "task/b"]),
            "task/a task/b.{x,y} task/c.x task/b"
        );
        assert_eq!(grouped_by_family(&["c-0.13", "c-0.13.x", "c-0.13.y"]), "c-0.13 c-0.13.{x,y}");
    }
}
