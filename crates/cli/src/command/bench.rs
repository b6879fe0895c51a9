//! `bench`: plan, limits, rounds, record, tables.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use estafette_measure::case::{Cell, Payload, PayloadKind, Place};
use estafette_measure::coordinator::{Interrupt, Scratch};
use estafette_measure::entry::Entry;
use estafette_measure::limits::{self, available_cpus};
use estafette_measure::plan::{COUNT_TIMEOUT, Plan, enter};
use estafette_measure::record::{Outcome, Record};
use estafette_measure::run::{self, End};
use estafette_measure::spec::{Standing, Wait};
use estafette_measure::suite::{self, Axes, Profile, SUITES};
use estafette_measure::window::Window;
use estafette_measure::{Registry, ranking};

use crate::args::Bench;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::{print, print_json, summary, table, tell};

const NOTHING_RECORDED: &str = "interrupted before the first round was complete: nothing is recorded";

/// Runs `bench`.
pub(crate) fn run(registry: &Registry, args: &Bench) -> Result<Exit> {
    let plan = plan(registry, args)?;
    let mut interrupt = Interrupt::install().context("cannot listen for Ctrl-C")?;
    let mut scratch = Scratch::new()?;
    let files = Files::open(&args.out)?;
    let mut progress = Progress::new(Some(files.record.clone()));
    let Some(limits) = progress.limits(&plan.cpus, limits::DEFAULT_BUDGET, &mut interrupt)? else {
        tell(NOTHING_RECORDED);
        return Ok(Exit::Interrupted);
    };
    let mut record = run::blank(registry, &plan, Some(limits));
    progress.begin();
    let end = run::run(registry, &plan, &mut record, &mut scratch, &mut interrupt, &mut progress);
    progress.finish();
    let end = end?;
    let exit = exit(&record);
    if record.rounds > 0 {
        let said = files.finish(&record).and_then(|()| report(&record, args.json));
        match said {
            // What was lost weighs more than what could not be said of it.
            Err(error) if exit == Exit::Breach => tell(&format!("error: {error:#}")),
            said => said?,
        }
        if !args.json {
            tell(&format!("record: {}", files.record.display()));
        }
    }
    match end {
        End::Complete => return Ok(exit),
        End::Interrupted if record.rounds > 0 => {
            tell(&format!("interrupted after {} of {} rounds", record.rounds, record.rounds_planned));
        }
        End::Interrupted => tell(NOTHING_RECORDED),
    }
    Ok(if exit == Exit::Breach { exit } else { Exit::Interrupted })
}

fn report(record: &Record, json: bool) -> Result<()> {
    if json {
        return print_json(record);
    }
    let rankings = ranking::rank(record);
    let mut text = String::new();
    for ranking in &rankings {
        text.push_str(&table::ranking(ranking));
        text.push('\n');
    }
    text.push_str(&table::refusals(record));
    text.push_str(&summary::sentences(record, &rankings));
    print(&text)
}

/// The gravest of what happened.
fn exit(record: &Record) -> Exit {
    let outcomes = || record.instances.iter().map(|instance| &instance.outcome);
    if outcomes().any(|outcome| matches!(outcome, Outcome::Measured(figures) if figures.breach.is_some())) {
        Exit::Breach
    } else if outcomes().any(|outcome| matches!(outcome, Outcome::Failed { .. })) {
        Exit::Usage
    } else {
        Exit::Fine
    }
}

/// What the arguments ask for.
fn plan(registry: &Registry, args: &Bench) -> Result<Plan> {
    let selection = select(registry, &args.what)?;
    let cpus = available_cpus();
    let cells = cells(args, cpus.len());
    let (entrants, refusals) = enter(registry, &cells, |entry| selection.wants(entry), cpus.len());
    if entrants.is_empty() {
        let mut reasons: Vec<String> =
            refusals.iter().map(|refusal| format!("{}: {}", refusal.case.mechanism, refusal.why)).collect();
        reasons.sort();
        reasons.dedup();
        reasons.truncate(12);
        if reasons.is_empty() {
            bail!("nothing to measure: no suite has a cell for these options");
        }
        bail!("nothing to measure; no mechanism can do what was asked for:\n  {}", reasons.join("\n  "));
    }
    let (window, rounds, most) = match args.profile {
        Profile::Quick => (time(100_000_000), 6, 45),
        Profile::Standard => (time(250_000_000), 12, 300),
        Profile::Full => (Window::Count { warmup: 65_536, messages: 1 << 20 }, 12, 10_000),
    };
    if entrants.len() > most {
        bail!(
            "{} cases are too many for profile {}, which has at most {most}: choose fewer values or mechanisms, or a larger --profile",
            entrants.len(),
            args.profile
        );
    }
    // Below 2^53, as JSON numbers are exact up to there.
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 53));
    Ok(Plan {
        window: args.window.map_or(window, time),
        rounds: args.rounds.unwrap_or(rounds),
        seed,
        entrants,
        refusals,
        cpus,
        timeout: args.timeout,
        count_timeout: COUNT_TIMEOUT,
    })
}

/// A window of this length after a warm-up: of half the length in a short one, of 100 ms in a long one.
fn time(measure_ns: u64) -> Window {
    Window::Time { warmup_ns: (measure_ns / 2).min(100_000_000), measure_ns }
}

/// The mechanisms that were named; all candidates and limits where none was.
struct Selection(Vec<String>);

impl Selection {
    fn wants(&self, entry: &dyn Entry) -> bool {
        let spec = entry.spec();
        // Baselines check the instrument: they run when they are asked for by name.
        if self.0.is_empty() { spec.standing != Standing::Baseline } else { self.0.contains(&spec.name) }
    }
}

fn select(registry: &Registry, what: &[String]) -> Result<Selection> {
    let mut names = Vec::new();
    for pattern in what.iter().filter(|word| !SUITES.contains(&word.as_str())) {
        if !pattern.contains(['/', '*', '?']) {
            bail!(
                "unknown suite `{pattern}`; suites: {}; a mechanism is named scope/name, see `estafette list`",
                SUITES.join(", ")
            );
        }
        let found: Vec<_> =
            registry.matching(pattern).map_err(anyhow::Error::msg)?.into_iter().map(|entry| entry.spec()).collect();
        // Baselines come along only where a pattern means nothing else.
        let only = found.iter().all(|spec| spec.standing == Standing::Baseline);
        let meant = found.into_iter().filter(|spec| only || spec.standing != Standing::Baseline);
        names.extend(meant.map(|spec| spec.name.clone()));
    }
    let suites = what.iter().any(|word| SUITES.contains(&word.as_str()));
    Ok(Selection(if suites { Vec::new() } else { names }))
}

fn cells(args: &Bench, cores: usize) -> Vec<Cell> {
    let mut payloads = args.size.clone();
    if args.payload == Some(PayloadKind::U64) {
        payloads.push(Payload::U64);
    }
    let axes = Axes {
        patterns: args.pattern.clone(),
        payloads,
        producers: args.producers.clone(),
        capacities: args.capacity.clone(),
        runtimes: args.runtime.clone(),
        waits: args.wait.clone(),
        places: args.place.clone(),
    };
    let mut suite = suite::overview(args.profile);
    if cores < 2 {
        // What has no second core to go to. Spinning there is refused.
        for cell in suite.iter_mut().filter(|cell| cell.place == Place::OtherCore && cell.wait != Wait::Spin) {
            cell.place = Place::SameCore;
        }
    }
    let mut cells = suite::replace(suite, &axes);
    if let Some(kind) = args.payload {
        cells.retain(|cell| cell.payload.kind() == kind);
    }
    cells
}

/// Where a run's files go.
struct Files {
    record: PathBuf,
}

impl Files {
    /// Makes the folder and sees that it can be written, before anything is measured.
    fn open(out: &Path) -> Result<Files> {
        let remedy = || format!("cannot write to the folder {}: choose another with --out", out.display());
        fs::create_dir_all(out).with_context(remedy)?;
        // In UTC, and without the colons that some file systems refuse.
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "-");
        let record = out.join(format!("{now}-{}.json", std::process::id()));
        let probe = record.with_extension("json.part");
        fs::write(&probe, "").with_context(remedy)?;
        fs::remove_file(&probe).with_context(remedy)?;
        Ok(Files { record })
    }

    fn finish(&self, record: &Record) -> Result<()> {
        record.save(&self.record)?;
        let csv = self.record.with_extension("csv");
        let file = fs::File::create(&csv).with_context(|| format!("cannot write {}", csv.display()))?;
        record.csv(std::io::BufWriter::new(file))
    }
}
