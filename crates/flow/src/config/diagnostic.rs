//! What is wrong with a pipeline's files: where, what, and what to do.

use std::fmt::{self, Display, Formatter};
use std::path::Path;

use serde::Serialize;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The pipeline cannot run.
    Error,
    /// The pipeline runs, but maybe not as it is meant.
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

/// One finding in a pipeline's files. Printed as `pipeline.yml:12:5: error: what is wrong`, and in
/// a second line `help: remedy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The file, as the command or the file that refers to it names it.
    pub file: String,
    /// The line, from 1; 0 where the file itself is meant.
    pub line: usize,
    /// The column in characters, from 1; 0 where the file itself is meant.
    pub column: usize,
    /// How grave it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
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

/// A file that takes part in a check, by its place in [`Problems::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FileId(usize);

/// A position in a file: line and column from 1, both 0 for the file itself.
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
    /// A file as a whole.
    pub(super) fn of_file(file: FileId) -> Place {
        Place { file, position: Position::default() }
    }

    /// The pipeline's own file as a whole.
    pub(super) fn of_first_file() -> Place {
        Place::of_file(FileId(0))
    }
}

/// Collects what is wrong.
#[derive(Debug, Default)]
pub(super) struct Problems {
    files: Vec<String>,
    found: Vec<(Place, Severity, String, String)>,
    /// Whether an error leaves open who reads and writes which topic.
    hides_wiring: bool,
}

impl Problems {
    /// How many findings are reported; a file that has more is no pipeline.
    const MAX: usize = 200;

    /// Makes a file known.
    pub(super) fn file(&mut self, name: String) -> FileId {
        self.files.push(name);
        FileId(self.files.len() - 1)
    }

    /// A place in words, for a remedy at another place.
    pub(super) fn seen_from(&self, here: Place, there: Place) -> String {
        match here.file == there.file {
            true => format!("line {}", there.position.line),
            false => format!("{}:{}", self.files[there.file.0], there.position.line),
        }
    }

    pub(super) fn error(&mut self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.found.push((at, Severity::Error, message.into(), help.into()));
    }

    /// Notes that an error leaves open who reads and writes which topic: nobody can say then who
    /// does not.
    pub(super) fn hide_wiring(&mut self) {
        self.hides_wiring = true;
    }

    pub(super) fn warning(&mut self, at: Place, message: impl Into<String>, help: impl Into<String>) {
        self.found.push((at, Severity::Warning, message.into(), help.into()));
    }

    pub(super) fn add(&mut self, severity: Severity, at: Place, message: String, help: String) {
        self.found.push((at, severity, message, help));
    }

    /// Whether an error so far leaves open who reads and writes which topic.
    pub(super) fn hides_wiring(&self) -> bool {
        self.hides_wiring
    }

    pub(super) fn has_errors(&self) -> bool {
        self.found.iter().any(|(_, severity, ..)| *severity == Severity::Error)
    }

    /// Whether there are more findings than are reported, so that no other file need be read.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() > Problems::MAX
    }

    /// The findings in the order of files and lines. Beyond a bound they are only counted.
    pub(super) fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.found.sort();
        self.found.dedup();
        let more = self.found.len().saturating_sub(Problems::MAX);
        // Errors first in line for the bound, so that a check that failed says why.
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

/// A text of a user's in an error: short, on one line, without what a terminal would act on.
pub(super) fn quoted(text: &str) -> String {
    shortened(text, 60)
}

/// A path in an error, as whole as can be.
pub(super) fn quoted_path(path: &Path) -> String {
    shortened(&path.display().to_string(), 400)
}

fn shortened(text: &str, max: usize) -> String {
    let short: String = text.chars().take(max).flat_map(printable).collect();
    if text.chars().nth(max).is_some() { format!("`{short}…`") } else { format!("`{short}`") }
}

/// A character, escaped if it is a control character.
fn printable(character: char) -> impl Iterator<Item = char> {
    let escaped = character.is_control().then(|| character.escape_default());
    let plain = escaped.is_none().then_some(character);
    plain.into_iter().chain(escaped.into_iter().flatten())
}
