//! The chart of `history`: a line for each shown case, over the runs.

use super::lineage::{CaseHistory, Lineage, PastRun};
use crate::page::{Chart, Kind, Lines, Point, Series, Unit, XAxis, YAxis};
use crate::table::is_different;

/// Runs stand at equal distances: the axis is logarithmic, so each value is this many times the one
/// before.
const STEP: f64 = 1.05;

/// Returns the chart of a lineage.
pub(super) fn chart(lineage: &Lineage) -> Chart {
    let tick = |(at, run): (usize, &PastRun)| {
        // The month, the day and the time.
        let text: String = run.started.chars().skip(5).take(11).collect();
        (x(at), text.replace('T', " "))
    };
    Chart::Lines(Lines {
        id: String::from("history"),
        title: String::from("Time per message over the runs"),
        note: String::from(
            "Lower is better. The y axis is logarithmic. Rings mark the last run whose change is decided.",
        ),
        x: XAxis { label: "start of the run", ticks: lineage.runs.iter().enumerate().map(tick).collect() },
        y: YAxis { label: "time per message or round trip", unit: Unit::Time },
        series: lineage.cases.iter().map(series).collect(),
    })
}

fn x(at: usize) -> f64 {
    STEP.powf(at as f64)
}

fn series(case: &CaseHistory) -> Series {
    let points = case.points.iter().enumerate();
    let points = points.filter_map(|(at, moment)| Some(Point { x: x(at), y: moment.ns?, interval: None }));
    let is_decided = |at: &usize| case.points[*at].change.is_some_and(|change| is_different(change.verdict));
    let cell = case.cell.to_string();
    let cell = cell.split_once(" · ").map_or(&*cell, |(_, cell)| cell);
    Series {
        name: format!("{} · {cell}", case.mechanism),
        kind: Kind::Candidate,
        points: points.collect(),
        earlier: Vec::new(),
        remark: None,
        marked_x: (0..case.points.len()).rev().find(is_decided).map(x),
    }
}
