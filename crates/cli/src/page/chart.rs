//! A chart of any kind: its name, its drawing and its data.

use maud::Markup;

use super::grid::Grid;
use super::plot::{Bars, Lines};
use super::svg;

/// A chart.
#[derive(Debug)]
pub(crate) enum Chart {
    Lines(Lines),
    Bars(Bars),
}

impl Chart {
    /// The name, which is unique in a report: a file's name and an HTML identifier.
    pub(crate) fn id(&self) -> &str {
        match self {
            Chart::Lines(lines) => &lines.id,
            Chart::Bars(bars) => &bars.id,
        }
    }

    pub(crate) fn id_mut(&mut self) -> &mut String {
        match self {
            Chart::Lines(lines) => &mut lines.id,
            Chart::Bars(bars) => &mut bars.id,
        }
    }

    pub(crate) fn title(&self) -> &str {
        match self {
            Chart::Lines(lines) => &lines.title,
            Chart::Bars(bars) => &bars.title,
        }
    }

    /// A sentence or two about what the chart shows and how it is read.
    pub(crate) fn note(&self) -> &str {
        match self {
            Chart::Lines(lines) => &lines.note,
            Chart::Bars(bars) => &bars.note,
        }
    }

    /// Draws the chart. `is_alone` gives it a style of its own, for a file.
    pub(crate) fn svg(&self, is_alone: bool) -> Markup {
        match self {
            Chart::Lines(lines) => svg::lines(lines, is_alone),
            Chart::Bars(bars) => svg::bars(bars, is_alone),
        }
    }

    /// The chart's data as a table.
    pub(crate) fn grid(&self) -> Grid {
        match self {
            Chart::Lines(lines) => lines.grid(),
            Chart::Bars(bars) => bars.grid(),
        }
    }
}
