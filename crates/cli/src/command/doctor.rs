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
mod tcp;

use std::fs;

use anyhow::Result;
use estafette_measure::Registry;
use estafette_measure::limits::available_cpus;
use serde::Serialize;

use crate::args::Doctor;
use crate::columns::columns;
use crate::exit::Exit;
use crate::{print, print_json};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Affects the figures: good to know, rarely necessary to change.
    Note,
    /// Invalidates figures.
    Warning,
}

/// The result of one check.
#[derive(Debug, PartialEq, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do, or what to consider.
    remedy: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, verdict: Verdict::Ok, found: found.into(), remedy: None }
    }

    fn note(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what, verdict: Verdict::Note, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn warning(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { what, verdict: Verdict::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }
}

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
    let diagnosis = Diagnosis { warnings: count(Verdict::Warning), notes: count(Verdict::Note), findings };
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
            let how = entry.check_available().err()?;
            Some(Finding::note("peer", format!("{} is not available", entry.spec().name), how))
        })
        .collect();
    if unavailable.is_empty() {
        return vec![Finding::ok("peers", format!("all {} mechanisms are available", registry.iter().count()))];
    }
    unavailable
}

fn text(diagnosis: &Diagnosis) -> String {
    let row = |finding: &Finding| {
        let verdict = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Note => "note",
            Verdict::Warning => "WARNING",
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

/// Reads a file of `/proc` or `/sys` and trims it; `None` if it cannot be read.
fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Formats a number of bytes: `1.5 GiB`, `300 MiB`.
fn bytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib >= 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        mib => format!("{mib:.0} MiB"),
    }
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
            assert_eq!(finding.remedy.is_none(), finding.verdict == Verdict::Ok, "{finding:?}");
        }
        assert_eq!(peers(&Registry::new()).len(), 1);
        assert_eq!(read("/proc/there/is/no/such/file"), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(300 << 20), "300 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }
}
