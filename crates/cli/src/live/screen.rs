//! The terminal of the live view: the alternate screen on stderr, without echo and cursor.
//!
//! The terminal is restored when [`Screen`] is dropped, and before a panic prints its message.
//! Ctrl-C stays a signal: the run ends as it always does, and drops the screen.

use std::env;
use std::io::{self, IsTerminal, Stderr};
use std::panic;
use std::sync::{Mutex, Once, PoisonError};

use anyhow::{Context, Result, bail};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::{Frame, Terminal};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// The terminal's settings before the screen took it. `None` while no screen has it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// The terminal in full screen.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl Screen {
    /// Takes the terminal of stderr.
    ///
    /// # Errors
    /// If stderr is not a terminal, or is one that cannot move its cursor.
    pub(super) fn take() -> Result<Screen> {
        const REMEDY: &str = "run it in a terminal, or leave out --live";
        if !io::stderr().is_terminal() {
            bail!("--live draws on stderr, which is not a terminal: {REMEDY}");
        }
        if env::var("TERM").is_ok_and(|name| name == "dumb") {
            bail!("--live needs a terminal that can move its cursor, and TERM is `dumb`: {REMEDY}");
        }
        let remedy = || format!("--live cannot use this terminal: {REMEDY}");
        let before = tcgetattr(io::stderr()).with_context(remedy)?;
        let mut silent = before.clone();
        silent.local_modes -= LocalModes::ECHO;
        restore_before_panics();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        // From here on, an error restores the terminal.
        let restored = |error: io::Error| {
            restore();
            error
        };
        tcsetattr(io::stderr(), OptionalActions::Now, &silent)
            .map_err(|error| restored(error.into()))
            .with_context(remedy)?;
        execute!(io::stderr(), EnterAlternateScreen, Hide).map_err(restored).with_context(remedy)?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stderr())).map_err(restored).with_context(remedy)?;
        Ok(Screen { terminal })
    }

    /// Draws a frame. A terminal that was closed is no reason to stop the run.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) {
        let is_taken = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_taken {
            let _ = self.terminal.draw(draw);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back. Does nothing if it has been given back.
fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // There is nobody left to report an error to.
        let _ = execute!(io::stderr(), LeaveAlternateScreen, Show);
        let _ = tcsetattr(io::stderr(), OptionalActions::Now, &before);
    }
}

/// Makes panics restore the terminal before their message is printed.
fn restore_before_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            print(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const ENTER: &str = "\x1b[?1049h";
    const LEAVE: &str = "\x1b[?1049l";

    /// Runs an ignored test of this program in a terminal. Returns what it printed, and then the
    /// settings of the terminal.
    fn in_a_terminal(test: &str) -> String {
        let program = env::current_exe().unwrap();
        let line =
            format!("stty cols 80 rows 10; '{}' --ignored --exact {test} --nocapture; stty -a", program.display());
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", &line, "/dev/null"]).env("TERM", "xterm");
        String::from_utf8(script.output().expect("`script` of util-linux starts").stdout).unwrap()
    }

    #[test]
    #[ignore = "runs in a terminal, by the test below"]
    fn panicking() {
        let mut screen = Screen::take().unwrap();
        screen.draw(|frame| frame.render_widget("on the screen", frame.area()));
        panic!("planted");
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        let text = in_a_terminal("live::screen::tests::panicking");
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text:?}"));
        assert!(
            place(ENTER) < place("on") && place("on") < place(LEAVE) && place(LEAVE) < place("planted"),
            "{text:?}"
        );
        assert_eq!(text.matches(LEAVE).count(), 1, "it is restored once");
        assert!(text.contains("\x1b[?25h"), "the cursor is shown: {text:?}");
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        assert!(words.contains(&"echo") && words.contains(&"isig"), "{text:?}");
    }
}
