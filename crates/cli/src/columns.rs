//! Columns: rows of text side by side, at most as wide as the terminal, and 100 characters. No colour, so nothing to switch off.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};

pub(crate) use comfy_table::CellAlignment::{Left, Right};

/// The widest a table gets, and its width where stdout is no terminal.
const WIDTH: usize = 100;
/// The narrowest: below it, lines are left to the terminal to wrap.
const NARROWEST: usize = 60;

/// How wide a table may be.
pub(crate) fn terminal_width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok();
    size.map_or(WIDTH, |size| usize::from(size.ws_col)).clamp(NARROWEST, WIDTH)
}

/// The characters in the widest line of a cell.
pub(crate) fn display_width(cell: &str) -> usize {
    cell.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A table without borders, each line ended. Cells that do not fit are wrapped at spaces, columns without an alignment
/// are aligned left, and no headers at all leave out their line.
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
            // A name in two lines cannot be looked for.
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Text from a file as a terminal may safely be given it: control characters, which could move its cursor or rewrite
/// what it shows, are replaced.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Plain, with its line ends kept.
pub(crate) fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// Words in lines of at most 100 columns, each behind this indent.
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
    fn nothing_is_wider_than_100() {
        let long = "a word and another ".repeat(30);
        let text = columns(&["short", "long", "longer"], &[], &[row(&["x", &long, &"y".repeat(300)])]);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().count() > 5);
    }

    #[test]
    fn words_are_wrapped_behind_their_indent() {
        let text = wrapped("  ", &"word ".repeat(60));
        assert!(text.lines().all(|line| line.starts_with("  ") && line.chars().count() <= 100), "{text}");
        assert_eq!(wrapped("", "a b"), "a b\n");
    }

    #[test]
    fn a_cell_cannot_speak_to_the_terminal() {
        let text = columns(&["a"], &[], &[row(&["\u{1b}[2Jgone\r\u{9b}1m\u{7}"])]);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(plain("a\nb\tc"), "a\u{fffd}b\u{fffd}c");
    }
}
