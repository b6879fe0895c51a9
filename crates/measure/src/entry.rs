//! Entries (everything that can be measured) and the registry that finds them by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use glob::Pattern as Glob;

use crate::case::{BURST, Case, Pattern, Payload, Place, Role};
use crate::codec::{Codec, Coding};
use crate::descriptors;
use crate::driver::{Ctx, delegate, drive};
use crate::mechanism::{Mechanism, Raw, Transport};
use crate::message::{Inline, MAX_PRODUCERS, Message, Shared};
use crate::protocol::Report;
use crate::spec::{Loss, Ordering, Runtime, Spec, Wait};

/// Something that can be measured.
///
/// [`bytes()`], [`messages`], [`values`] and [`pipelines`] turn mechanisms into entries, and
/// [`codec`] does so for codecs. Anything else, such as a program in another language or a
/// hand-written loop, implements this trait itself.
pub trait Entry: Send + Sync {
    /// The description.
    fn spec(&self) -> &Spec;

    /// Checks whether the entry can run this case, beyond what the description says.
    ///
    /// # Errors
    /// The reason why it cannot, for the user.
    fn supports(&self, case: &Case) -> Result<(), String>;

    /// The number of messages that fit between the ends of this case, as probed. `None` if it
    /// cannot be probed. See [`Mechanism::effective_capacity`].
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let _ = case;
        None
    }

    /// The roles of an instance, one child process each.
    fn roles(&self, case: &Case) -> Vec<Role>;

    /// Plays one role, inside a child process.
    ///
    /// # Errors
    /// Whatever stops the role.
    fn run(&self, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report>;

    /// The name and version of the server that the entry needs, if any. Looked up only when it is
    /// printed or recorded.
    fn server(&self) -> Option<String> {
        None
    }

    /// The description with the server's version added, as records and `estafette list` show it.
    fn described(&self) -> Spec {
        let mut spec = self.spec().clone();
        if let Some(server) = self.server() {
            spec.version = format!("{}, {server}", spec.version);
        }
        spec
    }

    /// Checks whether everything that the entry needs is installed on this machine.
    ///
    /// # Errors
    /// What is missing and how to install it.
    fn check_available(&self) -> Result<(), String> {
        Ok(())
    }

    /// The program to execute for this role. `None` means the current program. The program speaks
    /// the protocol of `docs/child-protocol.md` on descriptor 0.
    ///
    /// # Errors
    /// When the program is not available.
    fn program(&self, case: &Case, role: Role) -> Result<Option<PathBuf>> {
        let _ = (case, role);
        Ok(None)
    }
}

type Run<M> = fn(&M, &Case, Role, &mut Ctx) -> Result<Report>;

/// A mechanism as an entry.
struct Enrolled<M> {
    mechanism: M,
    spec: Spec,
    run: Run<M>,
}

impl<M: Mechanism> Enrolled<M> {
    fn new(mechanism: M, run: Run<M>) -> Enrolled<M> {
        Enrolled { spec: Spec { open_loop: true, ..mechanism.spec() }, run, mechanism }
    }
}

/// Makes an entry from a mechanism that carries slices of bytes.
pub fn bytes<M: Transport<Raw>>(mechanism: M) -> impl Entry {
    Enrolled::new(mechanism, drive::<M, Raw>)
}

/// Makes an entry from a mechanism that carries messages with a topic and data.
pub fn messages<M: Transport<Message>>(mechanism: M) -> impl Entry {
    Enrolled::new(mechanism, drive::<M, Message>)
}

/// Makes an entry from a mechanism that only runs pipelines.
pub fn pipelines<M: Mechanism>(mechanism: M) -> impl Entry {
    Enrolled::new(mechanism, delegate::<M>)
}

/// Makes an entry from a codec.
pub fn codec<C: Codec>() -> impl Entry {
    Coding::of::<C>()
}

/// A mechanism that carries every type of value that channels are measured with.
pub trait ValueTransport: Transport<u64> + Transport<Vec<u8>> + Transport<Inline> + Transport<Shared> {}
impl<M: Transport<u64> + Transport<Vec<u8>> + Transport<Inline> + Transport<Shared>> ValueTransport for M {}

/// Makes an entry from a mechanism that carries values.
pub fn values<M: ValueTransport>(mechanism: M) -> impl Entry {
    let run: Run<M> = |mechanism, case, role, ctx| match case.payload {
        Payload::None => bail!("{} carries values, which have at least one byte", case.mechanism),
        Payload::U64 => drive::<M, u64>(mechanism, case, role, ctx),
        Payload::Bytes(_) => drive::<M, Vec<u8>>(mechanism, case, role, ctx),
        Payload::Inline => drive::<M, Inline>(mechanism, case, role, ctx),
        Payload::Shared(_) | Payload::Unread(_) => drive::<M, Shared>(mechanism, case, role, ctx),
        Payload::Message(_) => bail!("{} carries no {}", case.mechanism, case.payload),
    };
    Enrolled::new(mechanism, run)
}

impl<M: Mechanism> Entry for Enrolled<M> {
    fn spec(&self) -> &Spec {
        &self.spec
    }
    fn supports(&self, case: &Case) -> Result<(), String> {
        self.mechanism.supports(case)
    }
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        self.mechanism.effective_capacity(case)
    }
    fn roles(&self, case: &Case) -> Vec<Role> {
        self.mechanism.roles(case)
    }
    fn run(&self, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report> {
        (self.run)(&self.mechanism, case, role, ctx)
    }
    fn server(&self) -> Option<String> {
        self.mechanism.server()
    }
    fn check_available(&self) -> Result<(), String> {
        self.mechanism.check_available()
    }
}

/// All entries that a program can measure.
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<String, Arc<dyn Entry>>,
    order: Vec<String>,
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
    pub fn enrol(mut self, entry: impl Entry + 'static) -> Registry {
        let name = entry.spec().name.clone();
        assert!(!self.entries.contains_key(&name), "`{name}` is enrolled twice");
        self.order.push(name.clone());
        self.entries.insert(name, Arc::new(entry));
        self
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

    /// Suggests known names that are similar to an unknown one, as the question `; did you mean
    /// …?`. Empty if none is similar.
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
/// The maximum number of producers, and of consumers, of one shared channel. Their reports must fit
/// in one packet.
const MAX_SHARING: usize = 32;
/// The maximum number of threads that write to one connection. Their reports must fit in one
/// packet.
const MAX_WRITERS: usize = 256;
/// The maximum length of a burst's messages in bytes. All of them together stay within one GiB.
const MAX_BURST_LEN: usize = 1024;
/// The maximum length of a message, in bytes, that a thread sends before it receives it.
const MAX_SAME_THREAD_LEN: usize = 64 << 10;
/// The minimum length of a pipeline's messages in bytes.
const MIN_PIPELINE_LEN: usize = 8;
/// The minimum rate of each producer in an open loop, in messages per second.
const MIN_PRODUCER_RATE: u64 = 100;

/// Checks whether an entry can run a case as an open loop, in which each message is due at a set
/// time.
fn open_loop(spec: &Spec, case: &Case, rate: u64, cores: usize) -> Result<(), String> {
    if !matches!(case.pattern, Pattern::Stream | Pattern::FanIn | Pattern::Merge) {
        return Err(format!("{} has no rate: use stream, fan-in or merge", case.pattern));
    }
    if !spec.open_loop {
        return Err(format!("has no open loop: it sends as fast as it can, not at {rate}/s"));
    }
    if spec.loss == Loss::BestEffort {
        return Err(String::from("may lose messages: the run searches for its highest rate itself"));
    }
    if spec.ordering == Ordering::Unordered {
        return Err(String::from("keeps no order: nobody can say which message has arrived and when it was due"));
    }
    let shared = case.runtime == Runtime::Thread && case.place != Place::Free && case.producers >= cores;
    if case.place == Place::SameCore || shared {
        return Err(String::from(
            "a producer of an open loop needs its own core: use --place other-core, and fewer producers than cores",
        ));
    }
    let least = case.producers as u64 * MIN_PRODUCER_RATE;
    if rate < least {
        return Err(format!("{} producers at {rate}/s: choose at least {least}/s", case.producers));
    }
    Ok(())
}

/// Checks whether an entry can run a case on a machine where `cores` cores may be used.
///
/// # Errors
/// The reason why it cannot, for the user.
pub fn can_run(entry: &dyn Entry, case: &Case, cores: usize) -> Result<(), String> {
    let spec = entry.spec();
    let has = |what: &str, known: bool| if known { Ok(()) } else { Err(what.to_owned()) };
    has(&format!("has no {} pattern", case.pattern), spec.patterns.contains(&case.pattern))?;
    has(&format!("does not carry {}", case.payload), spec.payloads.contains(&case.payload.kind()))?;
    has(&format!("has no wait mode {}", case.wait), case.pattern.is_pipeline() || spec.waits.contains(&case.wait))?;
    has(&format!("does not run on {}", case.runtime), spec.runtimes.contains(&case.runtime))?;
    if matches!(case.payload, Payload::Message(len) if len < 8) {
        return Err(String::from("the first 8 bytes of a message's data identify it: use 8 bytes or more"));
    }
    if let Some(max) = spec.max_message.filter(|&max| case.payload.len() > max) {
        return Err(format!("its longest message is {max} bytes, and {} were requested", case.payload.len()));
    }
    if case.capacity < spec.least_capacity {
        return Err(format!("has no rendezvous: its capacity is at least {}", spec.least_capacity));
    }
    let producers = spec.max_producers.unwrap_or(MAX_PRODUCERS).min(MAX_PRODUCERS);
    if case.pattern != Pattern::PubSub && case.producers > producers {
        return Err(format!("supports at most {producers} producers, and {} were requested", case.producers));
    }
    // With a single producer, order per producer is a total order.
    let is_sequence_known = spec.ordering != Ordering::Unordered && spec.loss == Loss::Never;
    let has_one_sender = case.senders() == 1 || case.pattern == Pattern::Duplex;
    if case.payload.len() < 8 && !(has_one_sender && is_sequence_known) {
        return Err(String::from(
            "messages under 8 bytes have no space for a sequence number: use 8 bytes or more, or one producer and a \
             mechanism that is ordered and loses none",
        ));
    }
    if case.runtime != Runtime::Thread && case.place != Place::Free {
        return Err(format!("tasks move between cores and are not pinned: use --place {}", Place::Free));
    }
    if case.wait == Wait::Spin && (case.place == Place::SameCore || cores < 2) {
        let other = if spec.waits.contains(&Wait::Block) { "use --wait block, or " } else { "use " };
        return Err(format!(
            "spinning on one core measures the scheduler's time slice: {other}two cores with --place other-core"
        ));
    }
    let spinning = case.sending() + case.consumers();
    if case.wait == Wait::Spin && !case.pattern.in_one_thread() && spinning > cores {
        return Err(format!(
            "{spinning} spinning ends need {spinning} cores, and {cores} may be used: use fewer producers, or --wait block"
        ));
    }
    if case.place == Place::OtherCore && cores < 2 {
        return Err(String::from("only one core may be used: use --place same-core"));
    }
    if case.pattern == Pattern::Duplex && case.wait == Wait::Spin {
        return Err(String::from("both ends of one side would spin on the same core: use --wait block"));
    }
    if case.pattern == Pattern::Duplex && spec.loss == Loss::BestEffort {
        return Err(String::from("may lose messages: its highest rate is searched for in one direction only"));
    }
    if case.pattern.in_one_process() && case.scope.in_process() {
        return Err(format!("{} are between processes: use fan-in or merge", case.pattern));
    }
    if case.pattern.in_one_process() && spec.loss == Loss::BestEffort {
        return Err(String::from("may lose messages: its highest rate is searched for with one stream per process"));
    }
    if case.pattern == Pattern::Writers && case.producers > MAX_WRITERS {
        return Err(format!("the reports of all writers share one packet: choose at most {MAX_WRITERS} producers"));
    }
    descriptors::suffice(case)?;
    if case.pattern.is_pipeline() && case.payload.len() < MIN_PIPELINE_LEN {
        return Err(format!(
            "a message of a pipeline has an end mark and a checksum: use {MIN_PIPELINE_LEN} bytes or more"
        ));
    }
    if case.pattern.is_pipeline() && case.place == Place::OtherCore {
        return Err(String::from(
            "the processes of a pipeline cannot be pinned to different cores: use --place free, or same-core for all of them",
        ));
    }
    if case.pattern == Pattern::SameThread && case.place != Place::SameCore {
        return Err(format!("one thread runs on one core: use --place {}", Place::SameCore));
    }
    if case.pattern == Pattern::SameThread && case.payload.len() > MAX_SAME_THREAD_LEN {
        return Err(format!(
            "a message must fit in the channel's buffers until its sender receives it: use {MAX_SAME_THREAD_LEN} bytes or less"
        ));
    }
    if case.pattern == Pattern::Burst && (case.capacity as u64) < BURST {
        return Err(format!("a burst of {BURST} messages must fit in the channel: use --capacity {BURST}"));
    }
    if case.pattern == Pattern::Burst && matches!(case.payload, Payload::Bytes(len) if len > MAX_BURST_LEN) {
        return Err(format!(
            "a burst of {BURST} messages would take too much memory: use {MAX_BURST_LEN} bytes or less"
        ));
    }
    if case.pattern == Pattern::Mpmc && case.producers > MAX_SHARING {
        return Err(format!(
            "each of {} consumers would report on each producer: choose at most {MAX_SHARING} producers",
            case.consumers()
        ));
    }
    if case.pattern == Pattern::Cancel && case.runtime == Runtime::Thread {
        return Err(String::from("blocks its thread: a pending receive cannot be dropped"));
    }
    if let Some(rate) = case.load.rate() {
        open_loop(spec, case, rate, cores)?;
    }
    entry.check_available()?;
    entry.supports(case)
}
