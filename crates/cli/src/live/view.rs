//! Draws the live view.

use std::env;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, LineGauge, Paragraph, Row, Table};

use super::state::{LiveCertainty, State, Step, TableState};
use crate::columns::plain;
use crate::duration;
use crate::summary::cause_list;

/// The most messages that are shown; all are printed at the end.
const MAX_MESSAGES: usize = 3;
/// The least width with a column for the control.
const WITH_CONTROL: u16 = 150;

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let below = below(state);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(below.len() as u16),
    ];
    let [head, gauge, now, tables, notes] = Layout::vertical(parts).areas(frame.area());
    frame.render_widget(Line::from(title(state)).style(Modifier::BOLD), head);
    draw_step(frame, &state.step, gauge, now);
    draw_tables(frame, state, tables);
    frame.render_widget(Paragraph::new(below), notes);
}

/// The stage, the rounds, and the time left.
fn title(state: &State) -> String {
    let [done, planned] = state.rounds;
    let mut parts = vec![String::from("estafette bench")];
    match &state.step {
        Step::Preparing { stage, .. } => parts.push(stage.clone()),
        Step::Measuring { left, .. } => {
            parts.push(match planned {
                0 => String::from("the first round"),
                _ => format!("{done} of {planned} rounds done"),
            });
            parts.extend(left.map(|left| format!("about {} left", duration::in_words(left))));
        }
    }
    parts.extend(state.why.clone());
    parts.join(" · ")
}

fn draw_step(frame: &mut Frame<'_>, step: &Step, gauge: Rect, now: Rect) {
    match step {
        Step::Preparing { part, .. } => frame.render_widget(Line::from(plain(part)), now),
        Step::Measuring { done, of, case, .. } => {
            let ratio = if *of == 0 { 0.0 } else { (*done as f64 / *of as f64).clamp(0.0, 1.0) };
            let label = format!("{done} of {of} instances");
            let bar = LineGauge::default().ratio(ratio).label(label).filled_style(colour(Color::Cyan));
            frame.render_widget(bar, gauge);
            frame.render_widget(Line::from(format!("{} in {}", plain(&case.mechanism), case.cell)), now);
        }
    }
}

/// A row for each table. If they do not fit, those around the one that is measured.
fn draw_tables(frame: &mut Frame<'_>, state: &State, area: Rect) {
    if state.tables.is_empty() {
        let text = "Each table gets a line here after the first round.";
        frame.render_widget(Line::from(text).style(Modifier::DIM), area);
        return;
    }
    let has_control = area.width >= WITH_CONTROL;
    let current = state.current();
    // One line is the header.
    let height = usize::from(area.height.saturating_sub(1));
    let first = first_shown(state.tables.len(), height, current);
    let shown = state.tables.iter().enumerate().skip(first).take(height);
    let rows = shown.map(|(at, table)| row(table, has_control, Some(at) == current));
    let mut headers = vec!["table", "rounds", "answer so far", "2nd against 1st"];
    let mut widths = vec![Constraint::Fill(5), Constraint::Length(6), Constraint::Fill(3), Constraint::Fill(3)];
    if has_control {
        headers.push("control");
        widths.push(Constraint::Length(18));
    }
    headers.extend(["detects from", "discarded"]);
    widths.extend([Constraint::Length(10), Constraint::Length(9)]);
    let header = Row::new(headers).style(Modifier::UNDERLINED);
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

/// The first row that is shown, so that the current one is in the middle where that is possible.
fn first_shown(count: usize, height: usize, current: Option<usize>) -> usize {
    let last_start = count.saturating_sub(height);
    current.map_or(0, |current| current.saturating_sub(height / 2)).min(last_start)
}

fn row(table: &TableState, has_control: bool, is_current: bool) -> Row<'static> {
    let answer = match table.certainty {
        LiveCertainty::Decided => colour(Color::Green),
        LiveCertainty::Open => colour(Color::Yellow),
        LiveCertainty::NotKnown => Style::new().add_modifier(Modifier::DIM),
    };
    let mut cells = vec![
        Cell::from(format!("{}{}", if is_current { "> " } else { "  " }, table.cell)),
        Cell::from(table.rounds.to_string()),
        Cell::from(Span::styled(plain(&table.answer), answer)),
        Cell::from(plain(&table.second)),
    ];
    if has_control {
        cells.push(Cell::from(table.control.clone()));
    }
    let discarded = if table.discarded == 0 { String::new() } else { table.discarded.to_string() };
    cells.extend([Cell::from(table.resolution.clone()), Cell::from(discarded)]);
    let row = Row::new(cells);
    if is_current { row.style(Modifier::BOLD) } else { row }
}

/// The lines below the tables: what was discarded, and the last messages.
fn below(state: &State) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !state.tables.is_empty() {
        let count: usize = state.discarded.iter().map(|(_, count)| count).sum();
        lines.push(Line::from(match count {
            0 => String::from("No instance is discarded."),
            _ => {
                let causes = cause_list(&state.discarded);
                format!("{count} instances are discarded, and repeated where that helps: {causes}")
            }
        }));
    }
    let messages = &state.messages[state.messages.len().saturating_sub(MAX_MESSAGES)..];
    lines.extend(messages.iter().map(|message| Line::from(plain(message)).style(colour(Color::Yellow))));
    lines.push(Line::from("Ctrl-C ends the run and prints the tables of the complete rounds.").style(Modifier::DIM));
    lines
}

/// A colour, unless the user wants none.
fn colour(colour: Color) -> Style {
    let is_wanted = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    if is_wanted { Style::new().fg(colour) } else { Style::new() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::comparison::tests::changed;

    fn measuring() -> State {
        let record = changed("process/pipe", 2.0);
        let case = record.entrants[0].case.clone();
        let mut state = State::default();
        state.update(&record, None);
        state.step = Step::Measuring { done: 24, of: 36, left: Some(Duration::from_secs(80)), case };
        state
    }

    fn drawn(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(line).collect()
    }

    #[test]
    fn the_view_has_the_stage_the_tables_and_what_was_discarded() {
        let lines = drawn(&measuring(), 160, 12);
        assert_eq!(lines[0], "estafette bench · 6 of 6 rounds done · about 1 min 20 s left");
        assert!(lines[1].starts_with("24 of 36 instances"), "{lines:#?}");
        assert_eq!(lines[2], "process/pipe in process · ping-pong · 64B · block · other-core");
        assert!(lines[3].contains("answer so far") && lines[3].contains("control"), "{lines:#?}");
        assert!(
            lines[4].starts_with("> process · ping-pong · 64B") && lines[4].contains("Use unix-stream"),
            "{lines:#?}"
        );
        assert!(lines[5].starts_with("  process · stream · 64B"), "{lines:#?}");
        assert_eq!(lines[10], "No instance is discarded.");
    }

    #[test]
    fn preparation_and_messages_are_shown() {
        let state = State {
            step: Step::Preparing { stage: String::from("limits"), part: String::from("futex wake\u{1b}[2J") },
            messages: (0..5).map(|at| format!("warning: {at}")).collect(),
            ..State::default()
        };
        let lines = drawn(&state, 80, 10);
        assert_eq!(lines[0], "estafette bench · limits");
        assert!(lines[2].starts_with("futex wake") && !lines[2].contains('\u{1b}'), "{lines:#?}");
        assert_eq!(lines[6..9], ["warning: 2", "warning: 3", "warning: 4"], "{lines:#?}");
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn() {
        let state = measuring();
        for (width, height) in [(1, 1), (3, 2), (40, 4), (80, 5), (149, 6), (400, 100)] {
            drawn(&state, width, height);
        }
    }

    #[test]
    fn rows_that_do_not_fit_scroll_to_the_current_one() {
        assert_eq!(first_shown(10, 20, Some(9)), 0);
        assert_eq!([None, Some(0), Some(20), Some(39)].map(|current| first_shown(40, 10, current)), [0, 0, 15, 30]);
        assert_eq!(first_shown(3, 0, Some(1)), 1);
    }
}
