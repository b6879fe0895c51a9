//! Progress on stderr: the live view, or on a terminal one line, redrawn between instances;
//! otherwise one line per round.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use estafette_measure::coordinator::Interrupt;
use estafette_measure::limits::{self, Limits};
use estafette_measure::plan::Entrant;
use estafette_measure::record::Record;
use estafette_measure::run::{Observer, RoundKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::duration;
use crate::live::{Live, Step};
use crate::remedy::with_remedy;
use crate::terminal::report_to_stderr;

/// What a user asks to see of a run under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// One line.
    Plain,
    /// The tables in a full screen.
    Live,
}

impl View {
    /// What the option `--live` asks for.
    pub(crate) fn of(is_live: bool) -> View {
        if is_live { View::Live } else { View::Plain }
    }
}

/// How progress is shown.
enum Display {
    /// A line of text for each round.
    Rounds,
    /// One line, redrawn.
    Bar(ProgressBar),
    Live(Box<Live>),
    /// The run is over.
    Ended,
}

/// Shows a run's progress, and saves its record after each round.
pub(crate) struct Progress {
    display: Display,
    started_at: Instant,
    /// Where the record is saved after each round.
    record_path: Option<PathBuf>,
    /// Warnings that were printed, without their figures: a repeated failure is reported once.
    reported: Vec<String>,
}

impl Progress {
    /// Creates the progress of a run without a record.
    pub(crate) fn plain() -> Progress {
        let display = if std::io::stderr().is_terminal() { Display::Bar(bar()) } else { Display::Rounds };
        Progress { display, started_at: Instant::now(), record_path: None, reported: Vec::new() }
    }

    /// Creates the progress of a run whose record is saved after each round.
    ///
    /// # Errors
    /// If the live view is asked for, and stderr cannot show it.
    pub(crate) fn of_run(record_path: PathBuf, view: View) -> Result<Progress> {
        let plain = Progress { record_path: Some(record_path), ..Progress::plain() };
        Ok(match view {
            View::Plain => plain,
            View::Live => Progress { display: Display::Live(Box::new(Live::start()?)), ..plain },
        })
    }

    /// Shows the current step before the rounds begin.
    pub(crate) fn stage(&mut self, stage: &'static str, what: &str) {
        match &mut self.display {
            Display::Bar(bar) => {
                bar.set_prefix(stage);
                bar.set_message(what.to_owned());
                bar.tick();
            }
            Display::Live(live) => live.step(Step::Preparing { stage: stage.to_owned(), part: what.to_owned() }),
            Display::Rounds | Display::Ended => {}
        }
    }

    /// Measures the machine's limits. Returns `None` if the user interrupts.
    pub(crate) fn limits(
        &mut self,
        cpus: &[usize],
        budget: Duration,
        interrupt: &mut Interrupt,
    ) -> Result<Option<Limits>> {
        let mut next = |what: &str| {
            self.stage("limits", what);
            interrupt.check()
        };
        let measured = limits::measure(&limits::end_cpus(cpus), budget, &mut next);
        if interrupt.is_requested() {
            self.finish();
            return Ok(None);
        }
        measured.map(Some)
    }

    /// Starts the clock that the estimate of the remaining time is based on.
    pub(crate) fn begin(&mut self) {
        self.started_at = Instant::now();
    }

    /// Removes the progress line or the live view.
    pub(crate) fn finish(&mut self) {
        if let Display::Bar(bar) = std::mem::replace(&mut self.display, Display::Ended) {
            bar.finish_and_clear();
        }
    }

    /// Estimates the remaining time from the mean time of the finished instances.
    fn left(&self, done: usize, of: usize) -> Option<Duration> {
        let each = self.started_at.elapsed().checked_div(u32::try_from(done).ok()?)?;
        Some(each * u32::try_from(of.saturating_sub(done)).ok()?)
    }

    /// Prints a line of text without damaging the progress line. The live view shows it, and prints
    /// it at the end.
    pub(crate) fn message(&mut self, line: &str) {
        match &mut self.display {
            Display::Bar(bar) => bar.suspend(|| report_to_stderr(line)),
            Display::Live(live) => live.message(line),
            Display::Rounds | Display::Ended => report_to_stderr(line),
        }
    }
}

/// The progress line.
fn bar() -> ProgressBar {
    // Redrawn on request only. A ticking thread would run during measurements and disturb them.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(250));
    let style = ProgressStyle::with_template("{prefix:>12} {pos}/{len} [{bar:30}] {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar
}

impl Observer for Progress {
    fn instance_starts(&mut self, done: usize, of: usize, entrant: &Entrant) {
        let left = self.left(done, of);
        match &mut self.display {
            Display::Bar(bar) => {
                let left = left.map_or(String::new(), |left| format!("{} left · ", duration::in_words(left)));
                bar.set_prefix("measuring");
                bar.set_length(of as u64);
                bar.set_position(done as u64);
                bar.set_message(format!("{left}{}", entrant.case.mechanism));
                bar.tick();
            }
            Display::Live(live) => live.instance([done, of], left, &entrant.case),
            Display::Rounds | Display::Ended => {}
        }
    }

    fn instance_failed(&mut self, entrant: &Entrant, what: &str) {
        let text = format!("{} in {}: {}", entrant.case.mechanism, entrant.case.cell, with_remedy(what));
        // Up to the first digit: figures differ from round to round.
        let gist =
            format!("{}{}", entrant.case.mechanism, what.split(|c: char| c.is_ascii_digit()).next().unwrap_or(what));
        if !self.reported.contains(&gist) {
            self.reported.push(gist);
            self.message(&format!("warning: {text}"));
        }
    }

    fn round_finished(&mut self, record: &Record, kind: RoundKind) -> Result<()> {
        if let Some(path) = &self.record_path {
            record.save(path)?;
        }
        match &mut self.display {
            Display::Live(live) => live.round(record, addition(record, kind)),
            Display::Rounds => report_to_stderr(&addition(record, kind).unwrap_or_else(|| self.planned_round(record))),
            Display::Bar(_) | Display::Ended => {}
        }
        Ok(())
    }
}

/// Says why a round was measured that was not planned. `None` for a planned one.
fn addition(record: &Record, kind: RoundKind) -> Option<String> {
    match kind {
        RoundKind::Planned => None,
        RoundKind::MakeUp(count) => Some(format!("{count} more instances of tables in which some were discarded")),
        RoundKind::Refinement(1) => {
            Some(format!("round {}, of one table that does not detect small differences yet", record.rounds))
        }
        RoundKind::Refinement(tables) => {
            Some(format!("round {}, of {tables} tables that do not detect small differences yet", record.rounds))
        }
    }
}

impl Progress {
    /// Returns the line that is printed after a planned round.
    fn planned_round(&self, record: &Record) -> String {
        let (done, of) = (record.rounds * record.entrants.len(), record.rounds_planned * record.entrants.len());
        let repeated = match record.instances.len().saturating_sub(done) {
            0 => String::new(),
            repeated => format!(", {repeated} repeated"),
        };
        let left = self.left(done, of).map_or(String::new(), |left| format!(", {} left", duration::in_words(left)));
        format!("round {} of {}: {done} of {of} instances{repeated}{left}", record.rounds, record.rounds_planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_remains_after_more_instances_than_planned() {
        let progress = Progress::plain();
        assert_eq!(progress.left(150, 144), Some(Duration::ZERO));
        assert_eq!(progress.left(0, 144), None);
    }
}
