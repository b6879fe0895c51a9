//! Progress on stderr. On a terminal it is one line, redrawn between instances; otherwise it is one
//! line per round.

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

use crate::{report_to_stderr, with_remedy};

/// Shows a run's progress, and saves its record after each round.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started_at: Instant,
    /// Where the record is saved after each round.
    record_path: Option<PathBuf>,
    /// Warnings that were printed, without their figures: a repeated failure is reported once.
    reported: Vec<String>,
}

impl Progress {
    /// Creates the progress of a run. With a path, the record is saved there after each round.
    pub(crate) fn new(record_path: Option<PathBuf>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            // Redrawn on request only. A ticking thread would run during measurements and disturb
            // them.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(250));
            let style = ProgressStyle::with_template("{prefix:>12} {pos}/{len} [{bar:30}] {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Progress { bar, started_at: Instant::now(), record_path, reported: Vec::new() }
    }

    /// Shows the current step before the rounds begin.
    pub(crate) fn stage(&mut self, stage: &'static str, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(stage);
            bar.set_message(what.to_owned());
            bar.tick();
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
        let measured = limits::measure(&limits::ends(cpus), budget, &mut next);
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

    /// Removes the progress line.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// Estimates the remaining time from the mean time of the finished instances.
    fn left(&self, done: usize, of: usize) -> Option<Duration> {
        let each = self.started_at.elapsed().checked_div(u32::try_from(done).ok()?)?;
        Some(each * u32::try_from(of.saturating_sub(done)).ok()?)
    }

    /// Prints a line of text without damaging the progress line.
    pub(crate) fn message(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| report_to_stderr(line)),
            None => report_to_stderr(line),
        }
    }
}

impl Observer for Progress {
    fn instance(&mut self, done: usize, of: usize, entrant: &Entrant) {
        let Some(bar) = &self.bar else { return };
        let left = self.left(done, of).map_or(String::new(), |left| format!("{} left · ", seconds(left)));
        bar.set_prefix("measuring");
        bar.set_length(of as u64);
        bar.set_position(done as u64);
        bar.set_message(format!("{left}{}", entrant.case.mechanism));
        bar.tick();
    }

    fn failure(&mut self, entrant: &Entrant, what: &str) {
        let text = format!("{} in {}: {}", entrant.case.mechanism, entrant.case.cell, with_remedy(what));
        // Up to the first digit: figures differ from round to round.
        let gist =
            format!("{}{}", entrant.case.mechanism, what.split(|c: char| c.is_ascii_digit()).next().unwrap_or(what));
        if !self.reported.contains(&gist) {
            self.reported.push(gist);
            self.message(&format!("warning: {text}"));
        }
    }

    fn round(&mut self, record: &Record, kind: RoundKind) -> Result<()> {
        if let Some(path) = &self.record_path {
            record.save(path)?;
        }
        if self.bar.is_none() {
            report_to_stderr(&match kind {
                RoundKind::Planned => self.planned_round(record),
                RoundKind::MakeUp(count) => format!("{count} more instances, in place of discarded ones"),
                RoundKind::Refinement(1) => {
                    format!("round {}, of one table that does not show small differences yet", record.rounds)
                }
                RoundKind::Refinement(tables) => {
                    format!("round {}, of {tables} tables that do not show small differences yet", record.rounds)
                }
            });
        }
        Ok(())
    }
}

impl Progress {
    /// Returns the line that is printed after a planned round.
    fn planned_round(&self, record: &Record) -> String {
        let (done, of) = (record.rounds * record.entrants.len(), record.rounds_planned * record.entrants.len());
        let repeated = match record.instances.len().saturating_sub(done) {
            0 => String::new(),
            repeated => format!(", {repeated} again"),
        };
        let left = self.left(done, of).map_or(String::new(), |left| format!(", {} left", seconds(left)));
        format!("round {} of {}: {done} of {of} instances{repeated}{left}", record.rounds, record.rounds_planned)
    }
}

/// Formats a duration in whole seconds: `1 min 20 s`.
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_remains_after_more_instances_than_planned() {
        let progress = Progress::new(None);
        assert_eq!(progress.left(150, 144), Some(Duration::ZERO));
        assert_eq!(progress.left(0, 144), None);
    }

    #[test]
    fn times_in_words() {
        assert_eq!([59, 60, 80].map(|time| seconds(Duration::from_secs(time))), ["59 s", "1 min 0 s", "1 min 20 s"]);
    }
}
