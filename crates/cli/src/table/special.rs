//! Tables with columns of their own: dropped receives, bursts, codecs.

use estafette_measure::pattern::BURST;
use estafette_measure::ranking::Ranking;
use estafette_measure::units;

use super::answer::answer;
use super::cell::{against_first, labelled, rank_label, times_bound};
use super::notes::{caveats, footer};
use super::words::{short, without_result};
use crate::columns::{Left, Right, columns, wrapped};

/// Returns the table of messages that were lost when pending receives were dropped, with the
/// documented effect.
pub(super) fn cancelled(ranking: &Ranking) -> String {
    let headers = ["pending receives are dropped", "documented", "dropped", "lost", "rate"];
    let rows = ranking.rows.iter().map(|row| {
        let mut columns = vec![row.spec.name.clone(), row.spec.cancel.to_string()];
        match &row.result {
            Some(result) => {
                columns.extend(result.of_pattern.dropped().unwrap_or_default().map(units::grouped));
                columns.push(units::rate(1e9 / result.metric_ns));
            }
            None => columns.push(String::from("failed")),
        }
        columns
    });
    let table = columns(&headers, &[Left, Left, Right, Right, Right], &rows.collect::<Vec<_>>());
    format!("{}\n{table}{}", ranking.cell, caveats(ranking))
}

/// Returns the table of memory in use before, during and after a burst.
pub(super) fn burst(ranking: &Ranking) -> String {
    let headers = ["memory in use", "empty", "full", "after"];
    let rows = ranking.rows.iter().map(|row| {
        let sizes = row.result.as_ref().and_then(|result| result.of_pattern.burst_memory());
        let sizes = sizes.map(|sizes| sizes.map(units::memory).to_vec());
        [vec![row.spec.name.clone()], sizes.unwrap_or_else(|| vec![String::from("failed")])].concat()
    });
    let table = columns(&headers, &[Left, Right, Right, Right], &rows.collect::<Vec<_>>());
    format!("{}, {} messages\n{table}{}", ranking.cell, units::grouped(BURST), caveats(ranking))
}

/// Returns the table of the times to encode and decode a message, and of the encoded length.
pub(super) fn codec(ranking: &Ranking) -> String {
    let scope = ranking.cell.scope.to_string();
    let headers = ["#", &scope, "encode", "decode", "bytes", "against 1st", "× bound"];
    let rows = ranking.rows.iter().map(|row| {
        let (rank, name) = (rank_label(row), labelled(short(row)));
        let Some((result, codec)) = row.result.as_ref().and_then(|result| Some((result, result.of_pattern.codec()?)))
        else {
            return vec![rank, name, without_result(row).to_owned()];
        };
        vec![
            rank,
            name,
            units::duration(codec.encode_ns),
            units::duration(codec.decode_ns),
            units::grouped(codec.encoded_bytes.round() as u64),
            against_first(ranking, result),
            times_bound(ranking, result),
        ]
    });
    let table = columns(&headers, &[Right, Left, Right, Right, Right, Left, Right], &rows.collect::<Vec<_>>());
    format!("{}\n{}{table}{}{}", ranking.cell, wrapped("", &answer(ranking)), footer(ranking), caveats(ranking))
}
