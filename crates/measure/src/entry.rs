//! Entries and their registry: what can be measured, by name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use glob::Pattern as Glob;

use crate::case::{BURST, Case, Load, Pattern, Payload, Place, Role};
use crate::codec::{Codec, Coding};
use crate::descriptors;
use crate::driver::{Ctx, delegate, drive};
use crate::mechanism::{Mechanism, Raw, Transport};
use crate::message::{Inline, MAX_PRODUCERS, Message, Shared};
use crate::protocol::Report;
use crate::spec::{Loss, Ordering, Runtime, Spec, Wait};

/// Something that can be measured. Mechanisms become entries through [`bytes()`], [`messages`], [`values`] and [`pipelines`],
/// codecs through [`codec`]; what does not fit their form, such as a program in another language or a hand-written loop, implements this itself.
pub trait Entry: Send + Sync {
    /// Its description.
    fn spec(&self) -> &Spec;

    /// Whether it can take part in this case, beyond what the description says.
    ///
    /// # Errors
    /// The reason, where it cannot.
    fn supports(&self, case: &Case) -> Result<(), String>;

    /// How many messages may really be under way in this case, as tried; none where that cannot be told.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let _ = case;
        None
    }

    /// The child processes of an instance.
    fn roles(&self, case: &Case) -> Vec<Role>;

    /// Plays one role, inside a child process.
    ///
    /// # Errors
    /// Whatever keeps it from doing so.
    fn run(&self, case: &Case, role: Role, ctx: &mut Ctx) -> Result<Report>;

    /// The server it stands on and its version, asked when somebody wants to know.
    fn server(&self) -> Option<String> {
        None
    }

    /// What it is, with the version of its server too: what is recorded and listed.
    fn described(&self) -> Spec {
        let mut spec = self.spec().clone();
        if let Some(server) = self.server() {
            spec.version = format!("{}, {server}", spec.version);
        }
        spec
    }

    /// Whether it can be had on this machine.
    ///
    /// # Errors
    /// How to get it.
    fn check_available(&self) -> Result<(), String> {
        Ok(())
    }

    /// The program that plays this role, where it is not this one executed again. It speaks the protocol of
    /// `docs/child-protocol.md` on descriptor 0.
    ///
    /// # Errors
    /// When the program cannot be had.
    fn program(&self, case: &Case, role: Role) -> Result<Option<PathBuf>> {
        let _ = (case, role);
        Ok(None)
    }
}

type Run<M> = fn(&M, &Case, Role, &mut Ctx) -> Result<Report>;

/// A mechanism made into an entry.
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

/// Makes an entry of a mechanism that carries slices of bytes.
pub fn bytes<M: Transport<Raw>>(mechanism: M) -> impl Entry {
    Enrolled::new(mechanism, drive::<M, Raw>)
}

/// Makes an entry of a mechanism that carries messages of a topic and data.
pub fn messages<M: Transport<Message>>(mechanism: M) -> impl Entry {
    Enrolled::new(mechanism, drive::<M, Message>)
}

/// Makes an entry of a mechanism that plays pipelines alone.
pub fn pipelines<M: Mechanism>(mechanism: M) -> impl Entry {
    Enrolled::new(mechanism, delegate::<M>)
}

/// Makes an entry of a codec.
pub fn codec<C: Codec>() -> impl Entry {
    Coding::of::<C>()
}

/// A mechanism that carries values of every kind that is a value in a channel.
pub trait ValueTransport: Transport<u64> + Transport<Vec<u8>> + Transport<Inline> + Transport<Shared> {}
impl<M: Transport<u64> + Transport<Vec<u8>> + Transport<Inline> + Transport<Shared>> ValueTransport for M {}

/// Makes an entry of a mechanism that carries values.
pub fn values<M: ValueTransport>(mechanism: M) -> impl Entry {
    let run: Run<M> = |mechanism, case, role, ctx| match case.payload {
        Payload::None => bail!("{} carries values, and each has bytes", case.mechanism),
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

/// Every entry that a program can measure.
#[derive(Clone, Default)]
pub struct Registry {
    entries: BTreeMap<String, Arc<dyn Entry>>,
    order: Vec<String>,
}

impl Registry {
    /// With nothing in it.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If its name is taken: a mistake of the program's author, found the first time the program starts.
    #[must_use]
    pub fn enrol(mut self, entry: impl Entry + 'static) -> Registry {
        let name = entry.spec().name.clone();
        assert!(!self.entries.contains_key(&name), "`{name}` is enrolled twice");
        self.order.push(name.clone());
        self.entries.insert(name, Arc::new(entry));
        self
    }

    /// All entries in the order in which they were enrolled.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Entry>> {
        self.order.iter().map(|name| &self.entries[name])
    }

    /// The entry of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Entry>> {
        self.entries.get(name)
    }

    /// The entries that a pattern such as `process/*` matches.
    ///
    /// # Errors
    /// What is wrong with the pattern, or that nothing matches, with the names that come nearest.
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

    /// The names that come nearest to one that is none, as a question; nothing where none is near.
    pub fn nearest(&self, pattern: &str) -> String {
        let wanted = pattern.rsplit('/').next().unwrap_or(pattern).trim_matches('*');
        let mut near: Vec<&String> =
            self.order.iter().filter(|name| !wanted.is_empty() && name.contains(wanted)).collect();
        // The whole name of a mechanism first, then the shortest.
        near.sort_by_key(|name| (!name.ends_with(&format!("/{wanted}")), name.len()));
        near.truncate(MOST_SUGGESTIONS);
        let near: Vec<&str> = near.into_iter().map(String::as_str).collect();
        if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(" or ")) }
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.order).finish()
    }
}

/// A question that names more is no help.
const MOST_SUGGESTIONS: usize = 4;
/// The most producers, and as many consumers, of one shared channel: what all report must fit a packet.
const MAX_SHARING: usize = 32;
/// The most threads that write to one connection: what all report must fit a packet.
const MAX_WRITERS: usize = 256;
/// The longest message of a burst: all of them together stay within a GiB.
const MAX_BURST_LEN: usize = 1024;
/// The longest message that a thread sends before it receives it.
const MAX_ONE_THREAD: usize = 64 << 10;
/// The shortest message of a pipeline.
const LEAST_OF_PIPELINE: usize = 8;
/// How often in a second a producer's turn comes in an open loop, at the least.
const LEAST_TURNS: u64 = 100;

/// Whether messages can be due at times.
fn open_loop(spec: &Spec, case: &Case, rate: u64, cores: usize) -> Result<(), String> {
    if !matches!(case.pattern, Pattern::Stream | Pattern::FanIn | Pattern::Merge) {
        return Err(format!("{} has no rate: use stream, fan-in or merge", case.pattern));
    }
    if !spec.open_loop {
        return Err(format!("sends as fast as it can, not at {rate}/s"));
    }
    if spec.loss == Loss::BestEffort {
        return Err(String::from("looks for the highest rate at which it loses little: it takes no other"));
    }
    if spec.ordering == Ordering::Unordered {
        return Err(String::from("keeps no order: which message has arrived, and when it was due, cannot be told"));
    }
    let shared = case.runtime == Runtime::Thread && case.place != Place::Free && case.producers >= cores;
    if case.place == Place::SameCore || shared {
        return Err(String::from(
            "a producer that waits for its time needs a core to itself: use --place other-core, and fewer producers than cores",
        ));
    }
    let least = case.producers as u64 * LEAST_TURNS;
    if rate < least {
        return Err(format!("{} producers at {rate}/s: choose at least {least}/s", case.producers));
    }
    Ok(())
}

/// Whether an entry can take part in a case on a machine with so many cores for us.
///
/// # Errors
/// The reason, for the user, where it cannot.
pub fn can_run(entry: &dyn Entry, case: &Case, cores: usize) -> Result<(), String> {
    let spec = entry.spec();
    let has = |what: &str, known: bool| if known { Ok(()) } else { Err(what.to_owned()) };
    has(&format!("has no {} pattern", case.pattern), spec.patterns.contains(&case.pattern))?;
    has(&format!("does not carry {}", case.payload), spec.payloads.contains(&case.payload.kind()))?;
    has(&format!("has no wait mode {}", case.wait), case.pattern.is_pipeline() || spec.waits.contains(&case.wait))?;
    has(&format!("does not run on {}", case.runtime), spec.runtimes.contains(&case.runtime))?;
    if matches!(case.payload, Payload::Message(len) if len < 8) {
        return Err(String::from("a message says in the first 8 bytes of its data which it is: use 8 or more"));
    }
    if let Some(max) = spec.max_message.filter(|&max| case.payload.len() > max) {
        return Err(format!("its longest message is {max} bytes, {} were asked for", case.payload.len()));
    }
    if case.capacity < spec.least_capacity {
        return Err(format!("has no rendezvous: its capacity is at least {}", spec.least_capacity));
    }
    let producers = spec.max_producers.unwrap_or(MAX_PRODUCERS).min(MAX_PRODUCERS);
    if case.pattern != Pattern::PubSub && case.producers > producers {
        return Err(format!("takes at most {producers} producers, {} were asked for", case.producers));
    }
    // Of one producer, its own order is the order of all.
    let in_turn = spec.ordering != Ordering::Unordered && spec.loss == Loss::Never;
    let alone = case.senders() == 1 || case.pattern == Pattern::Duplex;
    if case.payload.len() < 8 && !(alone && in_turn) {
        return Err(String::from(
            "messages under 8 bytes cannot say which they are: use 8 or more, or one producer and a mechanism that is ordered \
             and loses none",
        ));
    }
    if case.runtime != Runtime::Thread && case.place != Place::Free {
        return Err(format!("tasks go from core to core, they are not pinned: use --place {}", Place::Free));
    }
    if case.wait == Wait::Spin && (case.place == Place::SameCore || cores < 2) {
        let other = if spec.waits.contains(&Wait::Block) { "use --wait block, or " } else { "it takes " };
        return Err(format!(
            "spinning on one core measures the scheduler's time slice: {other}two cores with --place other-core"
        ));
    }
    let spinning = case.sending() + case.consumers();
    if case.wait == Wait::Spin && !case.pattern.in_one_thread() && spinning > cores {
        return Err(format!(
            "{spinning} ends that spin take as many cores, {cores} are there: use fewer, or --wait block"
        ));
    }
    if case.place == Place::OtherCore && cores < 2 {
        return Err(String::from("there is only one core for us: use --place same-core"));
    }
    if case.pattern == Pattern::Duplex && case.wait == Wait::Spin {
        return Err(String::from("both ends of a side would spin on one core: use --wait block"));
    }
    if case.pattern == Pattern::Duplex && spec.loss == Loss::BestEffort {
        return Err(String::from("looks for the highest rate at which it loses little, one way at a time"));
    }
    if case.pattern.in_one_process() && case.scope.in_process() {
        return Err(format!("{} are between processes: use fan-in or merge", case.pattern));
    }
    if case.pattern.in_one_process() && spec.loss == Loss::BestEffort {
        return Err(String::from("looks for the highest rate at which it loses little, one stream a process"));
    }
    if case.pattern == Pattern::Writers && case.producers > MAX_WRITERS {
        return Err(format!("one process reports on each of its writers: choose at most {MAX_WRITERS} producers"));
    }
    descriptors::suffice(case)?;
    if case.pattern.is_pipeline() && case.payload.len() < LEAST_OF_PIPELINE {
        return Err(format!(
            "a message of a pipeline has a mark and a checksum: use {LEAST_OF_PIPELINE} bytes or more"
        ));
    }
    if case.pattern.is_pipeline() && case.place == Place::OtherCore {
        return Err(String::from(
            "a pipeline's processes are not pinned one by one: use --place free, or same-core for all of them",
        ));
    }
    if case.pattern == Pattern::SameThread && case.place != Place::SameCore {
        return Err(format!("one thread is on one core: use --place {}", Place::SameCore));
    }
    if case.pattern == Pattern::SameThread && case.payload.len() > MAX_ONE_THREAD {
        return Err(format!(
            "has to lie in the way's buffers until its sender receives it: use {MAX_ONE_THREAD} or less"
        ));
    }
    if case.pattern == Pattern::Burst && (case.capacity as u64) < BURST {
        return Err(format!("a burst of {BURST} needs that capacity: use --capacity {BURST}"));
    }
    if case.pattern == Pattern::Burst && matches!(case.payload, Payload::Bytes(len) if len > MAX_BURST_LEN) {
        return Err(format!("a burst of {BURST} is of messages up to {MAX_BURST_LEN} bytes"));
    }
    if case.pattern == Pattern::Mpmc && case.producers > MAX_SHARING {
        return Err(format!(
            "each of {} consumers would report on each producer: choose at most {MAX_SHARING} producers",
            case.consumers()
        ));
    }
    if case.pattern == Pattern::Cancel && case.runtime == Runtime::Thread {
        return Err(String::from("blocks: a receive that waits cannot be dropped"));
    }
    if let Load::Rate(rate) = case.load {
        open_loop(spec, case, rate, cores)?;
    }
    entry.check_available()?;
    entry.supports(case)
}
