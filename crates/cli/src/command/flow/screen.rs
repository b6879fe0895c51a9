//! Stderr, shared by the scrolling lines of the log and the live view below them, which is redrawn
//! repeatedly.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::LogFormat;

/// Stderr and the text that is drawn at its end.
#[derive(Debug)]
pub(crate) struct FlowScreen {
    is_terminal: bool,
    drawn: Mutex<String>,
}

/// Moves up a line and clears it.
const ERASE_LINE: &str = "\x1b[1A\x1b[2K";

impl FlowScreen {
    pub(crate) fn new() -> FlowScreen {
        FlowScreen { is_terminal: io::stderr().is_terminal(), drawn: Mutex::new(String::new()) }
    }

    /// Returns whether stderr is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Replaces the drawn text. An empty text removes it.
    pub(crate) fn draw(&self, text: &str) {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let out = format!("{}{text}", erase(&drawn));
        text.clone_into(&mut drawn);
        let _ = io::stderr().write_all(out.as_bytes());
    }

    /// Writes lines above the drawn text.
    fn log(&self, lines: &[u8]) -> io::Result<()> {
        let drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = erase(&drawn).into_bytes();
        out.extend_from_slice(lines);
        out.extend_from_slice(drawn.as_bytes());
        io::stderr().write_all(&out)
    }
}

fn erase(drawn: &str) -> String {
    ERASE_LINE.repeat(drawn.lines().count())
}

/// A writer for a log line.
pub(crate) struct Line<'a>(&'a FlowScreen);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A closed stderr is no reason to stop.
        let _ = self.0.log(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log's access to the screen.
struct Log(Arc<FlowScreen>);

impl<'a> MakeWriter<'a> for Log {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

/// Installs a log that writes to the screen. `RUST_LOG` selects what is logged.
pub(crate) fn install_log(format: LogFormat, is_verbose: bool, screen: &Arc<FlowScreen>) {
    // What the client of the NATS server logs, the pipeline's own lines say in its terms.
    let default = if is_verbose { "info,async_nats=warn,estafette_flow=debug" } else { "info,async_nats=warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let has_colours = screen.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours).with_writer(Log(Arc::clone(screen)));
    // A second log in one process, as in tests, has no effect.
    let _ = match format {
        LogFormat::Text => log.with_target(false).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
}
