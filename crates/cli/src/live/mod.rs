//! `bench --live`: the run in a full screen, in which the tables converge to their answers.
//!
//! [`state`] keeps what is shown, [`view`] draws it, [`screen`] has the terminal. Nothing runs in
//! the background. The view is drawn when the run calls its observer: between rounds, between
//! stages, and before an instance is opened. No slice is measured at that time.

mod screen;
mod state;
mod view;

use std::time::{Duration, Instant};

use anyhow::Result;
use estafette_measure::case::Case;
use estafette_measure::record::Record;

use self::screen::Screen;
use self::state::State;
pub(crate) use self::state::Step;
use crate::terminal::report_to_stderr;

/// The least time between two drawings that only show the next instance.
const PERIOD: Duration = Duration::from_millis(250);

/// The live view. It has the terminal until it is dropped; then its messages are printed.
pub(crate) struct Live {
    /// `None` once the terminal is given back.
    screen: Option<Screen>,
    state: State,
    drawn_at: Option<Instant>,
}

impl Live {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If stderr is not a terminal that can show the view.
    pub(crate) fn start() -> Result<Live> {
        Ok(Live { screen: Some(Screen::take()?), state: State::default(), drawn_at: None })
    }

    /// Shows a step of the run.
    pub(crate) fn step(&mut self, step: Step) {
        self.state.step = step;
        self.draw();
    }

    /// Shows which instance is next. `left` is the estimated remaining time. Does not draw again
    /// soon after the last time.
    pub(crate) fn instance(&mut self, [done, of]: [usize; 2], left: Option<Duration>, case: &Case) {
        self.state.step = Step::Measuring { done, of, left, case: case.clone() };
        if self.drawn_at.is_none_or(|drawn_at| drawn_at.elapsed() >= PERIOD) {
            self.draw();
        }
    }

    /// Shows the tables after a round. `why` says why the round was measured, if it was not
    /// planned.
    pub(crate) fn round(&mut self, record: &Record, why: Option<String>) {
        self.state.update(record, why);
        self.draw();
    }

    /// Shows a message, and prints it at the end.
    pub(crate) fn message(&mut self, line: &str) {
        self.state.messages.push(line.to_owned());
        self.draw();
    }

    fn draw(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.draw(|frame| view::draw(frame, &self.state));
        }
        self.drawn_at = Some(Instant::now());
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.screen = None;
        self.state.messages.iter().for_each(|message| report_to_stderr(message));
    }
}
