//! Progress on stderr: one line that is redrawn between instances where stderr is a terminal, a line a round elsewhere.

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

use crate::{tell, with_remedy};

/// Shows a run's progress and keeps its record on disk.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    began: Instant,
    keep: Option<PathBuf>,
    /// What has been said already: a mechanism that fails every round says so once.
    said: Vec<String>,
}

impl Progress {
    /// Keeps the record at this path, where one is given.
    pub(crate) fn new(keep: Option<PathBuf>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            // Drawn by hand, never from a ticking thread: nothing of ours runs while something is measured.
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(250));
            let style = ProgressStyle::with_template("{prefix:>12} {pos}/{len} [{bar:30}] {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Progress { bar, began: Instant::now(), keep, said: Vec::new() }
    }

    /// Says what is done before the rounds begin.
    pub(crate) fn stage(&mut self, stage: &'static str, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(stage);
            bar.set_message(what.to_owned());
            bar.tick();
        }
    }

    /// Measures the limits; none where the user wants to stop.
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
        if interrupt.seen() {
            self.finish();
            return Ok(None);
        }
        measured.map(Some)
    }

    /// Starts counting instances.
    pub(crate) fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn left(&self, done: usize, of: usize) -> Option<Duration> {
        let each = self.began.elapsed().checked_div(u32::try_from(done).ok()?)?;
        Some(each * u32::try_from(of.saturating_sub(done)).ok()?)
    }

    /// Says something beside the line.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(line)),
            None => tell(line),
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

    fn trouble(&mut self, entrant: &Entrant, what: &str) {
        let said = format!("{} in {}: {}", entrant.case.mechanism, entrant.case.cell, with_remedy(what));
        let gist =
            format!("{}{}", entrant.case.mechanism, what.split(|c: char| c.is_ascii_digit()).next().unwrap_or(what));
        if !self.said.contains(&gist) {
            self.said.push(gist);
            self.say(&format!("warning: {said}"));
        }
    }

    fn round(&mut self, record: &Record, kind: RoundKind) -> Result<()> {
        if let Some(path) = &self.keep {
            record.save(path)?;
        }
        if self.bar.is_none() {
            tell(&match kind {
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
    /// How far a run has come after a planned round.
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

/// `1 min 20 s`.
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
    fn more_instances_than_planned_leave_nothing_to_do() {
        let progress = Progress::new(None);
        assert_eq!(progress.left(150, 144), Some(Duration::ZERO));
        assert_eq!(progress.left(0, 144), None);
    }

    #[test]
    fn times_in_words() {
        assert_eq!([59, 60, 80].map(|time| seconds(Duration::from_secs(time))), ["59 s", "1 min 0 s", "1 min 20 s"]);
    }
}
