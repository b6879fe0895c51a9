//! `bench --config FILE.toml`: reads the options of `bench` from a file.
//!
//! The keys are the long options of `bench`, and `what` for the suite or mechanisms. Values follow
//! the same rules as on the command line. An option on the command line overrides the file's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use toml::Value;

/// The key of the positional arguments.
const WHAT: &str = "what";
/// Options that a file cannot contain.
const NOT_IN_FILES: [&str; 4] = ["config", "json", "live", "help"];
/// The maximum length of a file in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Returns the arguments from a file, without those that the command line gives.
///
/// # Errors
/// If the file cannot be read or has an invalid key or value. The error names the file and the key.
pub(crate) fn arguments(file: &Path, bench: &Command, given: &ArgMatches) -> Result<Vec<String>> {
    let name = file.display();
    let cannot = || format!("cannot read {name}: give --config a file like examples/sweep.toml");
    let metadata = fs::metadata(file).with_context(cannot)?;
    if !metadata.is_file() {
        // `--allocator` starts the command again, which reads the file again.
        bail!("{name} is not a regular file, and may be read more than once: save the sweep in a file");
    }
    let length = metadata.len();
    if length > MAX_FILE {
        bail!("{name}: {length} bytes; a sweep has at most {MAX_FILE}");
    }
    let text = fs::read_to_string(file).with_context(cannot)?;
    let table: toml::Table = text.parse().with_context(|| format!("{name} is not TOML"))?;
    let known: Vec<(&str, &str)> = options(bench).chain([(WHAT, WHAT)]).collect();
    let (mut options, mut what) = (Vec::new(), Vec::new());
    for (key, value) in &table {
        let Some((_, id)) = known.iter().find(|(known, _)| known == key) else {
            let known: Vec<&str> = known.iter().map(|(known, _)| *known).collect();
            bail!("{name}: unknown key `{key}`; known: {}", known.join(", "));
        };
        let values = values(value).with_context(|| format!("{name}: `{key}`"))?;
        if given.value_source(id) == Some(ValueSource::CommandLine) {
            continue;
        }
        if key == WHAT {
            what = values;
        } else {
            options.push(format!("--{key}={}", values.join(",")));
        }
    }
    Ok([options, what].concat())
}

/// Returns the names and aliases of the long options that a file can contain, each with the
/// identifier of its argument.
fn options(bench: &Command) -> impl Iterator<Item = (&str, &str)> {
    let is_allowed = |long: &&str| !NOT_IN_FILES.contains(long);
    let options =
        bench.get_arguments().filter(move |argument| argument.get_long().is_some_and(|long| is_allowed(&long)));
    options.flat_map(|argument| {
        let aliases = argument.get_visible_aliases().unwrap_or_default();
        argument.get_long().into_iter().chain(aliases).map(|name| (name, argument.get_id().as_str()))
    })
}

/// Converts a value, or each value of a list, to its text on the command line.
fn values(value: &Value) -> Result<Vec<String>> {
    match value {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Integer(number) => Ok(vec![number.to_string()]),
        Value::Array(list) if list.is_empty() => bail!("an empty list: leave the key out"),
        Value::Array(list) => {
            let one = |value: &Value| match value {
                Value::Array(_) => bail!("a list within a list"),
                value => Ok(values(value)?.concat()),
            };
            list.iter().map(one).collect()
        }
        other => bail!("{} is no text, number or list of them", other.type_str()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    fn read(text: &str, line: &[&str]) -> Result<Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sweep.toml");
        fs::write(&file, text).unwrap();
        let command = Args::command();
        let matches = command.clone().get_matches_from([&["estafette", "bench"], line].concat());
        let bench = command.find_subcommand("bench").unwrap();
        arguments(&file, bench, matches.subcommand_matches("bench").unwrap())
    }

    #[test]
    fn keys_are_options() {
        let text =
            "what = [\"process/pipe\", \"process/unix-*\"]\nsize = [\"100B\", 4096]\nrounds = 3\npattern = 'ping-pong'";
        let mut read = read(text, &[]).unwrap();
        read.sort();
        assert_eq!(read, ["--pattern=ping-pong", "--rounds=3", "--size=100B,4096", "process/pipe", "process/unix-*"]);
    }

    #[test]
    fn aliases_of_an_option_are_keys_too() {
        assert_eq!(read("clients = 4", &[]).unwrap(), ["--clients=4"]);
        assert_eq!(read("subscribers = 4", &["--producers", "2"]).unwrap(), [""; 0]);
    }

    #[test]
    fn the_command_line_overrides_the_file() {
        let text = "what = ['process/pipe']\nrounds = 3\nseed = 1";
        assert_eq!(read(text, &["process/tcp", "--rounds", "5"]).unwrap(), ["--seed=1"]);
    }

    #[test]
    fn errors_say_what_and_where() {
        let error = |text| format!("{:#}", read(text, &[]).unwrap_err());
        assert!(error("sizes = 1").contains("sweep.toml: unknown key `sizes`; known: profile, pattern, size"));
        assert!(error("size = [").contains("sweep.toml is not TOML"));
        assert!(error("size = []").contains("`size`: an empty list"));
        assert!(error("size = 1.5").contains("`size`: float is no text"));
        assert!(error("json = true").contains("unknown key `json`"));
    }
}
