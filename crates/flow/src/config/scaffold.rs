//! Writes a working example of a pipeline into an empty folder. The files are in `templates/`.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::diagnostic::quoted;

/// The language of the example's function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// The WebAssembly text format, which needs no compiler. The default.
    #[default]
    Wat,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// C.
    C,
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 4] = [Language::Wat, Language::Rust, Language::Go, Language::C];

    /// The command that builds the function's module, run in the pipeline's folder. None for WAT.
    pub fn build_command(self) -> Option<&'static str> {
        match self {
            Language::Wat => None,
            Language::Rust => {
                Some("rustc --edition 2021 --target wasm32-wasip1 -O -o functions/greet.wasm functions/greet.rs")
            }
            Language::Go => {
                Some("GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o functions/greet.wasm functions/greet.go")
            }
            Language::C => Some(
                "clang --target=wasm32 -mbulk-memory -O2 -nostdlib -Wl,--no-entry -o functions/greet.wasm \
                 functions/greet.c",
            ),
        }
    }

    /// The tools that the command needs.
    fn tools(self) -> &'static str {
        match self {
            Language::Wat => "",
            Language::Rust => "It needs rustc and its library for WASI: `rustup target add wasm32-wasip1`.",
            Language::Go => "It needs Go 1.24 or later.",
            Language::C => "It needs clang and wasm-ld, Debian's packages clang and lld.",
        }
    }

    fn source(self) -> (&'static str, &'static str) {
        match self {
            Language::Wat => ("greet.wat", include_str!("../../templates/greet.wat")),
            Language::Rust => ("greet.rs", include_str!("../../templates/greet.rs")),
            Language::Go => ("greet.go", include_str!("../../templates/greet.go")),
            Language::C => ("greet.c", include_str!("../../templates/greet.c")),
        }
    }

    fn in_words(self) -> &'static str {
        match self {
            Language::Wat => "in the text of WebAssembly, which needs no compiler",
            Language::Rust => "in Rust",
            Language::Go => "in Go",
            Language::C => "in C",
        }
    }
}

impl Display for Language {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Language::Wat => "wat",
            Language::Rust => "rust",
            Language::Go => "go",
            Language::C => "c",
        })
    }
}

impl FromStr for Language {
    type Err = String;

    fn from_str(text: &str) -> Result<Language, String> {
        let known = Language::ALL.into_iter().find(|language| language.to_string() == text);
        known.ok_or_else(|| format!("{} is not known; write wat, rust, go or c", quoted(text)))
    }
}

/// Writes an example into a folder that is empty or does not exist: `pipeline.yml`, a function and
/// a README. Returns the files.
///
/// # Errors
/// The reason and a remedy. Existing files are never changed.
pub fn scaffold(folder: &Path, language: Language) -> Result<Vec<PathBuf>, String> {
    check_empty(folder)?;
    let mut written = Vec::new();
    for (name, text) in files(language) {
        let path = folder.join(name);
        let result = write(&path, &text);
        written.push(path);
        if let Err(error) = result {
            // So that the folder is empty for the next attempt.
            written.iter().for_each(|path| drop(fs::remove_file(path)));
            let path = written.last().map(|path| path.display().to_string()).unwrap_or_default();
            return Err(format!("cannot write {path}: {error}"));
        }
    }
    Ok(written)
}

/// The files of the example: paths in its folder, and contents.
pub(super) fn files(language: Language) -> [(String, String); 3] {
    let (source, text) = language.source();
    let module = if language == Language::Wat { source } else { "greet.wasm" };
    let pipeline = include_str!("../../templates/pipeline.yml").replace("{module}", module);
    let readme = include_str!("../../templates/README.md")
        .replace("{source}", source)
        .replace("{language}", language.in_words())
        .replace("{build}\n", &build_step(language));
    [
        (String::from("pipeline.yml"), pipeline),
        (format!("functions/{source}"), String::from(text)),
        (String::from("README.md"), readme),
    ]
}

/// The README's section about building.
fn build_step(language: Language) -> String {
    match language.build_command() {
        None => String::new(),
        Some(command) => {
            format!("Build the function, again after each change. {}\n\n    {command}\n\nThen:\n\n", language.tools())
        }
    }
}

fn check_empty(folder: &Path) -> Result<(), String> {
    let remedy = "name an empty folder or a new one";
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!("{} is not empty; {remedy}", folder.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot use {} as a folder: {error}; {remedy}", folder.display())),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
