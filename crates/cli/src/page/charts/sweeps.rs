//! Charts of a figure against a value in which cells differ: size, load, producers.

use estafette_measure::case::{Cell, Load};
use estafette_measure::ranking::Ranking;
use estafette_measure::units;

use super::super::chart::Chart;
use super::super::instances::Instances;
use super::super::plot::{Kind, Lines, Point, Series, XAxis};
use super::mechanisms::{by_merit, found, kind};
use super::quantity::Quantity;
use super::slug::slug;
use crate::table::matrix::{Axis, label};
use crate::table::short;

/// The knee of a latency is the highest load up to which it is at most this many times that at the
/// lowest load.
const KNEE: f64 = 10.0;

/// Returns a chart for each group of cells that differ in this value only.
pub(super) fn charts(rankings: &[&Ranking], instances: &Instances<'_>, axis: Axis) -> Vec<Chart> {
    let mut groups: Vec<Vec<&Ranking>> = Vec::new();
    for &ranking in rankings.iter().filter(|ranking| takes_part(&ranking.cell, axis)) {
        let is_same = |group: &&mut Vec<&Ranking>| axis.replaced(&group[0].cell, &ranking.cell) == ranking.cell;
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(ranking),
            None => groups.push(vec![ranking]),
        }
    }
    let charts = groups.into_iter().filter_map(|mut group| {
        group.sort_by(|a, b| value(&a.cell, axis).total_cmp(&value(&b.cell, axis)));
        group.dedup_by(|a, b| value(&a.cell, axis) == value(&b.cell, axis));
        (group.len() > 1).then(|| chart(&group, instances, axis))
    });
    // Without a line there is nothing to see.
    let has_line =
        |chart: &Lines| chart.series.iter().any(|series| series.kind != Kind::Bound && series.points.len() > 1);
    charts.filter(has_line).map(Chart::Lines).collect()
}

fn takes_part(cell: &Cell, axis: Axis) -> bool {
    let is_saturated = cell.load == Load::Saturated;
    let fits = match axis {
        Axis::Size => is_saturated,
        Axis::Producers => is_saturated && cell.pattern.has_several_parties(),
        Axis::Load => !is_saturated,
        Axis::Capacity => false,
    };
    fits && cell.pattern.is_ranked()
}

fn value(cell: &Cell, axis: Axis) -> f64 {
    match axis {
        Axis::Size => cell.payload.len() as f64,
        Axis::Producers => cell.producers as f64,
        Axis::Capacity => cell.capacity as f64,
        Axis::Load => cell.load.rate().unwrap_or(0) as f64,
    }
}

fn chart(group: &[&Ranking], instances: &Instances<'_>, axis: Axis) -> Lines {
    let cell = &group[group.len() - 1].cell;
    // The unit of all is that of the longest message.
    let quantity = match (Quantity::of(cell), axis) {
        (Quantity::Throughput(_), Axis::Producers) => Quantity::Throughput(super::super::plot::Unit::Rate),
        (quantity, _) => quantity,
    };
    let names: Vec<(&str, Kind)> = by_merit(group).into_iter().map(|row| (short(row), kind(row))).collect();
    let series = names.into_iter().map(|(name, kind)| series(group, instances, axis, quantity, name, kind));
    let mut series: Vec<Series> = series.collect();
    series.extend(bound(group, axis, quantity));
    let ticks = group.iter().map(|ranking| (value(&ranking.cell, axis), tick(&ranking.cell, axis)));
    let (x, against) = match axis {
        Axis::Size => ("message size", "size"),
        Axis::Producers => ("number of producers, clients or connections", "producers"),
        Axis::Capacity => ("capacity", "capacity"),
        Axis::Load => ("offered load", "offered load"),
    };
    let by = format!(" by {}", axis.name());
    let title = label(&group[0].cell, axis).replace(&format!(" ·{by}"), "").replace(&by, "");
    let title = title.split_once(" · ").map_or(&*title, |(_, rest)| rest);
    Lines {
        id: slug(cell, &format!("by-{}", against.replace(' ', "-"))),
        title: format!("{} against {against}: {title}", quantity.word()),
        note: note(quantity, axis),
        x: XAxis { label: x, ticks: ticks.collect() },
        y: quantity.axis(),
        series,
    }
}

fn tick(cell: &Cell, axis: Axis) -> String {
    match axis {
        Axis::Size => units::size(cell.payload.len()),
        Axis::Producers => cell.producers.to_string(),
        Axis::Capacity => cell.capacity.to_string(),
        Axis::Load => units::rate(value(cell, axis)).replace(".00 ", " ").replace(".0 ", " "),
    }
}

fn note(quantity: Quantity, axis: Axis) -> String {
    let better = match quantity {
        Quantity::Throughput(_) => "Higher is better.",
        Quantity::RoundTrip | Quantity::Coding | Quantity::Latency => "Lower is better.",
    };
    let knee = match axis {
        Axis::Load => format!(
            " A ring marks the knee: the highest load up to which the latency is at most {KNEE} times that at the lowest load."
        ),
        _ => String::new(),
    };
    format!("{better} Both axes are logarithmic. Bars at the points are intervals of the median over the rounds.{knee}")
}

fn series(
    group: &[&Ranking],
    instances: &Instances<'_>,
    axis: Axis,
    quantity: Quantity,
    name: &str,
    kind: Kind,
) -> Series {
    let points = group.iter().filter_map(|ranking| {
        let (cell, (row, result)) = (&ranking.cell, found(ranking, name)?);
        let figure = |ns: f64| quantity.value(cell, ns);
        let interval = instances.interval(&row.spec.name, cell).map(|(low, high)| {
            let (a, b) = (figure(low), figure(high));
            (a.min(b), a.max(b))
        });
        Some(Point { x: value(cell, axis), y: figure(result.metric_ns), interval })
    });
    let points: Vec<Point> = points.collect();
    let knee = (axis == Axis::Load).then(|| knee(&points));
    let text = |knee: &Option<f64>| match knee {
        Some(rate) => format!("at {}", units::rate(*rate)),
        None => String::from("not reached"),
    };
    Series {
        name: name.to_owned(),
        kind,
        points,
        earlier: Vec::new(),
        remark: knee.as_ref().map(text),
        marked_x: knee.flatten(),
    }
}

/// The last load before the latency exceeds [`KNEE`] times that at the lowest load. `None` if it
/// never does.
fn knee(points: &[Point]) -> Option<f64> {
    let lowest = points.first()?.y;
    let beyond = points.iter().position(|point| point.y > KNEE * lowest)?;
    points[..beyond].last().map(|point| point.x)
}

/// The bound of each cell as a series, if most cells have one.
fn bound(group: &[&Ranking], axis: Axis, quantity: Quantity) -> Option<Series> {
    let point = |ranking: &&Ranking| {
        let ns = ranking.bound.as_ref()?.ns();
        Some(Point { x: value(&ranking.cell, axis), y: quantity.value(&ranking.cell, ns), interval: None })
    };
    let points: Vec<Point> = group.iter().filter_map(point).collect();
    (points.len() > 1).then(|| Series {
        name: String::from("bound of the machine"),
        kind: Kind::Bound,
        points,
        earlier: Vec::new(),
        remark: None,
        marked_x: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_the_last_load_before_the_latency_rises() {
        let points = |ys: &[f64]| -> Vec<Point> {
            let point = |(at, y): (usize, &f64)| Point { x: (at + 1) as f64, y: *y, interval: None };
            ys.iter().enumerate().map(point).collect()
        };
        assert_eq!(knee(&points(&[10.0, 12.0, 20.0, 500.0])), Some(3.0));
        assert_eq!(knee(&points(&[10.0, 12.0, 20.0])), None);
        assert_eq!(knee(&[]), None);
    }
}
