//! The files of a pipeline: what they may say, and what it means.
//!
//! [`check()`] reads them and reports everything that is wrong at once. [`Pipeline`] is what they
//! say, with all defaults; [`Topology`] is what has to be created for it.
//!
//! # Two shapes
//! A pipeline is one file, or, as the reference has it, a list whose entries (`name`, `config`)
//! refer to functions' own files. Both may be mixed: an entry with `config` beside one without.
//!
//! # Paths
//! - A path in the pipeline's own file begins in the folder of that file, so a pipeline runs from
//!   anywhere.
//! - The path `config` of a list's entry, and the module's path in a function's own file, begin in
//!   the working folder, as the reference has it. If nothing is there, they begin in the folder of
//!   the file that says them.
//!
//! # Queues
//! Readers of a topic that name the same `queue` compete for its messages. Each queue gets every
//! message. Readers without a queue compete, sinks included: the reference's README says so, though
//! its code copies to each. `queue: each` asks for a copy; the replicas of a function compete for
//! it.
#![forbid(unsafe_code)]

mod diagnostic;
mod draft;
mod files;
mod function;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod inspect;
mod keys;
mod pipeline;
mod read;
mod rules;
mod scaffold;
mod schema;
mod shape;
mod sink;
mod source;
mod topic;
mod topology;
mod units;
mod validate;
mod value;
mod yaml;

use std::path::{Path, PathBuf};

pub use diagnostic::{Diagnostic, Severity};
pub use function::{
    DirectoryGrant, Exhausted, Function, FunctionKind, Grants, HostPort, Input, Isolation, Limits, Queue, Restart,
    Stream, Wait,
};
pub use inspect::{Finding, ModuleInspector};
pub use pipeline::Pipeline;
pub use scaffold::{Language, scaffold};
pub use schema::{function_schema, pipeline_schema};
pub use sink::{Layout, Sink, SinkKind};
pub use source::{Framing, Source, SourceKind};
pub use topic::{Delivery, Overflow, Topic, Transport};
pub use topology::{End, Feed, Group, GroupKey, MAX_MEMBERS, Membership, Output, Producer, Ring, Topology};

use diagnostic::Problems;
use draft::Loader;
use files::{Disk, Files};

/// How to check.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// The folder that the reference's paths begin in. Empty, the default, stands for that of the
    /// process.
    pub working_folder: PathBuf,
    /// Who looks into modules. Without one only their presence is checked.
    pub inspector: Option<&'a dyn ModuleInspector>,
}

/// The outcome of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The pipeline, if there is no error.
    pub pipeline: Option<Pipeline>,
    /// All errors and warnings, by file, then line and column.
    pub diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Whether the pipeline can run. There may be warnings.
    pub fn is_ok(&self) -> bool {
        self.pipeline.is_some()
    }
}

/// Reads and checks a pipeline: its file, the files it refers to, and that its modules are there.
/// Reports everything that is wrong at once, at most 200 findings. Files are read up to 1 MiB each.
pub fn check(path: &Path, options: &Options) -> Checked {
    check_files(path, options, &Disk)
}

fn check_files(path: &Path, options: &Options, files: &dyn Files) -> Checked {
    let mut problems = Problems::default();
    let drafts = Loader::new(files, &options.working_folder, &mut problems).load(path);
    rules::apply(&drafts, files, options.inspector, &mut problems);
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let pipeline = (!problems.has_errors()).then(|| drafts.into_pipeline(name));
    Checked { pipeline, diagnostics: problems.into_diagnostics() }
}
