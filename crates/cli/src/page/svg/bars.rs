//! Draws horizontal bars: shares of a whole.

use maud::{Markup, html};

use super::super::plot::{Bar, Bars};
use super::{CHARACTER, WIDTH, fitted, frame, number};

/// The height of a bar with the space below it.
const LINE: f64 = 21.0;
/// The space for the percentage behind a bar.
const PERCENT: f64 = 52.0;
/// The most bars that are drawn; the table has all.
const MAX_BARS: usize = 30;

/// Draws the chart.
pub(in super::super) fn bars(chart: &Bars, is_alone: bool) -> Markup {
    let shown = &chart.bars[..chart.bars.len().min(MAX_BARS)];
    let longest = shown.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let left = (longest as f64 * CHARACTER + 16.0).clamp(60.0, 190.0);
    let whole = WIDTH - left - PERCENT;
    let bottom = 44.0 + shown.len() as f64 * LINE;
    let content = html! {
        text x="6" y="15" { (fitted(&format!("100 % = {}", chart.full), WIDTH)) }
        @for (at, bar) in shown.iter().enumerate() { (row(bar, 30.0 + at as f64 * LINE, left, whole)) }
        path class="axis" d=(format!("M{left} 26V{}M{} 26V{}", bottom - 12.0, left + whole, bottom - 12.0)) {}
        @if shown.len() < chart.bars.len() {
            text x=(left) y=(bottom + 4.0) { (format!("{} more, see the table", chart.bars.len() - shown.len())) }
        }
    };
    frame(&chart.id, [&chart.title, &chart.note], bottom + 10.0, is_alone, &content)
}

fn row(bar: &Bar, top: f64, left: f64, whole: f64) -> Markup {
    let length = (part(bar.share) * whole).max(1.0);
    let class = if bar.is_candidate { "c0" } else { "reference" };
    html! {
        g class=(class) {
            title { (format!("{}: {} of what the machine allows, {}", bar.name, bar.percent(), bar.figure)) }
            text class="name end" x=(left - 7.0) y=(top + 12.5) { (fitted(&bar.name, left - 10.0)) }
            rect class="rest" x=(left) y=(top) width=(number(whole)) height="15" {}
            rect class="bar" x=(left) y=(top) width=(number(length)) height="15" {}
            @if let Some(earlier) = bar.earlier {
                rect class="mark" x=(number(left + part(earlier) * whole - 1.0)) y=(top - 2.0) width="2" height="19" {}
            }
            text class="share" x=(number(left + whole + 6.0)) y=(top + 12.5) { (bar.percent()) }
        }
    }
}

/// The part of the full length that a share takes, from 0 to 1.
fn part(share: f64) -> f64 {
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_any_size_are_drawn_within_the_chart() {
        let bar = |share| Bar {
            name: String::from("<a>"),
            is_candidate: true,
            share,
            earlier: Some(share),
            figure: String::from("1 ns"),
        };
        let chart = Bars {
            id: String::from("id"),
            title: String::from("title"),
            note: String::new(),
            full: String::from("two wakes"),
            bars: [0.0, 0.5, 1.2, 1e300, f64::NAN, -3.0].map(bar).into(),
        };
        let svg = bars(&chart, true).into_string();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let widths = tree.descendants().filter(|node| node.attribute("class") == Some("bar"));
        assert!(widths.map(|node| node.attribute("width").unwrap().parse::<f64>().unwrap()).all(|width| width < WIDTH));
    }
}
