//! Text tables without borders and colours, at most as wide as the terminal and 100 characters.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

pub(crate) use comfy_table::CellAlignment::{Left, Right};

/// The maximum width of a table, and its width if stdout is not a terminal.
const WIDTH: usize = 100;
/// The minimum width. A narrower terminal wraps the lines itself.
const NARROWEST: usize = 60;

/// Returns the maximum width of a table in characters.
pub(crate) fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map_or(WIDTH, |size| usize::from(size.ws_col)).clamp(NARROWEST, WIDTH)
}

/// Returns the number of characters in the widest line of a cell.
pub(crate) fn display_width(cell: &str) -> usize {
    cell.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Returns a table without borders; every line ends with a newline.
///
/// Cells that do not fit are wrapped at spaces. Columns without an alignment are aligned left.
/// Without headers there is no header line.
pub(crate) fn columns(headers: &[&str], alignment: &[CellAlignment], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(terminal_width() as u16);
    if !headers.is_empty() {
        table.set_header(headers);
    }
    table.add_rows(rows.iter().map(|row| row.iter().map(|cell| lines(cell))));
    let last = table.column_count().saturating_sub(1);
    for (index, column) in table.column_iter_mut().enumerate() {
        let gap = if index == last { 0 } else { 2 };
        column.set_padding((0, gap)).set_cell_alignment(alignment.get(index).copied().unwrap_or(Left));
        if index == 0 && !headers.is_empty() {
            // A name on two lines cannot be searched for.
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Makes text from a file safe for a terminal: replaces control characters, which could move the
/// cursor or overwrite other output.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Like [`plain`], but keeps the newlines.
pub(crate) fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Wraps words to lines of at most [`terminal_width`] characters, each with this indent.
pub(crate) fn wrapped(indent: &str, words: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    for word in words.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > terminal_width() {
            text.push('\n');
            width = 0;
        }
        let before = if width == 0 { indent } else { " " };
        text.push_str(before);
        text.push_str(word);
        width += before.chars().count() + length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    #[test]
    fn columns_line_up_without_trailing_space() {
        let text = columns(&["name", "ns"], &[Left, Right], &[row(&["pipe", "12"]), row(&["a", "1234"])]);
        assert_eq!(text, "name    ns\npipe    12\na     1234\n");
        assert_eq!(columns(&[], &[], &[row(&["a", "b"])]), "a  b\n");
    }

    #[test]
    fn no_line_is_longer_than_100_characters() {
        let long = "a word and another ".repeat(30);
        let text = columns(&["short", "long", "longer"], &[], &[row(&["x", &long, &"y".repeat(300)])]);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().count() > 5);
    }

    #[test]
    fn every_wrapped_line_has_the_indent() {
        let text = wrapped("  ", &"word ".repeat(60));
        assert!(text.lines().all(|line| line.starts_with("  ") && line.chars().count() <= 100), "{text}");
        assert_eq!(wrapped("", "a b"), "a b\n");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = columns(&["a"], &[], &[row(&["\u{1b}[2Jgone\r\u{9b}1m\u{7}"])]);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(plain("a\nb\tc"), "a\u{fffd}b\u{fffd}c");
    }
}
