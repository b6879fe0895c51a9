//! Draws charts as SVG.
//!
//! Every text goes through maud's escaping, and every number is written with two decimals. Colours
//! are classes, which `chart.css` defines for light and dark; a file has that style in it.

mod bars;
mod lines;
mod marker;
mod scale;

use maud::{Markup, PreEscaped, html};

pub(super) use bars::bars;
pub(super) use lines::lines;

/// The width of a chart in units of its view box. Text of 13 units can be read on a phone.
const WIDTH: f64 = 460.0;
/// The mean width of a character of a label.
const CHARACTER: f64 = 6.6;
/// The colours and the sizes of charts.
pub(super) const STYLE: &str = include_str!("chart.css");

/// The outermost element, with the title and the description for screen readers.
fn frame(id: &str, [title, description]: [&str; 2], height: f64, is_alone: bool, content: &Markup) -> Markup {
    let (title_id, description_id) = (format!("{id}-title"), format!("{id}-description"));
    html! {
        svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox=(format!("0 0 {WIDTH} {height}"))
            width=[is_alone.then_some(WIDTH)] height=[is_alone.then_some(height)]
            role="img" aria-labelledby=(format!("{title_id} {description_id}")) {
            title id=(title_id) { (title) }
            desc id=(description_id) { (description) }
            @if is_alone {
                style { (PreEscaped(STYLE)) }
                rect class="paper" width="100%" height="100%" {}
            }
            (content)
        }
    }
}

/// Shortens text to a width, with an ellipsis.
fn fitted(text: &str, width: f64) -> String {
    let most = (width / CHARACTER) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A coordinate with at most one decimal.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Removes zeros that say nothing: `1.00 us` becomes `1 us`.
fn without_zeros(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shortened_by_characters() {
        assert_eq!(fitted("shared-memory", 1_000.0), "shared-memory");
        assert_eq!(fitted("ééééé", 3.5 * CHARACTER), "éé…");
        assert_eq!(fitted("abc", 0.0), "…");
    }

    #[test]
    fn numbers_of_axes_are_short() {
        assert_eq!([1.0, 1.25, -0.04].map(number), ["1", "1.2", "-0"]);
        assert_eq!(["1.00 us", "10.0 k/s", "100 ns", "-"].map(without_zeros), ["1 us", "10 k/s", "100 ns", "-"]);
    }
}
