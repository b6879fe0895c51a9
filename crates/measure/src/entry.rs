//! Entries (everything that can be measured) and the registry that finds them by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use glob::Pattern as Glob;

use crate::case::{Case, Payload, Role};
use crate::codec_driver::{Codec, Coding};
use crate::context::Ctx;
use crate::driver::{delegate, drive, drive_async};
use crate::mechanism::{AsyncTransport, Mechanism, Raw, Transport};
use crate::message::{Inline, Message, Shared};
use crate::protocol::Report;
use crate::spec::{Loss, Runtime, Spec};

/// Something that can be measured: a mechanism, and what runs its roles.
///
/// [`bytes()`], [`messages`], [`values`], [`async_values`] and [`pipelines`] turn mechanisms into
/// entries, and [`codec`] does so for codecs. Anything else, such as a program in another language
/// or a hand-written loop, implements this trait itself, beside [`Mechanism`].
pub trait Entry: Send + Sync + 'static {
    /// The description: that of the mechanism, with what the entry adds.
    fn spec(&self) -> &Spec;

    /// The mechanism, which says what it needs, which cases it supports, and which roles they have.
    fn mechanism(&self) -> &dyn Mechanism;

    /// Checks whether the entry can run this case, beyond what the description says.
    ///
    /// # Errors
    /// The reason why it cannot, for the user.
    fn supports(&self, case: &Case) -> Result<(), String> {
        self.mechanism().supports(case)
    }

    /// Runs one role, inside a child process.
    ///
    /// # Errors
    /// Whatever stops the role.
    fn run(&self, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report>;

    /// The description with the server's version added, as records and `estafette list` show it.
    fn described(&self) -> Spec {
        let mut spec = self.spec().clone();
        if let Some(server) = self.mechanism().server() {
            spec.version = format!("{}, {server}", spec.version);
        }
        spec
    }

    /// Whether an instance may be stopped between slices. Its times must not include the pauses, as
    /// those of the harness's loops do not ([`crate::window::Meter`]).
    fn can_pause(&self) -> bool {
        true
    }

    /// The program to execute for this role. `None` means the current program. The program speaks
    /// the protocol of `docs/child-protocol.md` on descriptor 0.
    ///
    /// # Errors
    /// When the program is not available.
    fn program(&self, case: &Case, role: Role) -> Result<Option<Program>> {
        let _ = (case, role);
        Ok(None)
    }

    /// The name by which the program of the children knows the mechanism.
    fn name_in_program(&self) -> &str {
        &self.spec().name
    }
}

/// A program that runs as a child.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Variables that its environment has beside those of the coordinator, and their values.
    pub environment: Vec<(String, String)>,
}

impl Program {
    /// The path of this program, even if its file has been replaced since it was started.
    const OWN: &str = "/proc/self/exe";

    /// A program with some arguments.
    pub fn new<const N: usize>(path: impl Into<PathBuf>, arguments: [&str; N]) -> Program {
        let arguments = arguments.map(String::from).to_vec();
        Program { path: path.into(), arguments, environment: Vec::new() }
    }

    /// This program with some arguments.
    pub(crate) fn own<const N: usize>(arguments: [&str; N]) -> Program {
        Program::new(Program::OWN, arguments)
    }
}

type Run<M> = fn(&M, &Case, Role, &mut Ctx) -> Result<Report>;

/// A mechanism as an entry.
struct Registered<M> {
    mechanism: M,
    spec: Spec,
    run: Run<M>,
}

impl<M: Mechanism> Registered<M> {
    /// An entry of a mechanism whose ends block.
    fn blocking(mechanism: M, run: Run<M>) -> Registered<M> {
        let spec = mechanism.spec();
        assert!(spec.runtimes == [Runtime::Thread], "`{}`: ends that block run on threads", spec.name);
        Registered { spec: Spec { open_loop: true, ..spec }, run, mechanism }
    }

    /// An entry of a mechanism whose ends are futures.
    fn of_tasks(mechanism: M, run: Run<M>) -> Registered<M> {
        let spec = mechanism.spec();
        let is_task = !spec.runtimes.is_empty() && !spec.runtimes.contains(&Runtime::Thread);
        assert!(is_task, "`{}`: name the runtimes of its ends, which are futures: Spec::runtimes", spec.name);
        // The search for the highest rate blocks its thread.
        assert!(spec.loss == Loss::Never, "`{}`: a lossy mechanism has ends that block", spec.name);
        Registered { spec: Spec { open_loop: true, ..spec }, run, mechanism }
    }
}

/// Makes an entry from a mechanism that carries slices of bytes.
///
/// # Panics
/// If its description lists a runtime other than threads.
pub fn bytes<M: Transport<Raw>>(mechanism: M) -> impl Entry {
    Registered::blocking(mechanism, drive::<M, Raw>)
}

/// Makes an entry from a mechanism that carries messages with a topic and data.
///
/// # Panics
/// If its description lists a runtime other than threads.
pub fn messages<M: Transport<Message>>(mechanism: M) -> impl Entry {
    Registered::blocking(mechanism, drive::<M, Message>)
}

/// Makes an entry from a mechanism that only runs pipelines.
///
/// # Panics
/// If its description lists a runtime other than threads.
pub fn pipelines<M: Mechanism>(mechanism: M) -> impl Entry {
    Registered::blocking(mechanism, |mechanism, case, role, ctx| delegate(mechanism, case, role, ctx))
}

impl Mechanism for Coding {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }
}

impl Entry for Coding {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn mechanism(&self) -> &dyn Mechanism {
        self
    }

    fn run(&self, case: &Case, _: Role, ctx: &mut Ctx) -> Result<Report> {
        (self.run)(case, ctx)
    }
}

/// Makes an entry from a codec.
pub fn codec<C: Codec>() -> impl Entry {
    Coding::of::<C>()
}

/// A mechanism with blocking ends that carries every type of value that channels are measured with.
pub trait ValueTransport: Transport<u64> + Transport<Vec<u8>> + Transport<Inline> + Transport<Shared> {}
impl<M: Transport<u64> + Transport<Vec<u8>> + Transport<Inline> + Transport<Shared>> ValueTransport for M {}

/// As [`ValueTransport`], with ends that are futures.
pub trait AsyncValueTransport:
    AsyncTransport<u64> + AsyncTransport<Vec<u8>> + AsyncTransport<Inline> + AsyncTransport<Shared>
{
}
impl<M: AsyncTransport<u64> + AsyncTransport<Vec<u8>> + AsyncTransport<Inline> + AsyncTransport<Shared>>
    AsyncValueTransport for M
{
}

/// The type of value that a payload is, and whether a mechanism of values can carry it.
macro_rules! by_payload {
    ($case:expr, $P:ident => $drive:expr) => {
        match $case.payload {
            Payload::None => bail!("{} carries values, which have at least one byte", $case.mechanism),
            Payload::U64 => {
                type $P = u64;
                $drive
            }
            Payload::Bytes(_) => {
                type $P = Vec<u8>;
                $drive
            }
            Payload::Inline => {
                type $P = Inline;
                $drive
            }
            Payload::Shared(_) | Payload::Unread(_) => {
                type $P = Shared;
                $drive
            }
            Payload::Message(_) => bail!("{} carries no {}", $case.mechanism, $case.payload),
        }
    };
}

/// Makes an entry from a mechanism that carries values and whose ends block.
///
/// # Panics
/// If its description lists a runtime other than threads.
pub fn values<M: ValueTransport>(mechanism: M) -> impl Entry {
    let run: Run<M> = |mechanism, case, role, ctx| by_payload!(case, P => drive::<M, P>(mechanism, case, role, ctx));
    Registered::blocking(mechanism, run)
}

/// Makes an entry from a mechanism that carries values and whose ends are futures.
///
/// # Panics
/// If its description lists no runtime, or threads, or says that it may lose messages.
pub fn async_values<M: AsyncValueTransport>(mechanism: M) -> impl Entry {
    let run: Run<M> =
        |mechanism, case, role, ctx| by_payload!(case, P => drive_async::<M, P>(mechanism, case, role, ctx));
    Registered::of_tasks(mechanism, run)
}

impl<M: Mechanism> Entry for Registered<M> {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn mechanism(&self) -> &dyn Mechanism {
        &self.mechanism
    }
    fn run(&self, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
        (self.run)(&self.mechanism, case, role, ctx)
    }
}

/// All entries that a program can measure.
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<String, Arc<dyn Entry>>,
    order: Vec<String>,
    /// The number of entries, from the first, that a library registered.
    built_in: usize,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If another entry has the same name. That is a programming error, and it shows the first time
    /// the program starts.
    #[must_use]
    pub fn register(mut self, entry: impl Entry) -> Registry {
        let name = entry.spec().name.clone();
        assert!(!self.entries.contains_key(&name), "`{name}` is registered twice");
        self.order.push(name.clone());
        self.entries.insert(name, Arc::new(entry));
        self
    }

    /// Marks all entries so far as built in. The entries that are added later are the program's
    /// [own](Registry::own).
    #[must_use]
    pub fn mark_built_in(mut self) -> Registry {
        self.built_in = self.order.len();
        self
    }

    /// The entries that were added after the last [`Registry::mark_built_in`]; all if there is
    /// none. `cargo bench` without arguments measures them beside the built-in ones of their
    /// scopes.
    pub fn own(&self) -> impl Iterator<Item = &Arc<dyn Entry>> {
        self.iter().skip(self.built_in)
    }

    /// All entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Entry>> {
        self.order.iter().map(|name| &self.entries[name])
    }

    /// The entry with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Entry>> {
        self.entries.get(name)
    }

    /// The entries whose names match a glob pattern such as `process/*`.
    ///
    /// # Errors
    /// When the pattern is invalid, or when nothing matches. The text then suggests similar names.
    pub fn matching(&self, pattern: &str) -> Result<Vec<&Arc<dyn Entry>>, String> {
        let glob = Glob::new(pattern).map_err(|error| format!("`{pattern}` is not a pattern: {}", error.msg))?;
        let found: Vec<_> = self.iter().filter(|entry| glob.matches(&entry.spec().name)).collect();
        if found.is_empty() {
            return Err(format!(
                "no mechanism matches `{pattern}`{}; `estafette list` shows all",
                self.nearest(pattern)
            ));
        }
        Ok(found)
    }

    /// Suggests known names that are similar to an unknown one, as the question
    /// `; did you mean …?`. Empty if none is similar.
    pub fn nearest(&self, pattern: &str) -> String {
        let wanted = pattern.rsplit('/').next().unwrap_or(pattern).trim_matches('*');
        let mut near: Vec<&String> =
            self.order.iter().filter(|name| !wanted.is_empty() && name.contains(wanted)).collect();
        // Names whose part after the scope is exactly the wanted text come first, then the
        // shortest.
        near.sort_by_key(|name| (!name.ends_with(&format!("/{wanted}")), name.len()));
        near.truncate(MAX_SUGGESTIONS);
        let near: Vec<&str> = near.into_iter().map(String::as_str).collect();
        if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.order).finish()
    }
}

/// The maximum number of similar names in an error text.
const MAX_SUGGESTIONS: usize = 4;
