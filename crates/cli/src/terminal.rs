//! Prints to stdout and stderr.

use std::io::{self, Write};

use anyhow::Context;

use crate::columns::plain;

/// Prints text to stderr.
///
/// Control characters are replaced, because the text may quote a file or a child process. Errors
/// are ignored: a closed stderr must not stop the command, and `eprintln!` would panic.
pub(crate) fn report_to_stderr(text: &str) {
    let text = text.split('\n').map(plain).collect::<Vec<_>>().join("\n");
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints a result to stdout. A closed pipe, as in `estafette list | head -1`, is no error and does
/// not change the exit code.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done.context("printing"),
    }
}

/// Prints a result to stdout as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}
