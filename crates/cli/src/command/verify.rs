//! `verify`: runs every kind of case that a mechanism says it can run, for a moment each, and says
//! whether it keeps its promises.

use std::time::Duration;

use anyhow::{Context, Result};
use estafette_measure::admission::can_run;
use estafette_measure::case::{Case, Cell};
use estafette_measure::coordinator::{FailureKind, Interrupt, Scratch};
use estafette_measure::limits::available_cpus;
use estafette_measure::plan::{COUNT_TIMEOUT, Entrant, Plan};
use estafette_measure::record::Figures;
use estafette_measure::refusal::{Inadmissible, RefusalKind};
use estafette_measure::run::{self, Observer as _};
use estafette_measure::window::Window;
use estafette_measure::{Registry, conformance};
use serde::Serialize;

use crate::args::Verify;
use crate::build_features::with_peers;
use crate::columns::{Left, Right, columns, plain, wrapped};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::table::{by_reason, grouped_by_family};
use crate::terminal::{print, print_json, report_to_stderr};

/// The windows of a case: a longer one follows if no message arrives within the first.
const WINDOWS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "result", content = "why")]
enum VerifyVerdict {
    /// Every message arrived as promised.
    Kept,
    /// The case cannot run.
    Refused(String),
    /// The hypervisor took the time of every attempt.
    Inconclusive(String),
    /// A promise was broken.
    Broken(String),
    /// The instance failed.
    Failed(String),
}

/// A case and its result.
#[derive(Debug, Serialize)]
struct Verified {
    mechanism: String,
    cell: Cell,
    /// The seed of the messages.
    seed: u64,
    #[serde(flatten)]
    verdict: VerifyVerdict,
}

/// Runs `verify`.
pub(crate) fn run(registry: &Registry, args: &Verify) -> Result<Exit> {
    let cases = cases(registry, &args.what)?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 53));
    let mut verifier = Verifier {
        registry,
        cpus: available_cpus(),
        seed,
        timeout: args.timeout,
        interrupt: Interrupt::install().context("cannot listen for Ctrl-C")?,
        scratch: Scratch::new()?,
    };
    let mut progress = Progress::plain();
    progress.begin();
    let (mut verified, mut is_interrupted) = (Vec::new(), false);
    let count = cases.len();
    for (done, case) in cases.into_iter().enumerate() {
        let entrant = Entrant::new(case, false);
        progress.instance_starts(done, count, &entrant);
        let Some(verdict) = verifier.verify(&entrant)? else {
            is_interrupted = true;
            break;
        };
        let Case { mechanism, cell } = entrant.case;
        if let VerifyVerdict::Broken(why) | VerifyVerdict::Failed(why) | VerifyVerdict::Inconclusive(why) = &verdict {
            progress.message(&format!("{mechanism} in {cell}: {why}"));
        }
        verified.push(Verified { mechanism, cell, seed, verdict });
    }
    progress.finish();
    if args.json {
        print_json(&verified)?
    } else {
        print(&report(&verified, seed))?
    }
    if is_interrupted {
        report_to_stderr(&format!("interrupted: {} of {count} cases were verified", verified.len()));
    }
    let not_run: Vec<&str> = names(&verified).into_iter().filter(|name| !was_run(&verified, name)).collect();
    if !not_run.is_empty() && !is_interrupted {
        report_to_stderr(&format!(
            "warning: no case was run of {}: nothing is verified of it",
            grouped_by_family(&not_run)
        ));
    }
    Ok(exit(&verified, is_interrupted))
}

/// The cases of all mechanisms that these names or patterns select.
fn cases(registry: &Registry, what: &[String]) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    for what in what {
        for entry in registry.matching(what).map_err(with_peers)? {
            let mechanism = &entry.spec().name;
            if cases.iter().any(|case| case.mechanism == *mechanism) {
                continue;
            }
            let cells = conformance::cells(entry.spec());
            cases.extend(cells.into_iter().map(|cell| Case { mechanism: mechanism.clone(), cell }));
        }
    }
    Ok(cases)
}

/// The names of the mechanisms, each once.
fn names(verified: &[Verified]) -> Vec<&str> {
    let mut names: Vec<&str> = verified.iter().map(|one| &*one.mechanism).collect();
    names.dedup();
    names
}

/// Whether any case of a mechanism was run.
fn was_run(verified: &[Verified], mechanism: &str) -> bool {
    verified.iter().any(|one| one.mechanism == mechanism && !matches!(one.verdict, VerifyVerdict::Refused(_)))
}

/// The exit code: a broken promise outranks an interrupt, and both outrank a failure.
fn exit(verified: &[Verified], is_interrupted: bool) -> Exit {
    let any = |of: fn(&VerifyVerdict) -> bool| verified.iter().any(|one| of(&one.verdict));
    if any(|verdict| matches!(verdict, VerifyVerdict::Broken(_))) {
        Exit::Breach
    } else if is_interrupted {
        Exit::Interrupted
    } else if any(|verdict| matches!(verdict, VerifyVerdict::Failed(_) | VerifyVerdict::Inconclusive(_)))
        || !any(|verdict| *verdict == VerifyVerdict::Kept)
    {
        Exit::Usage
    } else {
        Exit::Fine
    }
}

/// Runs cases one after the other.
struct Verifier<'a> {
    registry: &'a Registry,
    cpus: Vec<usize>,
    seed: u64,
    timeout: Duration,
    interrupt: Interrupt,
    scratch: Scratch,
}

impl Verifier<'_> {
    /// Runs one case. `None` if the user interrupts it.
    fn verify(&mut self, entrant: &Entrant) -> Result<Option<VerifyVerdict>> {
        let mechanism = &entrant.case.mechanism;
        let entry = self.registry.get(mechanism).with_context(|| format!("no mechanism `{mechanism}`"))?;
        if let Err(Inadmissible { kind, why }) = can_run(entry.as_ref(), &entrant.case, self.cpus.len()) {
            let is_missing = kind == RefusalKind::Machine;
            return Ok(Some(VerifyVerdict::Refused(if is_missing {
                format!("not available here: {why}")
            } else {
                why
            })));
        }
        let mut verdict = VerifyVerdict::Kept;
        for window in WINDOWS {
            let plan = self.plan(entrant, window);
            let Verifier { registry, seed, scratch, interrupt, .. } = self;
            verdict = match run::run_instance(registry, &plan, entrant, *seed, scratch, interrupt)? {
                Ok(Figures { breach: Some(breach), .. }) => return Ok(Some(VerifyVerdict::Broken(breach.to_string()))),
                Ok(Figures { messages: 0, discarded, .. }) => {
                    VerifyVerdict::Inconclusive(discarded.map(|why| why.to_string()).unwrap_or_default())
                }
                Ok(_) => return Ok(Some(VerifyVerdict::Kept)),
                Err(failure) if failure.kind == FailureKind::Interrupted => return Ok(None),
                Err(failure) if failure.kind == FailureKind::Empty => VerifyVerdict::Failed(failure.text),
                Err(failure) => return Ok(Some(VerifyVerdict::Failed(failure.text))),
            };
        }
        Ok(Some(verdict))
    }

    fn plan(&self, entrant: &Entrant, window: Duration) -> Plan {
        Plan {
            window: Window::Time { warmup_ns: 1_000_000, measure_ns: window.as_nanos() as u64 },
            rounds: 1,
            precision: None,
            seed: self.seed,
            entrants: vec![entrant.clone()],
            refusals: Vec::new(),
            cpus: self.cpus.clone(),
            slice: None,
            timeout: self.timeout,
            count_timeout: COUNT_TIMEOUT,
            other_host: None,
        }
    }
}

/// A line for each mechanism, then what did not go well, and why cases were refused.
fn report(verified: &[Verified], seed: u64) -> String {
    let rows: Vec<Vec<String>> = names(verified)
        .into_iter()
        .map(|name| {
            let count = |of: fn(&VerifyVerdict) -> bool| {
                verified.iter().filter(|one| one.mechanism == name && of(&one.verdict)).count().to_string()
            };
            vec![
                name.to_owned(),
                count(|verdict| *verdict == VerifyVerdict::Kept),
                count(|verdict| matches!(verdict, VerifyVerdict::Broken(_))),
                count(|verdict| matches!(verdict, VerifyVerdict::Failed(_) | VerifyVerdict::Inconclusive(_))),
                count(|verdict| matches!(verdict, VerifyVerdict::Refused(_))),
            ]
        })
        .collect();
    let mut text = columns(
        &["mechanism", "kept its promises", "broke one", "failed", "refused"],
        &[Left, Right, Right, Right, Right],
        &rows,
    );
    let mut is_bad = false;
    for one in verified {
        if let VerifyVerdict::Broken(why) | VerifyVerdict::Failed(why) | VerifyVerdict::Inconclusive(why) = &one.verdict
        {
            text.push('\n');
            text.push_str(&wrapped("", &format!("{} in {}: {}", one.mechanism, one.cell, plain(why))));
            is_bad = true;
        }
    }
    if is_bad {
        text.push_str(&format!("\nTo repeat with the same messages: --seed {seed}\n"));
    }
    let refused = verified.iter().filter_map(|one| match &one.verdict {
        VerifyVerdict::Refused(why) => Some((&*one.mechanism, &**why)),
        _ => None,
    });
    let refused = by_reason(refused);
    if !refused.is_empty() {
        text.push_str("\nRefused in some cases:\n");
        text.push_str(&refused);
    }
    text
}
