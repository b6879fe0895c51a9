//! The command `bench`: plans a run, measures it and prints the tables.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use estafette_measure::Registry;
use estafette_measure::case::{Cell, Load, Payload, PayloadKind, Place};
use estafette_measure::entry::Entry;
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, MAX_ROUNDS, Plan, Precision, Refusal, combine};
use estafette_measure::record::Record;
use estafette_measure::run::Completion;
use estafette_measure::spec::{Scope, Standing, Wait};
use estafette_measure::suite::{self, Axes, Profile, Suite};
use estafette_measure::variant::{plain_name, variant_name};
use estafette_measure::window::Window;

use crate::args::{Bench, Slice};
use crate::build_features::with_peers;
use crate::exit::Exit;
use crate::hosts::target::Target;
use crate::measurement::{
    self, Measurement, RunOptions, SystemCalls, measure, random_seed, report_interrupt, time_window, without_result,
};
use crate::output::{self, Detail};
use crate::progress::View;
use crate::terminal::{print, print_json, report_to_stderr};
use crate::{allocator, hosts, page};

/// The target of `--until-decided`: a run ends early when every table can detect this difference.
const SHOWN_DIFFERENCE: f64 = 0.05;
/// The target of the profile `quick`. Tables that cannot detect this difference after the planned
/// rounds get more, up to a maximum number and within a budget.
const QUICK_DIFFERENCE: f64 = 0.03;
const QUICK_MAX_ROUNDS: usize = 27;
const QUICK_BUDGET: Duration = Duration::from_secs(55);

/// Runs `bench`.
pub(crate) fn run(registry: &Registry, args: &Bench) -> Result<Exit> {
    allocator::use_first(&args.allocator)?;
    let registry = &allocator::with_candidates_of(registry, args.allocator.get(1..).unwrap_or_default());
    let mut plan = plan(registry, args)?;
    hosts::prepare(&mut plan, &args.hosts, args.window.is_some())?;
    // A single round is a quick look. Counting system calls would more than double its duration.
    let system_calls =
        if plan.rounds > 1 && plan.other_host.is_none() { SystemCalls::Counted } else { SystemCalls::NotCounted };
    let options = RunOptions { system_calls, view: View::of(args.live) };
    let Some(Measurement { record, files, end }) = measure(registry, plan, &args.out, options)? else {
        return Ok(Exit::Interrupted);
    };
    let exit = measurement::exit(&record);
    // The tables are printed even if the disk is full, and the record is saved before that.
    let saved = files.finish(&record);
    match report(&record, args.json, Detail::of(args.details)).and(saved) {
        // A breach outranks a failed report.
        Err(error) if exit == Exit::Breach => report_to_stderr(&format!("error: {error:#}")),
        reported => reported?,
    }
    without_result(&record).iter().for_each(|mechanism| report_to_stderr(&format!("warning: {mechanism}")));
    if !args.json {
        report_to_stderr(&format!("record: {}", files.record.display()));
    }
    if !args.no_report {
        write_page(&record, &files.record.with_extension("html"), args.json);
    }
    match end? {
        Completion::Complete => Ok(exit),
        Completion::Interrupted => {
            report_interrupt(&record);
            Ok(if exit == Exit::Breach { exit } else { Exit::Interrupted })
        }
    }
}

/// Writes the HTML page of a record. The record has everything: a page that cannot be written does
/// not change the exit code.
fn write_page(record: &Record, path: &Path, is_quiet: bool) {
    match page::write(path, &page::html(record)) {
        Ok(()) if is_quiet => {}
        Ok(()) => report_to_stderr(&format!("report: {}", path.display())),
        Err(error) => report_to_stderr(&format!("warning: {error:#}")),
    }
}

fn report(record: &Record, json: bool, detail: Detail) -> Result<()> {
    if json {
        return print_json(record);
    }
    print(&output::report(record, detail))
}

/// Plans the run that the arguments request.
pub(crate) fn plan(registry: &Registry, args: &Bench) -> Result<Plan> {
    let mut selection = select(registry, &args.what)?;
    check_hosts(registry, args, &mut selection)?;
    if args.what.is_empty() && (!args.pattern.is_empty() || args.payload == Some(PayloadKind::Message)) {
        // The overview has no mechanism for messages and for some patterns.
        selection.suites = Suite::ALL.to_vec();
    }
    let cpus = available_cpus();
    let Chosen { suite, entrants, mut refusals } = choose(registry, args, &selection, cpus.len());
    if !selection.names.is_empty() {
        keep_relevant(&mut refusals, registry, args, !entrants.is_empty());
    }
    check_options_apply(args, &entrants)?;
    if entrants.is_empty() {
        return Err(nothing_to_measure(&refusals));
    }
    let ProfileScale { window, rounds, max_cases } = scale(args.profile, suite);
    if entrants.len() > max_cases {
        let or_allocator = if args.allocator.len() > 1 { ", one --allocator" } else { "" };
        bail!(
            "{} cases are too many for profile {}, which has at most {max_cases}: choose fewer values or mechanisms{or_allocator}, or a larger --profile",
            entrants.len(),
            args.profile
        );
    }
    let window = args.window.map_or(window, time_window);
    if matches!(window, Window::Count { .. }) && entrants.iter().any(|entrant| entrant.case.pattern.consumers_compete())
    {
        bail!(
            "this --profile measures a fixed number of messages, which patterns with competing consumers (mpmc) cannot do, as no consumer knows its share: choose another --profile, or give a --window"
        );
    }
    Ok(Plan {
        window,
        rounds: args.rounds.unwrap_or(rounds),
        precision: precision(args),
        seed: args.seed.unwrap_or_else(random_seed),
        entrants,
        refusals,
        cpus,
        slice: match args.slice {
            Slice::Off => None,
            Slice::Of(slice) => Some(slice),
        },
        timeout: args.timeout,
        count_timeout: COUNT_TIMEOUT,
        other_host: None,
    })
}

/// Checks the options of a measurement between two hosts, and selects its suite.
///
/// # Errors
/// If they contradict each other, or what the user named cannot be measured between hosts.
fn check_hosts(registry: &Registry, args: &Bench, selection: &mut Selection) -> Result<()> {
    let Some(target) = &args.hosts.to else {
        return hosts::check_place(&args.place);
    };
    if let Some(place) = args.place.iter().find(|place| **place != Place::OtherHost) {
        bail!(
            "--place {place} is for ends on one host: leave it out with --to, which means --place {}",
            Place::OtherHost
        );
    }
    if matches!(target, Target::Tcp(_)) && (args.hosts.peer_command.is_some() || args.hosts.peer_address.is_some()) {
        bail!("--peer-command and --peer-address are for --to ssh://: at a peer that listens, give --address there");
    }
    if !args.allocator.is_empty() {
        bail!("--allocator is for mechanisms on one host: leave it out with --to");
    }
    if matches!(target, Target::Ssh(_)) && args.hosts.token_file.is_some() {
        bail!("--token-file is for --to tcp://: ssh has its own keys");
    }
    let is_network = |name: &String| registry.get(name).is_some_and(|entry| entry.spec().scope == Scope::Network);
    if let Some(name) = selection.names.iter().find(|name| !is_network(name)) {
        bail!(
            "{name} does not cross to another host: with --to, name the suite {} or mechanisms network/*",
            Suite::Net
        );
    }
    if args.what.is_empty() || !selection.names.is_empty() {
        selection.suites = vec![Suite::Net];
    }
    match &*selection.suites {
        [Suite::Net] => Ok(()),
        suites => {
            bail!("the suite {} does not cross to another host: with --to, name the suite {}", suites[0], Suite::Net)
        }
    }
}

/// Returns when a run goes on after its planned rounds, and until when.
fn precision(args: &Bench) -> Option<Precision> {
    if let Some(budget) = args.until_decided {
        return Some(Precision { resolution: SHOWN_DIFFERENCE.ln_1p(), max_rounds: MAX_ROUNDS, budget });
    }
    let is_as_planned = args.rounds.is_none() && args.window.is_none();
    (args.profile == Profile::Quick && is_as_planned).then_some(Precision {
        resolution: QUICK_DIFFERENCE.ln_1p(),
        max_rounds: QUICK_MAX_ROUNDS,
        budget: QUICK_BUDGET,
    })
}

/// The entrants of a run, and the suite that they belong to.
struct Chosen {
    /// `None` if no suite has an entrant.
    suite: Option<Suite>,
    entrants: Vec<Entrant>,
    refusals: Vec<Refusal>,
}

/// Chooses the entrants. Mechanisms that are named without a suite run in the first suite that has
/// cells for them.
fn choose(registry: &Registry, args: &Bench, selection: &Selection, cores: usize) -> Chosen {
    let mut refusals = Vec::new();
    for &suite in &selection.suites {
        let axes = axes(suite, args);
        let cells = cells(suite, args, &axes, cores, !selection.names.is_empty());
        let wants = |entry: &dyn Entry, cell: &Cell| selection.wants(suite, args.profile, entry, cell, &axes);
        let (entrants, refused) = combine(registry, &cells, wants, cores);
        if !entrants.is_empty() {
            return Chosen { suite: Some(suite), entrants, refusals: refused };
        }
        refusals.extend(refused);
    }
    Chosen { suite: None, entrants: Vec::new(), refusals }
}

/// Keeps the refusals of mechanisms that the user named if they concern an option that the user
/// gave. If none does and nothing can run, all are kept.
fn keep_relevant(refusals: &mut Vec<Refusal>, registry: &Registry, args: &Bench, can_run: bool) {
    let is_relevant = |refusal: &Refusal| {
        let cell = &refusal.case.cell;
        let spec = registry.get(&refusal.case.mechanism).map(|entry| entry.spec());
        let fits_wait = !args.wait.is_empty() || spec.is_some_and(|spec| spec.waits.contains(&cell.wait));
        let fits_payload = args.payload.is_some() || cell.payload.kind() != PayloadKind::Message;
        fits_wait && fits_payload
    };
    if can_run || refusals.iter().any(is_relevant) {
        refusals.retain(is_relevant);
    }
}

/// The error for a run without entrants.
fn nothing_to_measure(refusals: &[Refusal]) -> anyhow::Error {
    let mut reasons: Vec<String> =
        refusals.iter().map(|refusal| format!("{}: {}", refusal.case.mechanism, refusal.why)).collect();
    reasons.sort();
    reasons.dedup();
    reasons.truncate(12);
    if reasons.is_empty() {
        return anyhow!("nothing to measure: no suite has a cell for these options");
    }
    anyhow!("nothing to measure; no mechanism can do what was asked for:\n  {}", reasons.join("\n  "))
}

/// How much a profile measures.
struct ProfileScale {
    window: Window,
    rounds: usize,
    /// The maximum number of cases.
    max_cases: usize,
}

/// Returns how much a profile measures in a suite.
fn scale(profile: Profile, suite: Option<Suite>) -> ProfileScale {
    let (window, rounds, max_cases) = match profile {
        Profile::Quick => (time_window(30_000_000), 9, 80),
        Profile::Standard => (time_window(250_000_000), 12, 320),
        // The slowest of these rows takes a thousand times as long as the fastest.
        Profile::Full if suite == Some(Suite::IpcTyped) => (time_window(1_000_000_000), 12, 10_000),
        // A number of round trips that is common for such benchmarks.
        Profile::Full if suite == Some(Suite::Ipc) => (Window::Count { warmup: 1_000, messages: 10_000 }, 6, 10_000),
        // The number of messages that the reference sends.
        Profile::Full if suite == Some(Suite::Flow) => {
            (Window::Count { warmup: 10_000, messages: 1_000_000 }, 6, 10_000)
        }
        Profile::Full => (Window::Count { warmup: 65_536, messages: 1 << 20 }, 6, 10_000),
    };
    ProfileScale { window, rounds, max_cases }
}

/// Returns an error for options that have no effect on these entrants.
fn check_options_apply(args: &Bench, entrants: &[Entrant]) -> Result<()> {
    // Without entrants, the error about them is more useful.
    let any = |of: fn(&Cell) -> bool| entrants.is_empty() || entrants.iter().any(|entrant| of(&entrant.case.cell));
    if !args.producers.is_empty() && !any(|cell| cell.pattern.has_several_parties()) {
        bail!(
            "--producers (or --clients, --subscribers) is for patterns with several: add --pattern fan-in, writers, connections, request-reply, pub-sub, merge or mpmc"
        );
    }
    if !args.load.is_empty() && !any(|cell| !cell.pattern.is_round_trip()) {
        bail!("--load is not for ping-pong, which sends one message at a time: add --pattern stream or fan-in");
    }
    if !args.arrivals.is_empty() && !any(|cell| cell.load.rate().is_some()) {
        bail!("--arrivals says when the messages of a rate are due: add one, such as --load 10k/s");
    }
    let is_variant = |entrant: &Entrant| variant_name(&entrant.case.mechanism).is_some();
    if args.allocator.len() > 1 && !entrants.is_empty() && !entrants.iter().any(is_variant) {
        bail!(
            "no row for a second allocator: references, baselines and programs of their own have one row; name other mechanisms, or give one --allocator"
        );
    }
    let has_only_pipelines = !any(|cell| !cell.pattern.is_pipeline());
    for (option, is_given) in [("--wait", !args.wait.is_empty()), ("--capacity", !args.capacity.is_empty())] {
        if is_given && has_only_pipelines {
            bail!(
                "{option} is not for pipelines, whose functions and topics are as the pattern has them: leave it out"
            );
        }
    }
    if let (Some(kind @ (PayloadKind::None | PayloadKind::U64 | PayloadKind::Inline)), false) =
        (args.payload, args.size.is_empty())
    {
        bail!("--size is not for --payload {kind}, which has a size of its own: leave one of them out");
    }
    Ok(())
}

/// The suites and mechanisms that the user named.
struct Selection {
    /// The named suite; all suites in their order if only mechanisms were named.
    suites: Vec<Suite>,
    /// The named mechanisms; if empty, the suite selects them.
    names: Vec<String>,
}

impl Selection {
    fn wants(&self, suite: Suite, profile: Profile, entry: &dyn Entry, cell: &Cell, axes: &Axes) -> bool {
        let spec = entry.spec();
        match &*self.names {
            [] => suite.includes(profile, cell, spec, axes),
            names => names.iter().any(|name| *name == spec.name || name == plain_name(&spec.name)),
        }
    }
}

fn select(registry: &Registry, what: &[String]) -> Result<Selection> {
    let (mut suites, mut names) = (Vec::new(), Vec::new());
    for pattern in what {
        if !pattern.contains(['/', '*', '?']) {
            let unknown = |error| {
                let near = registry.nearest(pattern);
                anyhow!("{error}{near}; a mechanism is named scope/name, see `estafette list`")
            };
            suites.push(pattern.parse::<Suite>().map_err(unknown)?);
            continue;
        }
        let found: Vec<_> =
            registry.matching(pattern).map_err(with_peers)?.into_iter().map(|entry| entry.spec()).collect();
        // Baselines are selected only if a pattern matches nothing else.
        let only_baselines = found.iter().all(|spec| spec.standing == Standing::Baseline);
        let selected = found.into_iter().filter(|spec| only_baselines || spec.standing != Standing::Baseline);
        names.extend(selected.map(|spec| spec.name.clone()));
    }
    match (&*suites, &*names) {
        ([], []) => suites.push(Suite::Overview),
        ([], _) => suites.extend(Suite::ALL),
        ([_], _) => {}
        _ => bail!("{} suites at once: name one", suites.len()),
    }
    Ok(Selection { suites, names })
}

/// Returns the values that replace a suite's own.
fn axes(suite: Suite, args: &Bench) -> Axes {
    let sized = |of: fn(usize) -> Payload| match &*args.size {
        [] => vec![of(SHARED_LEN)],
        sizes => sizes.iter().map(|size| of(size.len())).collect(),
    };
    let messages = || args.size.iter().map(|size| Payload::Message(size.len())).collect();
    let payloads = match args.payload {
        Some(PayloadKind::Message) => messages(),
        None if suite == Suite::IpcTyped => messages(),
        Some(PayloadKind::None) => vec![Payload::None],
        Some(PayloadKind::U64) => vec![Payload::U64],
        Some(PayloadKind::Inline) => vec![Payload::Inline],
        Some(PayloadKind::Shared) => sized(Payload::Shared),
        Some(PayloadKind::Unread) => sized(Payload::Unread),
        Some(PayloadKind::Bytes) | None => args.size.clone(),
    };
    Axes {
        patterns: args.pattern.clone(),
        payloads,
        producers: args.producers.clone(),
        capacities: args.capacity.clone(),
        runtimes: args.runtime.clone(),
        waits: args.wait.clone(),
        places: if args.hosts.to.is_some() { vec![Place::OtherHost] } else { args.place.clone() },
        loads: args.load.clone(),
        arrivals: args.arrivals.clone(),
    }
}

/// Returns the cells of a suite with the user's values.
fn cells(suite: Suite, args: &Bench, axes: &Axes, cores: usize, is_named: bool) -> Vec<Cell> {
    let mut suite = suite.cells(args.profile);
    if is_named {
        // The suites do not measure blocking between threads, but a named mechanism may support it.
        let threads: Vec<Cell> = suite.iter().filter(|cell| cell.scope == Scope::Thread).cloned().collect();
        let blocking = threads.into_iter().map(|cell| Cell { wait: Wait::Block, ..cell });
        for cell in blocking {
            if !suite.contains(&cell) {
                suite.push(cell);
            }
        }
    }
    if cores < 2 {
        // Both ends share the only core. Spinning there is refused, so such cells are not moved.
        for cell in suite.iter_mut().filter(|cell| cell.place == Place::OtherCore && cell.wait != Wait::Spin) {
            cell.place = Place::SameCore;
        }
    }
    if args.hosts.to.is_some() {
        // What the user asks for stays, and the reason is printed why it cannot be measured.
        suite.retain(|cell| !args.pattern.is_empty() || cell.pattern.is_between_hosts());
        suite.retain(|cell| !args.load.is_empty() || cell.load == Load::Saturated);
    }
    let mut cells = suite::replace(suite, axes);
    if let Some(kind) = args.payload {
        cells.retain(|cell| cell.payload.kind() == kind);
    }
    cells
}

/// The default length of shared messages in bytes.
const SHARED_LEN: usize = 1200;
