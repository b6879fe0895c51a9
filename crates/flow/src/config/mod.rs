//! The configuration files of a pipeline: format, checks and meaning.
//!
//! [`check()`] reads the files and reports all errors at once. [`Pipeline`] is their content with
//! all defaults filled in. [`Topology`] lists what has to be created to run it.
//!
//! # Two layouts
//! A pipeline is one file. As in the reference, its list of functions may contain entries (`name`,
//! `config`) that refer to functions' own files. Entries with and without `config` may be mixed.
//!
//! # Paths
//! - A path in the pipeline's own file is relative to the folder of that file, so a pipeline runs
//!   from any folder.
//! - The path `config` of a list's entry, and the module's path in a function's own file, are
//!   relative to the working folder, as in the reference. If there is no such file, they are
//!   relative to the folder of the file that contains them.
//!
//! # Queues
//! Readers of a topic with the same `queue` compete for its messages. Each queue gets every
//! message. All readers without a queue compete, including sinks. The reference's README says the
//! same, but its code copies to each reader. `queue: each` requests a copy for one reader; the
//! replicas of a function compete for the copies.
#![forbid(unsafe_code)]

mod diagnostic;
mod draft;
mod files;
mod function;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hosts;
mod inspect;
mod keys;
mod nats;
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
pub use hosts::{Crossing, Hosts};
pub use inspect::{Finding, ModuleInspector};
#[cfg(feature = "nats")]
pub(crate) use nats::encoded;
pub use nats::{Nats, NatsStream, NatsTls, NatsTopic};
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

/// The options of a check.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// The folder for paths that are relative to the working folder. Empty, the default, means that
    /// of the process.
    pub working_folder: PathBuf,
    /// Inspects modules. If none is given, the check only tests whether the files exist.
    pub inspector: Option<&'a dyn ModuleInspector>,
    /// The host whose part of the pipeline will run here. Modules and files of other hosts need not
    /// exist then. A host that the pipeline does not have is an error, and so is none if it has
    /// some. The default checks the whole pipeline, for no host.
    pub host: CheckedHost<'a>,
}

/// Which part of a pipeline is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckedHost<'a> {
    /// The whole pipeline. The modules of all hosts must exist.
    #[default]
    All,
    /// A pipeline that runs on this machine alone, so it must not have hosts.
    Alone,
    /// The part of this host.
    Named(&'a str),
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The pipeline, if there are no errors.
    pub pipeline: Option<Pipeline>,
    /// All errors and warnings, sorted by file, line and column.
    pub diagnostics: Vec<Diagnostic>,
}

impl Checked {
    /// Whether the pipeline can run. There may still be warnings.
    pub fn is_ok(&self) -> bool {
        self.pipeline.is_some()
    }
}

/// Reads and checks a pipeline: its file, the files it refers to, and its modules. Reports all
/// findings at once, at most 200. A file may have at most 1 MiB.
pub fn check(path: &Path, options: &Options) -> Checked {
    check_files(path, options, &Disk)
}

fn check_files(path: &Path, options: &Options, files: &dyn Files) -> Checked {
    let mut problems = Problems::default();
    let drafts = Loader::new(files, &options.working_folder, &mut problems).load(path);
    rules::apply(&drafts, files, options, &mut problems);
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let pipeline = (!problems.has_errors()).then(|| drafts.into_pipeline(name));
    Checked { pipeline, diagnostics: problems.into_diagnostics() }
}
