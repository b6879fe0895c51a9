//! Charts of two runs: those of B, with the figures of A as a second series of each mechanism.

use super::super::chart::Chart;
use super::super::plot::{Bars, Kind, Lines};

/// The charts that both runs have, by title.
pub(super) fn merged(a: Vec<Chart>, b: Vec<Chart>) -> Vec<Chart> {
    let with_earlier = |chart: Chart| {
        let earlier = a.iter().find(|earlier| earlier.title() == chart.title())?;
        match (chart, earlier) {
            (Chart::Lines(b), Chart::Lines(a)) => Some(Chart::Lines(lines(a, b))),
            (Chart::Bars(b), Chart::Bars(a)) => Some(Chart::Bars(bars(a, b))),
            _ => None,
        }
    };
    b.into_iter().filter_map(with_earlier).collect()
}

fn lines(a: &Lines, mut b: Lines) -> Lines {
    for earlier in a.series.iter().filter(|series| series.kind != Kind::Bound) {
        let mut of_b = b.series.iter_mut();
        if let Some(series) = of_b.find(|series| series.name == earlier.name && series.kind != Kind::Bound) {
            series.earlier.clone_from(&earlier.points);
        }
    }
    for tick in &a.x.ticks {
        if b.x.ticks.iter().all(|known| known.0 != tick.0) {
            b.x.ticks.push(tick.clone());
        }
    }
    b.x.ticks.sort_by(|one, other| one.0.total_cmp(&other.0));
    b.note.push_str(" Full lines are run B; faint, dashed lines are run A. The bound is that of B.");
    b
}

fn bars(a: &Bars, mut b: Bars) -> Bars {
    for bar in &mut b.bars {
        bar.earlier = a.bars.iter().find(|earlier| earlier.name == bar.name).map(|earlier| earlier.share);
    }
    b.note.push_str(" The bars are run B; a mark is the share in run A, of what the machine allowed then.");
    b
}

#[cfg(test)]
mod tests {
    use super::super::super::plot::{Bar, Point, Series, Unit, XAxis, YAxis};
    use super::*;

    fn lines(title: &str, ys: &[f64]) -> Chart {
        let point = |(at, y): (usize, &f64)| Point { x: (at + 1) as f64, y: *y, interval: None };
        let series = |name: &str, kind| Series {
            name: name.to_owned(),
            kind,
            points: ys.iter().enumerate().map(point).collect(),
            earlier: Vec::new(),
            remark: None,
            marked_x: None,
        };
        Chart::Lines(Lines {
            id: String::from("id"),
            title: title.to_owned(),
            note: String::new(),
            x: XAxis { label: "size", ticks: (1..=ys.len()).map(|at| (at as f64, format!("{at}B"))).collect() },
            y: YAxis { label: "rate", unit: Unit::Rate },
            series: vec![series("pipe", Kind::Candidate), series("bound", Kind::Bound)],
        })
    }

    #[test]
    fn the_first_run_is_a_second_series_of_each_mechanism() {
        let merged = merged(vec![lines("a", &[5.0, 6.0, 7.0])], vec![lines("a", &[1.0, 2.0]), lines("b", &[1.0])]);
        let [Chart::Lines(lines)] = &*merged else { panic!("{merged:?}") };
        assert_eq!(lines.series[0].points.len(), 2);
        assert_eq!(lines.series[0].earlier.iter().map(|point| point.y).collect::<Vec<_>>(), [5.0, 6.0, 7.0]);
        assert!(lines.series[1].earlier.is_empty(), "a bound has no second series");
        assert_eq!(lines.x.ticks.len(), 3, "the axis has the values of both");
        let table = merged[0].grid().markdown();
        assert!(table.contains("| pipe, A |") && table.contains("| pipe, B |"), "{table}");
        let svg = merged[0].svg(true).into_string();
        assert!(svg.contains("class=\"line earlier\"") && svg.contains("faint, dashed: A"), "{svg}");
    }

    #[test]
    fn a_bar_has_a_mark_for_the_first_run() {
        let chart = |share| {
            let bar =
                Bar { name: String::from("pipe"), is_candidate: true, share, earlier: None, figure: String::new() };
            let (id, title) = (String::from("id"), String::from("title"));
            Chart::Bars(Bars { id, title, note: String::new(), full: String::new(), bars: vec![bar] })
        };
        let merged = merged(vec![chart(0.25)], vec![chart(0.5)]);
        assert!(merged[0].svg(true).into_string().contains("class=\"mark\""));
        assert!(merged[0].grid().markdown().contains("| 25 % |"), "{}", merged[0].grid().markdown());
    }
}
