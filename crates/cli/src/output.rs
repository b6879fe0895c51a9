//! What `bench` and `report` print for a record: tables, then sentences.

use estafette_measure::core_distance::Comparable;
use estafette_measure::ranking;
use estafette_measure::record::Record;

use crate::columns::wrapped;
use crate::{hosts, other_load, reference, summary, table};

/// How much a report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Cells that differ in one value, such as the size, in one matrix.
    Short,
    /// A table for each cell too.
    Full,
}

impl Detail {
    /// Converts the value of `--details`.
    pub(crate) fn of(details: bool) -> Detail {
        if details { Detail::Full } else { Detail::Short }
    }
}

/// Returns everything that `bench` and `report` print for a record.
pub(crate) fn report(record: &Record, detail: Detail) -> String {
    let rankings = ranking::rank(record);
    let (grid, others): (Vec<_>, Vec<_>) =
        rankings.iter().partition(|ranking| reference::is_channels_cell(record, ranking));
    let mut text = table::cells(&others, detail == Detail::Full);
    text.push_str(&reference::channels(record, &grid));
    text.push_str(&reference::typed(record, &rankings));
    text.push_str(&reference::network(&rankings));
    text.push_str(&reference::flow(&Comparable::of(record).record, &rankings));
    text.push_str(&table::fairness(&rankings));
    text.push_str(&table::system_calls(&rankings));
    text.push_str(&table::refusals(record));
    text.extend(hosts::sentence(record).map(|sentence| wrapped("", &sentence)));
    text.push_str(&summary::sentences(record, &rankings));
    text.extend(other_load::sentence(record));
    text
}
