//! Draws lines over logarithmic axes, with a legend below.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::super::plot::{Kind, Lines, Point, Series, Unit};
use super::scale::Scale;
use super::{CHARACTER, WIDTH, fitted, frame, marker, number, without_zeros};

/// The edges of the plot.
const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 270.0;
/// The height of a line of the legend.
const LEGEND_LINE: f64 = 20.0;
/// The most lines that are drawn without a colour of their own.
const MAX_OTHERS: usize = 40;

/// Draws the chart.
pub(in super::super) fn lines(chart: &Lines, is_alone: bool) -> Markup {
    let points = || {
        let all = chart.series.iter().flat_map(|series| series.points.iter().chain(&series.earlier));
        all.filter(|point| point.is_drawable())
    };
    let x = Scale::of(points().map(|point| point.x), 0.04, (LEFT, RIGHT));
    let y = Scale::of(points().map(|point| point.y), 0.05, (BOTTOM, TOP));
    let (Some(x), Some(y)) = (x, y) else {
        let content = html! { text class="middle" x=(WIDTH / 2.0) y="30" { "no figures to draw" } };
        return frame(&chart.id, [&chart.title, &chart.note], 60.0, is_alone, &content);
    };
    let drawn = styled(&chart.series);
    let legend = Legend::of(&drawn, chart.has_earlier());
    let content = html! {
        (axes(chart, &x, &y))
        // The best is drawn last, above the others.
        @for series in drawn.iter().rev() { (line(chart, series, &x, &y, &legend)) }
        @for (nth, text) in legend.remarks.iter().enumerate() {
            text x="12" y=(number(legend.y_of_remark(nth))) { (text) }
        }
    };
    frame(&chart.id, [&chart.title, &chart.note], legend.height(), is_alone, &content)
}

/// A series with its look, and its place in the legend.
struct Styled<'a> {
    series: &'a Series,
    class: String,
    /// The shape of its points.
    shape: Option<usize>,
    legend: Option<usize>,
}

/// Gives the first candidates a colour and a shape each. The rest are thin lines.
fn styled(all: &[Series]) -> Vec<Styled<'_>> {
    let (mut ranked, mut others, mut in_legend) = (0, 0, 0);
    let mut styled = Vec::new();
    for series in all {
        let points = series.points.iter().filter(|point| point.is_drawable()).count();
        // A thin line has no points that could be seen by themselves.
        let is_thin = series.kind == Kind::Candidate && ranked == marker::COUNT;
        if points == 0 || is_thin && (points == 1 || others == MAX_OTHERS) {
            continue;
        }
        let (class, shape) = match series.kind {
            Kind::Candidate if ranked < marker::COUNT => {
                ranked += 1;
                (format!("c{}", ranked - 1), Some(ranked - 1))
            }
            Kind::Candidate => {
                others += 1;
                (String::from("other"), None)
            }
            Kind::Reference => (String::from("reference"), None),
            Kind::Bound => (String::from("bound"), None),
        };
        in_legend += usize::from(!is_thin);
        styled.push(Styled { series, class, shape, legend: (!is_thin).then(|| in_legend - 1) });
    }
    styled
}

/// The place of each name below the plot.
struct Legend {
    count: usize,
    columns: usize,
    /// Lines of text below the names.
    remarks: Vec<String>,
}

impl Legend {
    fn of(drawn: &[Styled<'_>], has_earlier: bool) -> Legend {
        let named = || drawn.iter().filter(|styled| styled.legend.is_some());
        let longest = named().map(|styled| styled.series.name.chars().count()).max().unwrap_or(0);
        let columns = if (longest as f64) * CHARACTER < Legend::width(3) - 30.0 { 3 } else { 2 };
        let others = drawn.len() - named().count();
        let others = (others > 0).then(|| format!("thin lines: {others} more, see the table"));
        let runs = has_earlier.then(|| String::from("full lines: B; faint, dashed: A"));
        Legend { count: named().count(), columns, remarks: others.into_iter().chain(runs).collect() }
    }

    fn width(columns: usize) -> f64 {
        (WIDTH - 16.0) / columns as f64
    }

    fn x(&self, at: usize) -> f64 {
        12.0 + (at % self.columns) as f64 * Legend::width(self.columns)
    }

    fn y(&self, at: usize) -> f64 {
        BOTTOM + 62.0 + (at / self.columns) as f64 * LEGEND_LINE
    }

    fn y_of_remark(&self, nth: usize) -> f64 {
        BOTTOM + 62.0 + (self.count.div_ceil(self.columns) + nth) as f64 * LEGEND_LINE
    }

    fn height(&self) -> f64 {
        let lines = self.count.div_ceil(self.columns) + self.remarks.len();
        BOTTOM + 52.0 + lines as f64 * LEGEND_LINE
    }
}

/// The frame, the grid and the labels of both axes.
fn axes(chart: &Lines, x: &Scale, y: &Scale) -> Markup {
    let base = if chart.y.unit == Unit::Bandwidth { 2.0 } else { 10.0 };
    let y_ticks = y.ticks(base);
    let x_ticks: Vec<(f64, &str)> = chart.x.ticks.iter().map(|(value, text)| (x.at(*value), &**text)).collect();
    let grid: String = y_ticks
        .iter()
        .map(|value| format!("M{LEFT} {}H{RIGHT}", number(y.at(*value))))
        .chain(x_ticks.iter().map(|(at, _)| format!("M{} {TOP}V{BOTTOM}", number(*at))))
        .collect();
    html! {
        path class="grid" d=(grid) {}
        path class="axis" d=(format!("M{LEFT} {TOP}V{BOTTOM}H{RIGHT}")) {}
        text x="6" y="15" { (chart.y.label) }
        @for value in &y_ticks {
            text class="end" x=(LEFT - 7.0) y=(number(y.at(*value) + 4.5)) {
                (without_zeros(&chart.y.unit.text(*value)))
            }
        }
        @for (at, text) in apart(&x_ticks) {
            text class="middle" x=(number(at)) y=(BOTTOM + 18.0) { (text) }
        }
        text class="middle" x=((LEFT + RIGHT) / 2.0) y=(BOTTOM + 37.0) { (chart.x.label) }
    }
}

/// Leaves out the labels that would touch the one before, and keeps the last one.
fn apart<'a>(ticks: &[(f64, &'a str)]) -> Vec<(f64, &'a str)> {
    let half = |text: &str| text.chars().count() as f64 * CHARACTER / 2.0 + 4.0;
    let touch = |a: &(f64, &str), b: &(f64, &str)| b.0 - a.0 < half(a.1) + half(b.1);
    let mut kept: Vec<(f64, &str)> = Vec::new();
    for (index, tick) in ticks.iter().enumerate() {
        let is_last = index + 1 == ticks.len();
        while is_last && kept.last().is_some_and(|before| touch(before, tick)) {
            kept.pop();
        }
        if kept.last().is_none_or(|before| !touch(before, tick)) {
            // A label at the edge stays within the chart.
            kept.push((tick.0.min(WIDTH - half(tick.1) + 2.0), tick.1));
        }
    }
    kept
}

/// One series: line, intervals, points, the line of an earlier run, and its name in the legend.
fn line(chart: &Lines, styled: &Styled<'_>, x: &Scale, y: &Scale, legend: &Legend) -> Markup {
    let points: Vec<&Point> = styled.series.points.iter().filter(|point| point.is_drawable()).collect();
    let (mut path, mut errors) = (String::new(), String::new());
    for (index, point) in points.iter().enumerate() {
        let (px, py) = (x.at(point.x), y.at(point.y));
        let _ = write!(path, "{}{} {}", if index == 0 { "M" } else { "L" }, number(px), number(py));
        if let Some((low, high)) = point.interval.filter(|_| styled.shape.is_some()) {
            let (low, high) = (y.at(low), y.at(high));
            // An interval that the point covers cannot be seen.
            if (low - high).abs() > 7.0 {
                let (left, right, px) = (number(px - 3.0), number(px + 3.0), number(px));
                let (low, high) = (number(low), number(high));
                let _ = write!(errors, "M{left} {high}H{right}M{px} {high}V{low}M{left} {low}H{right}");
            }
        }
    }
    let title = |point: &Point| {
        let tick = chart.x.ticks.iter().find(|(value, _)| *value == point.x).map_or("", |(_, text)| text);
        format!("{}, {tick}: {}", styled.series.name, chart.y.text(point))
    };
    let marked = styled.series.marked_x.and_then(|marked| points.iter().find(|point| point.x == marked));
    html! {
        g class=(format!("series {}", styled.class)) {
            title { (styled.series.name) }
            @if let Some(path) = earlier(styled.series, x, y) { path class="line earlier" d=(path) {} }
            path class="line" d=(path) {}
            @if !errors.is_empty() { path class="error" d=(errors) {} }
            @if let Some(point) = marked {
                path class="ring" d=(marker::circle(x.at(point.x), y.at(point.y), 8.0)) {}
            }
            @if let Some(shape) = styled.shape {
                @for point in &points {
                    path class="point" d=(marker::path(shape, x.at(point.x), y.at(point.y))) {
                        title { (title(point)) }
                    }
                }
            }
            @if let Some(at) = styled.legend { (name(styled, at, legend)) }
        }
    }
}

/// The path of the earlier run's line, with a ring at each point, so that a single point is seen
/// too.
fn earlier(series: &Series, x: &Scale, y: &Scale) -> Option<String> {
    let points = series.earlier.iter().filter(|point| point.is_drawable());
    let points: Vec<(f64, f64)> = points.map(|point| (x.at(point.x), y.at(point.y))).collect();
    let corner = |(at, (x, y)): (usize, &(f64, f64))| {
        format!("{}{} {}", if at == 0 { "M" } else { "L" }, number(*x), number(*y))
    };
    let line: String = points.iter().enumerate().map(corner).collect();
    let rings = points.iter().map(|(x, y)| marker::circle(*x, *y, 2.5));
    (!points.is_empty()).then(|| rings.fold(line, |path, ring| path + &ring))
}

/// The name in the legend, after a piece of the line.
fn name(styled: &Styled<'_>, at: usize, legend: &Legend) -> Markup {
    let (x, y) = (legend.x(at), legend.y(at));
    let width = Legend::width(legend.columns) - 34.0;
    html! {
        path class="line" d=(format!("M{} {}h20", number(x), number(y - 4.5))) {}
        @if let Some(shape) = styled.shape { path class="point" d=(marker::path(shape, x + 10.0, y - 4.5)) {} }
        text class="name" x=(number(x + 26.0)) y=(number(y)) { (fitted(&styled.series.name, width)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::plot::{XAxis, YAxis};
    use super::*;

    fn chart(count: usize, y: f64) -> Lines {
        let series = |at: usize| Series {
            name: format!("<b>{at}"),
            kind: Kind::Candidate,
            points: vec![Point { x: 1.0, y, interval: Some((y / 2.0, y * 2.0)) }],
            earlier: vec![Point { x: y, y, interval: None }],
            remark: None,
            marked_x: None,
        };
        Lines {
            id: String::from("id"),
            title: String::from("a & b"),
            note: String::from("\"note\""),
            x: XAxis { label: "size", ticks: vec![(1.0, String::from("1B"))] },
            y: YAxis { label: "rate", unit: Unit::Rate },
            series: (0..count).map(series).collect(),
        }
    }

    #[test]
    fn a_chart_is_well_formed_whatever_its_names_and_figures_are() {
        for y in [1.0, 1e308, 1e-300, f64::NAN, f64::INFINITY, 0.0, -1.0] {
            for count in [0, 1, 9, 200] {
                let svg = lines(&chart(count, y), true).into_string();
                let tree = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{y}: {error}\n{svg}"));
                assert!(tree.descendants().all(|node| !node.has_tag_name("b")));
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{y}: {svg}");
            }
        }
    }

    #[test]
    fn labels_do_not_touch_each_other() {
        let ticks: Vec<(f64, &str)> = (0..100).map(|at| (f64::from(at) * 4.0, "1024KiB")).collect();
        let kept = apart(&ticks);
        assert!(kept.len() < 10 && kept.windows(2).all(|pair| pair[1].0 - pair[0].0 > 40.0), "{kept:?}");
        assert_eq!(kept.last().unwrap().0, 396.0);
    }
}
