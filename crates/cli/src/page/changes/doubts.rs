//! How far the comparison and each run can be trusted.

use estafette_measure::ranking::Ranking;

use super::pair::{NAMES, Pair};
use crate::comparison::words::{drift, without_floor};
use crate::{other_load, summary};

/// How far the comparison and each run can be trusted: sentences, those of a run below its name.
pub(super) fn doubts(pair: &Pair<'_>, rankings: &[Vec<Ranking>; 2]) -> Vec<(Option<String>, Vec<String>)> {
    let mut parts = Vec::new();
    if let Ok(comparison) = &pair.comparison {
        let mut sentences = vec![drift(comparison.drift.as_ref())];
        sentences.extend(without_floor(comparison));
        sentences.push(String::from(
            "The runs were not measured in turn: a change that does not affect the reference rings, such as the layout of \
             another build, counts as a change. Verdicts are not corrected for their number: of many, some are wrong.",
        ));
        sentences.extend(comparison.notes.iter().map(|note| format!("Note: {note}.")));
        parts.push((None, sentences));
    }
    for ((name, record), rankings) in NAMES.into_iter().zip(pair.records).zip(rankings) {
        let mut sentences = summary::doubts(record, rankings);
        sentences.extend(other_load::sentence(record));
        parts.push((Some(format!("Run {name}")), sentences));
    }
    parts
}
