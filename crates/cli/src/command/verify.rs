//! `verify`: runs every kind of case that a mechanism says it can run, for a moment each, and says whether it keeps its promises.

use std::time::Duration;

use anyhow::{Context, Result};
use estafette_measure::admission::{RefusalKind, can_run};
use estafette_measure::case::{Case, Cell};
use estafette_measure::coordinator::{FailureKind, Interrupt, Scratch};
use estafette_measure::entry::Entry;
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan};
use estafette_measure::run::{self, Observer as _};
use estafette_measure::window::Window;
use estafette_measure::{Registry, conformance};
use serde::Serialize;

use crate::args::Verify;
use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::{print, print_json, tell, with_peers};

/// The windows of a case: a longer one follows if no message arrives within the first.
const WINDOWS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result", content = "why")]
enum Verdict {
    /// Every message arrived as promised.
    Kept,
    /// The case cannot run.
    Refused(String),
    /// A promise was broken.
    Broken(String),
    /// The instance failed.
    Failed(String),
}

/// A case and what came of it.
#[derive(Debug, Serialize)]
struct Verified {
    mechanism: String,
    cell: Cell,
    #[serde(flatten)]
    verdict: Verdict,
}

/// Runs `verify`.
pub(crate) fn run(registry: &Registry, args: &Verify) -> Result<Exit> {
    let cpus = available_cpus();
    let mut cases = Vec::new();
    for what in &args.what {
        for entry in registry.matching(what).map_err(with_peers)? {
            let name = &entry.spec().name;
            let is_new = !cases.iter().any(|(known, _): &(_, Cell)| known == name);
            let cells = conformance::cells(entry.spec()).into_iter().filter(|_| is_new);
            cases.extend(cells.map(|cell| (name.clone(), cell)));
        }
    }
    let mut interrupt = Interrupt::install().context("cannot listen for Ctrl-C")?;
    let mut scratch = Scratch::new()?;
    let mut progress = Progress::new(None);
    progress.begin();
    let mut verified = Vec::new();
    let count = cases.len();
    for (done, (mechanism, cell)) in cases.into_iter().enumerate() {
        let entry = registry.get(&mechanism).with_context(|| format!("no mechanism `{mechanism}`"))?;
        let case = Case { mechanism, cell };
        let entrant = Entrant::new(case, false);
        progress.instance(done, count, &entrant);
        let Some(verdict) =
            verify(registry, entry.as_ref(), &entrant, &cpus, args.timeout, (&mut scratch, &mut interrupt))?
        else {
            progress.finish();
            return Ok(Exit::Interrupted);
        };
        let Case { mechanism, cell } = entrant.case;
        if let Verdict::Broken(why) | Verdict::Failed(why) = &verdict {
            progress.say(&format!("{mechanism} in {cell}: {why}"));
        }
        verified.push(Verified { mechanism, cell, verdict });
    }
    progress.finish();
    if args.json {
        print_json(&verified)?
    } else {
        print(&report(&verified))?
    }
    Ok(exit(&verified))
}

/// The exit code: a broken promise outranks a failure.
fn exit(verified: &[Verified]) -> Exit {
    let any = |of: fn(&Verdict) -> bool| verified.iter().any(|one| of(&one.verdict));
    if any(|verdict| matches!(verdict, Verdict::Broken(_))) {
        Exit::Breach
    } else if any(|verdict| matches!(verdict, Verdict::Failed(_))) || !any(|verdict| *verdict == Verdict::Kept) {
        if !any(|verdict| *verdict == Verdict::Kept) {
            tell("estafette: no case was run: nothing is verified");
        }
        Exit::Usage
    } else {
        Exit::Fine
    }
}

/// Runs one case. `None` if the user interrupts it.
fn verify(
    registry: &Registry,
    entry: &dyn Entry,
    entrant: &Entrant,
    cpus: &[usize],
    timeout: Duration,
    (scratch, interrupt): (&mut Scratch, &mut Interrupt),
) -> Result<Option<Verdict>> {
    if let Err(inadmissible) = can_run(entry, &entrant.case, cpus.len()) {
        let is_missing = inadmissible.kind == RefusalKind::Machine;
        let why = inadmissible.reason;
        return Ok(Some(Verdict::Refused(if is_missing { format!("not available here: {why}") } else { why })));
    }
    let mut failure = String::new();
    for window in WINDOWS {
        let plan = Plan {
            window: Window::Time { warmup_ns: 1_000_000, measure_ns: window.as_nanos() as u64 },
            rounds: 1,
            precision: None,
            seed: fastrand::u64(..1 << 53),
            entrants: vec![entrant.clone()],
            refusals: Vec::new(),
            cpus: cpus.to_vec(),
            slice: None,
            timeout,
            count_timeout: COUNT_TIMEOUT,
        };
        match run::instance(registry, &plan, entrant, plan.seed, scratch, interrupt)? {
            Ok(figures) if figures.messages == 0 && figures.breach.is_none() => {
                failure = figures.discarded.unwrap_or_default();
            }
            Ok(figures) => return Ok(Some(figures.breach.map_or(Verdict::Kept, Verdict::Broken))),
            Err(failure) if failure.kind == FailureKind::Interrupted => return Ok(None),
            Err(empty) if empty.kind == FailureKind::Empty => failure = empty.text,
            Err(failure) => return Ok(Some(Verdict::Failed(failure.text))),
        }
    }
    Ok(Some(Verdict::Failed(failure)))
}

/// A line for each mechanism, then what did not go well, and why cases were refused.
fn report(verified: &[Verified]) -> String {
    let mut names: Vec<&str> = verified.iter().map(|one| &*one.mechanism).collect();
    names.dedup();
    let rows: Vec<Vec<String>> = names
        .iter()
        .map(|name| {
            let count = |of: fn(&Verdict) -> bool| {
                verified.iter().filter(|one| one.mechanism == *name && of(&one.verdict)).count()
            };
            let kept = count(|verdict| *verdict == Verdict::Kept);
            let broken = count(|verdict| matches!(verdict, Verdict::Broken(_)));
            let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
            let refused = count(|verdict| matches!(verdict, Verdict::Refused(_)));
            let mut row = vec![(*name).to_owned()];
            row.extend([kept, broken, failed, refused].map(|count| count.to_string()));
            row
        })
        .collect();
    let mut text = columns(
        &["mechanism", "kept its promises", "broke one", "failed", "refused"],
        &[Left, Right, Right, Right, Right],
        &rows,
    );
    for one in verified {
        if let Verdict::Broken(why) | Verdict::Failed(why) = &one.verdict {
            text.push('\n');
            text.push_str(&wrapped("", &format!("{} in {}: {}", one.mechanism, one.cell, plain(why))));
        }
    }
    let mut reasons: Vec<&str> = Vec::new();
    for one in verified {
        if let Verdict::Refused(why) = &one.verdict
            && !reasons.contains(&&**why)
        {
            reasons.push(why);
        }
    }
    if !reasons.is_empty() {
        text.push_str("\nRefused cases:\n");
        reasons.iter().for_each(|why| text.push_str(&wrapped("  ", &plain(why))));
    }
    text
}
