//! Two hundred questions to the published records, each answered by `choose` and by the raw ratios.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use estafette_measure::case::Cell;
use estafette_measure::core_distance::Comparable;
use estafette_measure::pairs::log_ratios;
use estafette_measure::ranking::{Ranking, Row, rank};
use estafette_measure::record::Record;
use estafette_measure::spec::{Loss, Ordering, Ownership, Runtime, Spec, Standing};
use estafette_measure::stats::{CONFIDENCE, Margins, Verdict, median_interval, noise_floor, verdict};
use glob::Pattern as Glob;

use super::answer::tests::question;
use super::answer::{Answer, Certainty};
use super::question::Question;
use crate::args::Need;

/// The number of questions with one answer, and the seed that chooses them.
const QUESTIONS: usize = 200;
const SEED: u64 = 20;

/// A published record, as `choose` and as the oracle see it.
pub(super) struct Published {
    pub(super) file: String,
    pub(super) record: Record,
    pub(super) rankings: Vec<Ranking>,
    comparable: Record,
}

/// A question about one cell, with what is expected.
struct Asked<'a> {
    published: &'a Published,
    ranking: &'a Ranking,
    needs: Vec<Need>,
    /// The only mechanisms that are asked for. Empty for all.
    names: Vec<String>,
    /// The mechanisms that meet the needs and have a result, by their number in the record.
    fit: Vec<usize>,
    floor: Option<f64>,
}

/// The published records. They are loaded and ranked once for all tests, which takes seconds.
pub(super) fn published() -> &'static [Published] {
    static PUBLISHED: LazyLock<Vec<Published>> = LazyLock::new(load_published);
    &PUBLISHED
}

fn load_published() -> Vec<Published> {
    let results = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let files = fs::read_dir(results).unwrap().flatten().map(|file| file.path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "gz")).collect();
    files.sort();
    let load = |path: &PathBuf| {
        let record = Record::load(path).unwrap();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        Published { file, rankings: rank(&record), comparable: Comparable::of(&record).record, record }
    };
    files.iter().map(load).collect()
}

/// Each kind of need in the oracle's own words.
fn meets(spec: &Spec, need: Need, cell: &Cell) -> bool {
    match need {
        Need::NoLoss => spec.loss != Loss::BestEffort,
        Need::Order => match spec.ordering {
            Ordering::Strict => true,
            Ordering::PerProducer => cell.producers == 1,
            Ordering::Unordered => false,
        },
        Need::OrderPerProducer => matches!(spec.ordering, Ordering::Strict | Ordering::PerProducer),
        Need::Owned => spec.ownership == Ownership::Owned,
        Need::InPlace => spec.ownership == Ownership::Loaned,
        Need::Async => !spec.runtimes.contains(&Runtime::Thread),
        Need::NoDependencies => ["kernel", "std"].contains(&&*spec.version),
        Need::Typed | Need::OtherLanguages => unreachable!("not asked here"),
    }
}

impl Asked<'_> {
    /// The question whose only answer is this cell.
    fn question(&self) -> Question {
        let names = self.names.iter().map(|name| Glob::new(name).unwrap()).collect();
        Question { names, needs: self.needs.clone(), ..question(&self.ranking.cell) }
    }

    /// What `choose` answers.
    fn answer(&self) -> Answer {
        let Published { rankings, record, .. } = self.published;
        let question = self.question();
        let found = question.find(rankings).unwrap();
        assert!(found.notes.is_empty(), "{:?}", found.notes);
        let [ranking] = &*found.rankings else {
            panic!("{} has the cell {} twice", self.published.file, self.ranking.cell)
        };
        Answer::of(ranking, &question, record, rankings)
    }

    fn name(&self, entrant: usize) -> &str {
        &self.published.record.entrants[entrant].case.mechanism
    }

    /// The verdict on `b` against `a`, from the ratios of their rounds.
    fn verdict(&self, a: usize, b: usize) -> Verdict {
        let interval = median_interval(&log_ratios(&self.published.comparable, a, b), CONFIDENCE);
        verdict(interval.as_ref(), self.floor, Margins::default())
    }

    /// Whether `b` is slower than `a`, or than a mechanism that is slower than `a`, and so on.
    fn beats(&self, a: usize, b: usize) -> bool {
        let row = |entrant: usize| self.ranking.rows.iter().position(|row| row.spec.name == self.name(entrant));
        let (Some(a), Some(b)) = (row(a), row(b)) else { return false };
        let (mut slower, mut next) = (vec![a], 0);
        while let Some(&one) = slower.get(next) {
            let is_slower = |other: &usize| {
                !slower.contains(other) && self.ranking.comparison(one, *other).verdict == Verdict::Slower
            };
            let more: Vec<usize> = (0..self.ranking.rows.len()).filter(is_slower).collect();
            slower.extend(more);
            next += 1;
        }
        a != b && slower.contains(&b)
    }

    /// Whether it has enough rounds in common with the others.
    fn is_ranked(&self, entrant: usize) -> bool {
        let mut rows = self.ranking.rows.iter().filter(|row| row.spec.name == self.name(entrant));
        rows.any(|row| row.result.as_ref().is_some_and(|result| result.rank.is_some()))
    }

    /// The mechanism that beats every other, if there are several and one does.
    fn winner(&self) -> Option<usize> {
        let ranked: Vec<usize> = self.fit.iter().copied().filter(|at| self.is_ranked(*at)).collect();
        let is_slower = |one: usize, other: usize| match self.is_ranked(other) {
            true => self.beats(one, other),
            false => self.time(other) >= self.time(one),
        };
        let beats_all = |one: usize| self.fit.iter().all(|other| *other == one || is_slower(one, *other));
        ranked.iter().copied().find(|one| ranked.len() > 1 && beats_all(*one))
    }

    fn time(&self, entrant: usize) -> f64 {
        let mut rows = self.ranking.rows.iter().filter(|row| row.spec.name == self.name(entrant));
        rows.find_map(|row| Some(row.result.as_ref()?.metric_ns)).unwrap()
    }

    fn words(&self) -> String {
        let needs: Vec<String> = self.needs.iter().map(Need::to_string).collect();
        let names = self.names.join(" and ");
        format!("{}: {} with {} of {names}", self.published.file, self.ranking.cell, needs.join(","))
    }
}

/// Every question: each ranked cell with each combination of needs, and for each two neighbours in
/// its table which of the two to use.
fn asked() -> &'static [Asked<'static>] {
    static ASKED: LazyLock<Vec<Asked>> = LazyLock::new(|| ask_all(published()));
    &ASKED
}

fn ask_all(published: &[Published]) -> Vec<Asked<'_>> {
    let needs: [&[Need]; 9] = [
        &[],
        &[Need::NoLoss],
        &[Need::Order],
        &[Need::OrderPerProducer, Need::NoLoss],
        &[Need::Owned],
        &[Need::InPlace],
        &[Need::NoDependencies],
        &[Need::NoDependencies, Need::Order],
        &[Need::Async, Need::Order],
    ];
    let mut all = Vec::new();
    for published in published {
        for ranking in published.rankings.iter().filter(|ranking| ranking.cell.pattern.is_ranked()) {
            for needs in needs {
                all.push(of_cell(published, ranking, needs, &[]));
            }
            let is_candidate = |row: &&Row| row.spec.standing == Standing::Candidate;
            let names: Vec<&str> = ranking.rows.iter().filter(is_candidate).map(|row| &*row.spec.name).collect();
            all.extend(names.windows(2).map(|pair| of_cell(published, ranking, &[], pair)));
        }
    }
    all
}

fn of_cell<'a>(published: &'a Published, ranking: &'a Ranking, needs: &[Need], names: &[&str]) -> Asked<'a> {
    let (record, cell) = (&published.record, &ranking.cell);
    let of_cell = || record.entrants.iter().enumerate().filter(|(_, entrant)| entrant.case.cell == *cell);
    let is_measured = |name: &str| {
        let mut rows = ranking.rows.iter().filter(|row| row.spec.name == name);
        rows.any(|row| row.result.is_some() && row.breach.is_none())
    };
    let fit = of_cell().filter(|(_, entrant)| {
        let spec = record.spec(&entrant.case.mechanism).unwrap();
        let is_candidate = !entrant.control && spec.standing == Standing::Candidate;
        let is_named = names.is_empty() || names.contains(&&*spec.name);
        is_candidate && is_named && is_measured(&spec.name) && needs.iter().all(|need| meets(spec, *need, cell))
    });
    let control = of_cell().find(|(_, entrant)| entrant.control);
    let floor = control.and_then(|(control, twice)| {
        let (original, _) = of_cell().find(|(_, entrant)| !entrant.control && entrant.case == twice.case)?;
        noise_floor(&log_ratios(&published.comparable, original, control))
    });
    let names = names.iter().map(|name| String::from(*name)).collect();
    Asked { published, ranking, needs: needs.to_vec(), names, fit: fit.map(|(at, _)| at).collect(), floor }
}

#[test]
fn two_hundred_questions_with_one_answer_get_the_winner_of_the_record() {
    let mut shuffled: Vec<&Asked> = asked().iter().collect();
    fastrand::Rng::with_seed(SEED).shuffle(&mut shuffled);
    let with_winner = shuffled.into_iter().filter_map(|asked| Some((asked, asked.winner()?)));
    let (mut questions, mut wrong) = (0, Vec::new());
    for (asked, winner) in with_winner.take(QUESTIONS) {
        questions += 1;
        let answer = asked.answer();
        if answer.certainty != Certainty::Decided || answer.best != [asked.name(winner)] {
            wrong.push(format!("{}: {:?} instead of {}", asked.words(), answer.best, asked.name(winner)));
        }
    }
    assert_eq!((questions, &*wrong), (QUESTIONS, &[][..]));
}

#[test]
fn questions_without_one_answer_are_said_to_be_equal_or_not_decided() {
    let (mut equal, mut undecided) = (0, 0);
    for asked in asked().iter().filter(|asked| asked.fit.len() > 1 && asked.winner().is_none()) {
        let answer = asked.answer();
        let number = |name: &String| asked.fit.iter().copied().find(|at| asked.name(*at) == name).unwrap();
        let best: Vec<usize> = answer.best.iter().map(number).collect();
        if asked.floor.is_none() || asked.fit.iter().filter(|at| asked.is_ranked(**at)).count() < 2 {
            assert_eq!(
                (answer.certainty, best.len()),
                (Certainty::Undecided, 0),
                "{}: {}",
                asked.words(),
                answer.words
            );
            undecided += 1;
            continue;
        }
        let verdicts: Vec<Verdict> = best[1..].iter().map(|other| asked.verdict(best[0], *other)).collect();
        let mut others = asked.fit.iter().filter(|at| !best.contains(at));
        let are_others_slower = others.all(|other| match asked.is_ranked(*other) {
            true => best.iter().any(|best| asked.beats(*best, *other)),
            false => asked.time(*other) >= asked.time(best[0]),
        });
        let is_none_slower = best.iter().all(|one| !best.iter().any(|other| asked.beats(*other, *one)));
        assert!(are_others_slower && is_none_slower, "{}: {:?}", asked.words(), answer.best);
        let are_equal = verdicts.iter().all(|verdict| *verdict == Verdict::Equivalent);
        let expected = if are_equal { Certainty::Equivalent } else { Certainty::Undecided };
        assert_eq!(answer.certainty, expected, "{}: {}", asked.words(), answer.words);
        *(if are_equal { &mut equal } else { &mut undecided }) += 1;
    }
    assert!(equal >= 20 && undecided >= 50, "{equal} equal, {undecided} not decided");
}

#[test]
fn questions_that_nothing_or_one_mechanism_satisfies_are_answered_so() {
    for asked in asked().iter().filter(|asked| asked.fit.len() < 2) {
        let (answer, words) = (asked.answer(), asked.words());
        match &*asked.fit {
            [] => {
                assert!(matches!(answer.certainty, Certainty::Nothing | Certainty::NoResult), "{words}");
                let is_asked = |row: &&Row| {
                    let is_named = asked.names.is_empty() || asked.names.contains(&row.spec.name);
                    is_named && row.spec.standing == Standing::Candidate
                };
                let candidates = asked.ranking.rows.iter().filter(is_asked);
                assert_eq!(answer.excluded.len(), candidates.count(), "each has its reason: {words}");
            }
            [one] => {
                assert_eq!((answer.certainty, &*answer.best), (Certainty::OnlyOne, &[asked.name(*one).to_owned()][..]))
            }
            _ => unreachable!(),
        }
    }
}
