//! The names of charts.

use estafette_measure::case::Cell;

/// A name for files and links, of a cell without some of its values.
pub(super) fn slug(cell: &Cell, what: &str) -> String {
    let runtime = if cell.runtime == estafette_measure::spec::Runtime::Thread {
        format!("{}-{}", cell.wait, cell.place)
    } else {
        cell.runtime.to_string()
    };
    format!("{}-{}-{runtime}-{what}", cell.scope, cell.pattern)
}
