//! A table of text, with a number behind each figure to sort by. It becomes HTML or Markdown.

use maud::{Markup, html};

/// A table.
#[derive(Debug)]
pub(crate) struct Grid {
    /// What the table shows.
    pub(crate) caption: String,
    /// The columns; the first names the row, unless it is a rank.
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<Entry>>,
}

#[derive(Debug)]
pub(crate) struct Column {
    name: String,
    is_number: bool,
}

impl Column {
    pub(crate) fn text(name: impl Into<String>) -> Column {
        Column { name: name.into(), is_number: false }
    }

    pub(crate) fn number(name: impl Into<String>) -> Column {
        Column { name: name.into(), is_number: true }
    }
}

/// One cell of the table.
#[derive(Debug)]
pub(crate) struct Entry {
    text: String,
    /// The value that the table is sorted by. Without one, it is sorted by the text.
    value: Option<f64>,
}

impl Entry {
    pub(crate) fn text(text: impl Into<String>) -> Entry {
        Entry { text: text.into(), value: None }
    }

    pub(crate) fn number(value: f64, text: impl Into<String>) -> Entry {
        Entry { text: text.into(), value: value.is_finite().then_some(value) }
    }

    /// As [`Entry::number`], if there is a value.
    pub(crate) fn optional(value: Option<f64>, text: impl Into<String>) -> Entry {
        Entry { text: text.into(), value: value.filter(|value| value.is_finite()) }
    }
}

impl Grid {
    /// The table as HTML, in a container that scrolls by itself and can be reached by keyboard. The
    /// page's script makes its headers buttons that sort.
    pub(crate) fn html(&self) -> Markup {
        html! {
            div class="scroll" tabindex="0" role="group" aria-label=(self.caption) {
                table class="sortable" {
                    caption { (self.caption) }
                    thead { tr {
                        @for column in &self.columns {
                            th scope="col" class=[column.is_number.then_some("number")] { (column.name) }
                        }
                    } }
                    tbody { @for row in &self.rows { (self.row(row)) } }
                }
            }
        }
    }

    fn row(&self, row: &[Entry]) -> Markup {
        // A rank is no name.
        let name = usize::from(self.columns.first().is_some_and(|column| column.name == PLACE));
        html! { tr {
            @for (at, column) in self.columns.iter().enumerate() {
                @let entry = row.get(at);
                @let text = entry.map_or("", |entry| &entry.text);
                @let value = entry.and_then(|entry| entry.value).map(|value| format!("{value:e}"));
                @let class = column.is_number.then_some("number");
                @if at == name { th scope="row" data-value=[value] { (text) } }
                @else { td class=[class] data-value=[value] { (text) } }
            }
        } }
    }

    /// The table as Markdown.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = line(self.columns.iter().map(|column| escaped_markdown(&column.name)).collect());
        text.push_str(&line(self.columns.iter().map(|column| column.rule()).collect()));
        for row in &self.rows {
            let cell = |at: usize| row.get(at).map_or(String::new(), |entry| escaped_markdown(&entry.text));
            text.push_str(&line((0..self.columns.len()).map(cell).collect()));
        }
        text
    }
}

/// The name of the column with the ranks.
pub(crate) const PLACE: &str = "#";

impl Column {
    fn rule(&self) -> String {
        String::from(if self.is_number { "---:" } else { "---" })
    }
}

/// Escapes text for a line of Markdown.
pub(crate) fn escaped_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '#' | '&' | '~' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(name: &str) -> Grid {
        let columns = vec![Column::text(PLACE), Column::text("mechanism"), Column::number("time")];
        let rows = vec![vec![Entry::text("1"), Entry::text(name), Entry::number(1e308, "long")]];
        Grid { caption: String::from("a caption"), columns, rows }
    }

    #[test]
    fn names_are_text_in_html_and_rows_have_a_header() {
        let html = grid("<script>\"x\"</script>").html().into_string();
        assert!(html.contains("<th scope=\"row\">&lt;script&gt;&quot;x&quot;&lt;/script&gt;</th>"), "{html}");
        assert!(html.contains("data-value=\"1e308\""), "{html}");
    }

    #[test]
    fn names_are_text_in_markdown() {
        let text = grid("a|b<i>\nc").markdown();
        assert!(text.ends_with("| 1 | a\\|b\\<i\\> c | long |\n"), "{text}");
        assert!(text.starts_with("| \\# | mechanism | time |\n| --- | --- | ---: |\n"), "{text}");
    }

    #[test]
    fn a_row_that_is_too_short_has_empty_cells() {
        let short = Grid { rows: vec![vec![Entry::text("1")]], ..grid("a") };
        assert!(short.markdown().ends_with("| 1 |  |  |\n"));
        assert_eq!(short.html().into_string().matches("<td").count(), 2);
    }
}
