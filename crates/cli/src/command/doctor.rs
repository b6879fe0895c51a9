//! The command `doctor`: finds what would disturb a measurement on this machine, and what to do
//! about it.
//!
//! Each module below checks one aspect of the machine. A check's conclusion is a function of the
//! texts that it read, so that it can be tested with texts of other machines. A missing text is
//! never an error.

mod capacity;
mod cgroup;
mod clock;
mod cpu;
mod finding;
mod read;
mod tcp;

use anyhow::Result;
use estafette_measure::Registry;
use estafette_measure::limits::available_cpus;
use serde::Serialize;

use self::finding::{Finding, FindingVerdict};
use crate::args::Doctor;
use crate::columns::columns;
use crate::exit::Exit;
use crate::terminal::{print, print_json};

/// The JSON output.
#[derive(Serialize)]
struct Diagnosis {
    warnings: usize,
    notes: usize,
    findings: Vec<Finding>,
}

/// Runs `doctor`.
pub(crate) fn run(registry: &Registry, args: &Doctor) -> Result<Exit> {
    let cpus = available_cpus();
    let mut findings = vec![build(cfg!(debug_assertions))];
    findings.extend(cpu::findings(&cpus));
    findings.extend(clock::findings());
    findings.extend(capacity::findings());
    findings.extend(tcp::findings());
    findings.extend(peers(registry));
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let diagnosis =
        Diagnosis { warnings: count(FindingVerdict::Warning), notes: count(FindingVerdict::Note), findings };
    if args.json {
        print_json(&diagnosis)?;
    } else {
        print(&text(&diagnosis))?;
    }
    Ok(Exit::Fine)
}

fn build(debug: bool) -> Finding {
    if debug {
        let remedy = "build with `cargo build --release`: figures of this build are meaningless";
        return Finding::warning("build", "unoptimised, with debug assertions", remedy);
    }
    Finding::ok("build", "optimised")
}

fn peers(registry: &Registry) -> Vec<Finding> {
    let unavailable: Vec<_> = registry
        .iter()
        .filter_map(|entry| {
            let how = entry.mechanism().check_available().err()?;
            Some(Finding::note("mechanism", format!("{} is not available", entry.spec().name), how))
        })
        .collect();
    if unavailable.is_empty() {
        return vec![Finding::ok("mechanisms", format!("all {} are available", registry.iter().count()))];
    }
    unavailable
}

fn text(diagnosis: &Diagnosis) -> String {
    let row = |finding: &Finding| {
        let verdict = match finding.verdict {
            FindingVerdict::Ok => "ok",
            FindingVerdict::Note => "note",
            FindingVerdict::Warning => "WARNING",
        };
        let remedy = finding.remedy.as_ref().map_or(String::new(), |remedy| format!("\n→ {remedy}"));
        vec![verdict.to_owned(), finding.what.to_owned(), format!("{}{remedy}", finding.found)]
    };
    let rows: Vec<_> = diagnosis.findings.iter().map(row).collect();
    let number = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let sum = format!("{}, {}", number(diagnosis.warnings, "warning"), number(diagnosis.notes, "note"));
    format!("{}\n{sum}\n", columns(&[], &[], &rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_has_a_line_per_finding_and_remedies_below() {
        let findings = vec![build(true), build(false), Finding::note("x", "some ".repeat(40), "less of it")];
        let text = text(&Diagnosis { warnings: 1, notes: 1, findings });
        assert!(text.starts_with("WARNING  build  unoptimised"), "{text}");
        assert!(text.contains("\n                → less of it"), "{text}");
        assert!(text.ends_with("\n\n1 warning, 1 note\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn the_checks_work_on_this_machine() {
        for finding in cpu::findings(&available_cpus()).iter().chain(&clock::findings()).chain(&capacity::findings()) {
            assert!(!finding.found.is_empty(), "{finding:?}");
            assert_eq!(finding.remedy.is_none(), finding.verdict == FindingVerdict::Ok, "{finding:?}");
        }
        assert_eq!(peers(&Registry::new()).len(), 1);
    }
}
