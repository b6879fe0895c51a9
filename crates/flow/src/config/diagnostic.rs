//! Diagnostics: what is wrong with a pipeline's files, where, and how to fix it.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use serde::Serialize;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pipeline cannot run.
    Error,
    /// The pipeline runs, but maybe not as intended.
    Warning,
}

impl Display for Severity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// One finding in a pipeline's files. Printed as `pipeline.yml:12:5: error: what is wrong`,
/// followed by a line `help: remedy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file's path as written on the command line or in the file that refers to it.
    pub file: String,
    /// The line, from 1. It is 0 for a finding about the whole file.
    pub line: usize,
    /// The column in characters, from 1. It is 0 for a finding about the whole file.
    pub column: usize,
    /// The severity.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl Display for Diagnostic {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        write!(f, ": {}: {}\n  help: {}", self.severity, self.message, self.help)
    }
}

/// The index of a file in [`Problems::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(usize);

/// A position in a file: line and column from 1, or both 0 for the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A position and its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: FileId,
    pub(super) position: Position,
}

impl Place {
    /// The place of a whole file.
    pub(super) fn of_file(file: FileId) -> Place {
        Place { file, position: Position::default() }
    }

    /// The place of the pipeline's own file as a whole.
    pub(super) fn of_first_file() -> Place {
        Place::of_file(FileId(0))
    }
}

/// Collects the findings of a check.
#[derive(Debug, Default)]
pub(super) struct Problems {
    files: Vec<String>,
    found: Vec<(Place, Severity, String, String)>,
    /// Whether an error makes it unknown which topics are read and written.
    hides_wiring: bool,
}

impl Problems {
    /// The maximum number of reported findings. A file with more is probably not a pipeline.
    const MAX: usize = 200;

    /// Registers a file.
    pub(super) fn file(&mut self, name: String) -> FileId {
        self.files.push(name);
        FileId(self.files.len() - 1)
    }

    /// Describes the place `there` in a help text at the place `here`.
    pub(super) fn seen_from(&self, here: Place, there: Place) -> String {
        match here.file == there.file {
            true => format!("line {}", there.position.line),
            false => format!("{}:{}", self.files[there.file.0], there.position.line),
        }
    }

    pub(super) fn error(&mut self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.found.push((at, Severity::Error, message.into(), help.into()));
    }

    /// Records that an error makes it unknown which topics are read and written. Missing readers
    /// and writers are then not reported.
    pub(super) fn hide_wiring(&mut self) {
        self.hides_wiring = true;
    }

    pub(super) fn warning(&mut self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.found.push((at, Severity::Warning, message.into(), help.into()));
    }

    pub(super) fn add(&mut self, severity: Severity, at: Place, message: String, help: String) {
        self.found.push((at, severity, message, help));
    }

    /// Whether an error so far makes it unknown which topics are read and written.
    pub(super) fn hides_wiring(&self) -> bool {
        self.hides_wiring
    }

    pub(super) fn has_errors(&self) -> bool {
        self.found.iter().any(|(_, severity, ..)| *severity == Severity::Error)
    }

    /// Whether there are more findings than are reported, so that reading further files is useless.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() > Problems::MAX
    }

    /// The findings in the order of files and lines. Those beyond the maximum are only counted.
    pub(super) fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.found.sort();
        self.found.dedup();
        let more = self.found.len().saturating_sub(Problems::MAX);
        // Errors come first when the list is cut, so that a failed check gives its reason.
        if more > 0 {
            self.found.sort_by_key(|(_, severity, ..)| *severity);
            self.found.truncate(Problems::MAX);
            self.found.sort();
        }
        let files = self.files;
        let mut diagnostics: Vec<_> = self.found.into_iter().map(|found| diagnostic(&files, found)).collect();
        if let (true, Some(last)) = (more > 0, diagnostics.last().cloned()) {
            let message = format!("more findings are left out, {more} at least");
            let help = String::from("correct these first");
            diagnostics.push(Diagnostic { severity: Severity::Warning, message, help, ..last });
        }
        diagnostics
    }
}

fn diagnostic(files: &[String], found: (Place, Severity, String, String)) -> Diagnostic {
    let (Place { file, position: Position { line, column } }, severity, message, help) = found;
    Diagnostic { file: files[file.0].clone(), line, column, severity, message, help }
}

/// Quotes a user's text in an error: shortened, on one line, with control characters escaped.
pub(super) fn quoted(text: &str) -> String {
    shortened(text, 60)
}

/// Quotes a path in an error, shortened only if it is very long.
pub(super) fn quoted_path(path: &Path) -> String {
    shortened(&path.display().to_string(), 400)
}

fn shortened(text: &str, max: usize) -> String {
    let short: String = text.chars().take(max).flat_map(printable).collect();
    if text.chars().nth(max).is_some() { format!("`{short}…`") } else { format!("`{short}`") }
}

/// Escapes a character if it is a control character.
fn printable(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_default());
    let plain = escaped.is_none().then_some(character);
    plain.into_iter().chain(escaped.into_iter().flatten())
}
