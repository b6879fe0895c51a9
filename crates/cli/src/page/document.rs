//! What every report needs: the frame of a page, a chart in it or as a file, and the replacement of
//! characters that HTML or XML forbid.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::Chart;
use super::svg::STYLE as CHART_STYLE;

/// The page's look and its script. Neither has a character that XML does not allow in text.
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What a browser must know first, in a form that is HTML and XML.
const META: &str = r#"<meta charset="utf-8"/><meta name="viewport" content="width=device-width, initial-scale=1"/>"#;

/// A whole page. `head` has the links to the sections of `main`, of which one is `machine`;
/// `source` is what the page was written from.
pub(super) fn document(title: &str, head: &Markup, main: &Markup, source: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" xmlns="http://www.w3.org/1999/xhtml" {
            head {
                (PreEscaped(META))
                title { (title) }
                style { (PreEscaped(CHART_STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                a class="skip" href="#main" { "Skip to the answers" }
                (head)
                main id="main" { (main) }
                footer {
                    p { "Written by " a href="#machine" { "estafette" } " from " (source) ". The page loads nothing." }
                }
                script { (PreEscaped("/*<![CDATA[*/")) (PreEscaped(SCRIPT)) (PreEscaped("/*]]>*/")) }
            }
        }
    };
    cleaned(&page.into_string())
}

/// Returns a chart as a file.
pub(crate) fn svg(chart: &Chart) -> String {
    cleaned(&chart.svg(true).into_string())
}

/// A chart with its data.
pub(super) fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            figcaption { (chart.title()) }
            (chart.svg(false))
            p class="facts" { (chart.note()) }
            details { summary { "Data of this chart" } (chart.grid().html()) }
        }
    }
}

/// Replaces characters that neither HTML nor XML allow, and those that reverse the order of text.
pub(super) fn cleaned(text: &str) -> String {
    let is_bad = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    if text.contains(is_bad) { text.replace(is_bad, "\u{fffd}") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_a_page_must_not_have_are_replaced() {
        assert_eq!(cleaned("a\0b\u{1b}\u{202e}\u{ffff}\n"), "a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}\n");
    }

    #[test]
    fn the_style_and_the_script_are_text_of_xml_too() {
        assert!(!STYLE.contains(['<', '&']) && !CHART_STYLE.contains(['<', '&']));
        assert!(!SCRIPT.contains("]]>") && !SCRIPT.contains("</"));
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("eval"));
    }
}
