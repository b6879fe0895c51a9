//! What a chart shows, without how it is drawn.

use estafette_measure::units;

use super::grid::{Column, Entry, Grid};

/// Lines over a logarithmic x axis, with a logarithmic y axis.
#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) x: XAxis,
    pub(crate) y: YAxis,
    /// The best first.
    pub(crate) series: Vec<Series>,
}

/// An x axis with a label at each value.
#[derive(Debug)]
pub(crate) struct XAxis {
    pub(crate) label: &'static str,
    /// Ascending values, each with its text.
    pub(crate) ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct YAxis {
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Time,
    /// Per second.
    Rate,
    /// Bytes per second.
    Bandwidth,
}

impl Unit {
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Unit::Time => units::duration(value),
            Unit::Rate => units::rate(value),
            Unit::Bandwidth => units::bandwidth(value),
        }
    }
}

/// One mechanism's line.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) points: Vec<Point>,
    /// The points in an earlier run that is shown beside this one.
    pub(crate) earlier: Vec<Point>,
    /// What a column of its own says in the table, such as the knee.
    pub(crate) remark: Option<String>,
    /// The x value that a ring marks, such as the knee.
    pub(crate) marked_x: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A mechanism that a program might choose.
    Candidate,
    /// The least that can be written, or a hand-written baseline.
    Reference,
    /// What the machine allows.
    Bound,
}

/// A figure and its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// The lower and the upper end.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Point {
    /// Whether it can be drawn on logarithmic axes.
    pub(crate) fn is_drawable(&self) -> bool {
        [self.x, self.y].iter().all(|value| value.is_finite() && *value > 0.0)
    }
}

impl Lines {
    /// Whether it shows an earlier run, A, beside the run, B.
    pub(crate) fn has_earlier(&self) -> bool {
        self.series.iter().any(|series| !series.earlier.is_empty())
    }

    pub(super) fn grid(&self) -> Grid {
        let has_remarks = self.series.iter().any(|series| series.remark.is_some());
        let mut columns = vec![Column::text("mechanism")];
        columns.extend(self.x.ticks.iter().map(|(_, text)| Column::number(text)));
        columns.extend(has_remarks.then(|| Column::text("knee")));
        let mut rows = Vec::new();
        for series in &self.series {
            let remark = |text: Option<&str>| has_remarks.then(|| Entry::text(text.unwrap_or("-")));
            let mut name = series.name.clone();
            if !series.earlier.is_empty() {
                rows.push(self.row(format!("{name}, A"), &series.earlier, remark(None)));
                name.push_str(", B");
            }
            rows.push(self.row(name, &series.points, remark(series.remark.as_deref())));
        }
        let caption = format!("{}: {} by {}, with the interval of the median", self.title, self.y.label, self.x.label);
        Grid { caption, columns, rows }
    }

    fn row(&self, name: String, points: &[Point], remark: Option<Entry>) -> Vec<Entry> {
        let at = |x: f64| {
            let point = points.iter().find(|point| point.x == x);
            point.map_or(Entry::text("-"), |point| Entry::number(point.y, self.y.text(point)))
        };
        let figures = self.x.ticks.iter().map(|(x, _)| at(*x));
        std::iter::once(Entry::text(name)).chain(figures).chain(remark).collect()
    }
}

impl YAxis {
    /// A figure with its interval: `1.20 us [1.18 us - 1.25 us]`.
    pub(crate) fn text(self, point: &Point) -> String {
        let value = self.unit.text(point.y);
        match point.interval {
            Some((low, high)) => format!("{value} [{} - {}]", self.unit.text(low), self.unit.text(high)),
            None => value,
        }
    }
}

/// Horizontal bars: the shares of what the machine allows.
#[derive(Debug)]
pub(crate) struct Bars {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) note: String,
    /// What the full length is: `two wakes, 3.20 us`.
    pub(crate) full: String,
    pub(crate) bars: Vec<Bar>,
}

#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) is_candidate: bool,
    /// From 0; 1 is the full length. It may be above 1, because both figures are measured.
    pub(crate) share: f64,
    /// The share in an earlier run that is shown beside this one.
    pub(crate) earlier: Option<f64>,
    /// The figure from which the share follows.
    pub(crate) figure: String,
}

impl Bar {
    /// The share as a percentage with two digits at most.
    pub(crate) fn percent(&self) -> String {
        percent(self.share)
    }
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if !percent.is_finite() => String::from("-"),
        _ if percent >= 9.95 => format!("{} %", units::grouped(percent.round().min(1e15) as u64)),
        _ => format!("{percent:.1} %"),
    }
}

impl Bars {
    pub(super) fn grid(&self) -> Grid {
        let has_earlier = self.bars.iter().any(|bar| bar.earlier.is_some());
        let mut columns = vec![Column::text("mechanism"), Column::number("share of the bound"), Column::number("time")];
        columns.extend(has_earlier.then(|| Column::number("share in A")));
        let row = |bar: &Bar| {
            let mut row = vec![
                Entry::text(&bar.name),
                Entry::number(bar.share, bar.percent()),
                Entry::number(-bar.share, &bar.figure),
            ];
            row.extend(
                has_earlier.then(|| Entry::optional(bar.earlier, bar.earlier.map_or(String::from("-"), percent))),
            );
            row
        };
        let caption = format!("{}; 100 % is {}", self.title, self.full);
        Grid { caption, columns, rows: self.bars.iter().map(row).collect() }
    }
}
