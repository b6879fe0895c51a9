//! A program under `cargo bench`, as a target with `harness = false`.
//!
//! Cargo adds `--bench` after the user's arguments. What the user gives then are the arguments of
//! `bench`, unless a command is named. Without a mechanism or suite, the program's own mechanisms
//! are measured beside the others of their scopes, in the wait modes that the own ones have.

use std::env;
use std::ffi::OsString;

use clap::CommandFactory;
use estafette_measure::Registry;

use crate::args::{Args, Bench};

/// What cargo adds.
const ADDED: &str = "--bench";

/// Returns the arguments as if the command had been started by itself, and whether `bench` was left
/// out because cargo started it.
pub(crate) fn arguments(arguments: Vec<OsString>) -> (Vec<OsString>, bool) {
    let is_cargo = env::var_os("CARGO_MANIFEST_DIR").is_some();
    without_added(arguments, is_cargo)
}

fn without_added(mut arguments: Vec<OsString>, is_cargo: bool) -> (Vec<OsString>, bool) {
    let is_added = arguments.len() >= 2 && arguments.last().is_some_and(|last| last == ADDED);
    // Alone it means the same if a benchmark that cargo built is started by hand.
    if !is_added || !(is_cargo || arguments.len() == 2) {
        return (arguments, false);
    }
    arguments.pop();
    let names_command = arguments.get(1).is_some_and(|first| {
        let is_global = ["help", "--help", "-h", "--version", "-V"].iter().any(|global| first == global);
        is_global || first.to_str().is_some_and(|name| Args::command().find_subcommand(name).is_some())
    });
    if !names_command {
        arguments.insert(1, OsString::from("bench"));
    }
    (arguments, !names_command)
}

/// If no mechanism or suite is named, names the program's own mechanisms and all others of their
/// scopes. If no wait mode is given either, chooses those of the own mechanisms: other tables would
/// have none of them. A program without own mechanisms measures what `bench` does by default.
pub(crate) fn select_own(registry: &Registry, bench: &mut Bench) {
    if !bench.what.is_empty() {
        return;
    }
    let is_any_wait = bench.wait.is_empty();
    for entry in registry.own() {
        let spec = entry.spec();
        // Pipelines have no wait mode to choose.
        if is_any_wait && spec.patterns.iter().any(|pattern| !pattern.is_pipeline()) {
            let new: Vec<_> = spec.waits.iter().filter(|wait| !bench.wait.contains(wait)).copied().collect();
            bench.wait.extend(new);
        }
        let scope = format!("{}/*", spec.scope);
        // The scope's pattern leaves baselines out, which own mechanisms may be.
        for name in [spec.name.clone(), scope] {
            if !bench.what.contains(&name) {
                bench.what.push(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, is_cargo: bool) -> (String, bool) {
        let arguments = text.split(' ').map(OsString::from).collect();
        let (arguments, by_cargo) = without_added(arguments, is_cargo);
        (arguments.join(" ".as_ref()).into_string().unwrap(), by_cargo)
    }

    #[test]
    fn what_cargo_adds_is_removed_and_bench_is_the_default() {
        for (given, expected, by_cargo) in [
            ("program --bench", "program bench", true),
            ("program --rounds 1 --bench", "program bench --rounds 1", true),
            ("program thread/* --bench", "program bench thread/*", true),
            ("program list --bench", "program list", false),
            ("program --help --bench", "program --help", false),
            ("program bench --rounds 1", "program bench --rounds 1", false),
        ] {
            assert_eq!(split(given, true), (expected.to_owned(), by_cargo), "{given}");
        }
    }

    #[test]
    fn without_cargo_only_a_lone_bench_is_removed() {
        assert_eq!(split("program --bench", false), (String::from("program bench"), true));
        assert_eq!(split("program list --bench", false), (String::from("program list --bench"), false));
        assert_eq!(split("program", false), (String::from("program"), false));
    }
}
