//! The command `list`: prints the mechanisms, their guarantees and their implementations.

use std::fmt::Display;
use std::sync::Arc;

use anyhow::{Context, Result};
use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};
use estafette_measure::coordinator::{Interrupt, Scratch, capacities};
use estafette_measure::entry::Entry;
use estafette_measure::spec::{Loss, Ordering, Runtime, Spec, Standing, Wait};
use estafette_measure::{Registry, units};
use serde::Serialize;

use crate::args::List;
use crate::build_features::{PEERS, PEERS_LEFT_OUT, with_peers};
use crate::columns::{Left, Right, columns, wrapped};
use crate::exit::Exit;
use crate::terminal::{print, print_json, report_to_stderr};

/// A mechanism in the JSON output.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    spec: Spec,
    /// How to install it, if it is not available.
    unavailable: Option<String>,
    /// How many messages it accepts from one sender while nobody receives, if [`Cell::CAPACITY`] is
    /// requested.
    effective_capacity: Option<u64>,
}

impl Listed {
    /// Returns an entry whose capacity has not been probed.
    fn of(entry: &dyn Entry) -> Listed {
        Listed {
            spec: entry.described(),
            unavailable: entry.mechanism().check_available().err(),
            effective_capacity: None,
        }
    }
}

/// Returns the case with which a mechanism's capacity is probed.
fn case(spec: &Spec) -> Case {
    let cell = Cell {
        scope: spec.scope,
        pattern: Pattern::Stream,
        payload: Payload::U64,
        producers: 1,
        capacity: Cell::CAPACITY,
        runtime: Runtime::Thread,
        wait: Wait::Block,
        place: Place::Free,
        load: Load::Saturated,
    };
    Case { mechanism: spec.name.clone(), cell }
}

/// Runs `list`.
pub(crate) fn run(registry: &Registry, args: &List) -> Result<Exit> {
    let entries = select(registry, &args.what)?;
    let mut interrupt = Interrupt::install().context("cannot listen for Ctrl-C")?;
    let mut listed: Vec<_> = entries.iter().map(|entry| Listed::of(entry.as_ref())).collect();
    // Between processes the capacity depends on the length of the messages.
    let can_be_probed = |listed: &&mut Listed| listed.unavailable.is_none() && listed.spec.scope.in_process();
    let mut available: Vec<_> = listed.iter_mut().filter(can_be_probed).collect();
    let cases: Vec<_> = available.iter().map(|listed| case(&listed.spec)).collect();
    let probed = Scratch::new().and_then(|mut scratch| capacities(&cases, &mut scratch, &mut interrupt));
    let capacities = probed.unwrap_or_else(|error| {
        report_to_stderr(&format!("warning: the capacity of channels could not be probed: {error:#}"));
        Vec::new()
    });
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    for (listed, capacity) in available.iter_mut().zip(capacities) {
        listed.effective_capacity = capacity;
    }
    if args.json {
        print_json(&listed)?;
    } else {
        let mut text = tables(&listed);
        if args.what.is_empty() && PEERS_LEFT_OUT {
            text.push_str(&format!("\n{}", wrapped("", PEERS)));
        }
        print(&text)?;
    }
    Ok(Exit::Fine)
}

/// Returns the selected mechanisms, each once and in the order of registration; all if none is
/// named.
fn select<'a>(registry: &'a Registry, what: &[String]) -> Result<Vec<&'a Arc<dyn Entry>>> {
    let mut wanted = Vec::new();
    for pattern in what {
        let found = registry.matching(pattern).map_err(with_peers)?;
        wanted.extend(found.into_iter().map(|entry| &entry.spec().name));
    }
    Ok(registry.iter().filter(|entry| what.is_empty() || wanted.contains(&&entry.spec().name)).collect())
}

fn tables(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return String::from("this program contains no mechanisms\n");
    }
    let headers = ["mechanism", "waits", "class", "order", "patterns"];
    let promises: Vec<_> = listed.iter().map(|listed| promises(&listed.spec)).collect();
    let implementation: Vec<_> = listed.iter().map(implementation).collect();
    format!(
        "{}\n{}{}",
        columns(&headers, &[], &promises),
        columns(&["mechanism", "version", "runtime", "implementation"], &[], &implementation),
        channels(listed)
    )
}

/// A table of what is known of channels only: their probed capacity, and the effect of dropping a
/// receive.
fn channels(listed: &[Listed]) -> String {
    let rows: Vec<_> = listed
        .iter()
        .filter_map(|listed| {
            let capacity = listed.effective_capacity?;
            let cancel = match listed.spec.patterns.contains(&Pattern::Cancel) {
                true => listed.spec.cancel.to_string(),
                false => String::from("-"),
            };
            Some(vec![listed.spec.name.clone(), units::grouped(capacity), cancel])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let requested = format!("probed capacity, {} requested", units::grouped(Cell::CAPACITY as u64));
    format!("\n{}", columns(&["mechanism", &requested, "dropped receives, as documented"], &[Left, Right, Left], &rows))
}

/// Returns a row of the first table.
fn promises(spec: &Spec) -> Vec<String> {
    let order = match spec.ordering {
        Ordering::Strict => "strict",
        Ordering::PerProducer => "producer",
        Ordering::Unordered => "none",
    };
    let loss = if spec.loss == Loss::BestEffort { ", lossy" } else { "" };
    vec![
        spec.name.clone(),
        joined(&spec.waits),
        spec.ownership.to_string(),
        format!("{order}{loss}"),
        spec.patterns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    ]
}

fn implementation(Listed { spec, unavailable, .. }: &Listed) -> Vec<String> {
    let label = match spec.standing {
        Standing::Candidate => "",
        Standing::Reference => " (reference)",
        Standing::Baseline => " (baseline, runs only if named)",
    };
    let runtimes = match spec.runtimes.as_slice() {
        some if some.iter().all(|runtime| Runtime::TASKS.contains(runtime)) => String::from("tokio"),
        some => joined(some),
    };
    let most = spec.max_message.map_or(String::new(), |most| format!(", messages up to {}", units::size(most)));
    let unavailable = unavailable.as_ref().map_or(String::new(), |how| format!("\nunavailable: {how}"));
    vec![
        spec.name.clone(),
        spec.version.clone(),
        runtimes,
        format!("{}{most}{label}{unavailable}", spec.implementation),
    ]
}

fn joined(words: &[impl Display]) -> String {
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use estafette_measure::Mechanism;
    use estafette_measure::case::Role;
    use estafette_measure::driver::Ctx;
    use estafette_measure::protocol::Report;
    use estafette_measure::spec::Wait;

    use super::*;

    struct Fake(Spec, Result<(), String>);

    impl Mechanism for Fake {
        fn spec(&self) -> Spec {
            self.0.clone()
        }
        fn check_available(&self) -> Result<(), String> {
            self.1.clone()
        }
    }

    impl Entry for Fake {
        fn spec(&self) -> &Spec {
            &self.0
        }
        fn mechanism(&self) -> &dyn Mechanism {
            self
        }
        fn run(&self, _: &Case, _: Role, _: &mut Ctx) -> Result<Report> {
            anyhow::bail!("never run")
        }
    }

    fn registry() -> Registry {
        let ring = Spec::new("process/a-ring-named")
            .version("10.20.30")
            .waits(&[Wait::Spin, Wait::Block])
            .ordering(Ordering::PerProducer)
            .loss(Loss::BestEffort)
            .max_message(65_507)
            .implementation("a ring");
        let task = Spec::new("task/x").runtimes(&[Runtime::TokioMulti, Runtime::TokioCurrent]);
        let pipe = Spec::new("process/pipe-c").standing(Standing::Baseline).implementation("pipe(2), in C");
        Registry::new()
            .register(Fake(ring, Err(String::from("install the ring"))))
            .register(Fake(task, Ok(())))
            .register(Fake(pipe, Ok(())))
    }

    fn names(what: &[&str]) -> Vec<String> {
        let what: Vec<_> = what.iter().map(|&name| name.to_owned()).collect();
        select(&registry(), &what).unwrap().iter().map(|entry| entry.spec().name.clone()).collect()
    }

    #[test]
    fn patterns_select_each_mechanism_once() {
        assert_eq!(names(&[]).len(), 3);
        assert_eq!(names(&["task/*", "process/pipe-c", "process/*"]), names(&[]), "in the order of registration");
        assert_eq!(names(&["task/x", "task/x"]), ["task/x"]);
        let error = select(&registry(), &[String::from("pipe")]).err().unwrap().to_string();
        assert!(error.contains("process/pipe-c"), "{error}");
    }

    #[test]
    fn a_mechanism_has_one_line_in_each_table() {
        let registry = registry();
        let entries = select(&registry, &[]).unwrap();
        let listed: Vec<_> = entries.iter().map(|entry| Listed::of(entry.as_ref())).collect();
        let text = tables(&listed);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.lines().count(), 4 + 1 + 4 + 1, "{text}");
        for said in ["65507B", "spin,block", "tokio\n", "unavailable: install the ring", "pipe(2), in C (baseline"] {
            assert!(text.contains(said), "{said} in {text}");
        }
        let json = serde_json::to_value(&listed).unwrap();
        assert_eq!(json[0]["unavailable"], "install the ring");
        assert_eq!(json[1]["name"], "task/x");
        assert!(json[1]["unavailable"].is_null());
    }
}
