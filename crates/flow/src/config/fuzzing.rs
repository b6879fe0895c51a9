//! Fuzz target for the check of pipeline files: a file may contain anything, and the check must not
//! panic. The test here runs some thousand files; `fuzz/` searches for more.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::files::Files;
use super::topology::{End, MAX_MEMBERS, Membership, Topology};
use super::{Checked, Diagnostic, Options, Pipeline, check_files};

/// A pipeline's file in memory. Next to it are a function's file `receive.yml`, and every module.
pub(super) struct Text<'a>(pub(super) &'a [u8]);

const FUNCTION: &[u8] = b"name: receive\nmodule: {path: receive.wasm}\ninput: {topic: a}\n";

impl Files for Text<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some("p.yml") => Ok(self.0.to_vec()),
            Some("receive.yml") => Ok(FUNCTION.to_vec()),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    fn is_file(&self, path: &Path) -> bool {
        path.extension().is_none_or(|extension| extension != "yml") || path == Path::new("receive.yml")
    }
}

/// Checks any bytes. Asserts that the check ends, that findings have valid positions, and that an
/// accepted pipeline can run.
pub fn pipeline(input: &[u8]) {
    let Checked { pipeline, diagnostics } = check_files(Path::new("p.yml"), &Options::default(), &Text(input));
    assert!(diagnostics.len() <= 201);
    assert!(pipeline.is_some() || !diagnostics.is_empty(), "a refusal has a reason");
    let lines = input.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 1;
    for diagnostic in &diagnostics {
        assert_readable(diagnostic);
        assert!(diagnostic.file != "p.yml" || diagnostic.line <= lines + 1, "{diagnostic} of {lines} lines");
    }
    if let Some(pipeline) = pipeline {
        assert_runnable(&pipeline);
    }
}

/// Asserts that a finding is printed in two lines, without control characters.
fn assert_readable(diagnostic: &Diagnostic) {
    let text = format!("{diagnostic}");
    assert_eq!(text.lines().count(), 2, "{text:?}");
    assert!(text.chars().all(|character| character == '\n' || !character.is_control()), "{text:?}");
    assert!(!diagnostic.message.is_empty() && !diagnostic.help.is_empty(), "{text}");
    assert!(text.len() < 2000, "{text}");
}

fn assert_runnable(pipeline: &Pipeline) {
    let functions = pipeline.functions.iter().map(|function| &function.name);
    let sources = pipeline.sources.iter().map(|source| &source.name);
    let sinks = pipeline.sinks.iter().map(|sink| &sink.name);
    let names: Vec<_> = functions.chain(sources).chain(sinks).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "names are unique");
    for topic in pipeline.topics.values() {
        assert!(topic.max_message + 8 <= topic.capacity && topic.max_deliver > 0);
    }
    let topology = Topology::of(pipeline);
    assert_consistent(&topology);
    for group in &topology.groups {
        assert!(!group.members.is_empty() && group.members.len() <= MAX_MEMBERS);
        assert!(!group.rings.is_empty(), "each topic that is read has a writer");
    }
    for (index, function) in pipeline.functions.iter().enumerate() {
        assert!(function.replicas > 0);
        let end = End::Function { function: index, replica: function.replicas - 1 };
        let is_fed = function.input.is_some() || function.stream.is_some();
        assert_eq!(topology.membership(end).is_some(), is_fed);
        let outputs = topology.producer(end).map(|producer| producer.outputs.len()).unwrap_or_default();
        assert_eq!(outputs, function.output.len(), "indexes of topics are those of the file");
    }
}

/// Asserts that groups, rings and producers refer to each other, that each end is in at most one
/// group, and that there is one ring per producer and group.
pub(super) fn assert_consistent(topology: &Topology) {
    for (index, ring) in topology.rings.iter().enumerate() {
        let group = &topology.groups[ring.group];
        assert!(group.rings.contains(&index));
        let producer = topology.producer(ring.producer).expect("a ring has a producer");
        let mut outputs = producer.outputs.iter().chain(&producer.answers).chain(&producer.dead_letter);
        assert!(outputs.any(|output| output.rings.contains(&index) && output.feed == group.feed));
    }
    for (index, group) in topology.groups.iter().enumerate() {
        for (member, end) in group.members.iter().enumerate() {
            assert_eq!(topology.membership(*end), Some(Membership { group: index, member }));
        }
        let producers: BTreeSet<_> = group.rings.iter().map(|ring| topology.rings[*ring].producer).collect();
        assert_eq!(producers.len(), group.rings.len());
        assert!(group.rings.iter().all(|ring| topology.rings[*ring].group == index));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;

    use fastrand::Rng;

    use super::*;

    /// Bytes and words that have a meaning in some context.
    const TYPICAL: &[&str] = &[
        "\n",
        "\n  ",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "&a ",
        "*a",
        "'",
        "\"",
        "#",
        "|\n",
        ">-\n",
        "---\n",
        "? ",
        "!x ",
        "!!str ",
        "\t",
        "\0",
        "\u{1b}[2J",
        "\r",
        "\u{feff}",
        "\u{85}",
        "null",
        "true",
        "-1",
        "0",
        "each",
        "input",
        "<<: *a",
        "config: receive.yml",
        "99999999999999999999",
        "drop-oldest",
        "at-least-once",
    ];

    fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
        let at = rng.usize(..=input.len());
        let some = at..input.len().min(at + rng.usize(..30));
        match rng.u8(..6) {
            0 => drop(input.drain(some)),
            1 => input.insert(at, rng.u8(..)),
            2 | 3 => input.splice(at..at, rng.choice(TYPICAL).expect("there are some").bytes()).for_each(drop),
            4 => {
                let from = rng.usize(..=other.len());
                input.splice(some, other[from..].iter().take(rng.usize(..60)).copied()).for_each(drop);
            }
            _ => input.extend_from_within(some),
        }
    }

    /// The files of `tests/pipelines`, with which `fuzz/` starts too.
    fn examples() -> Vec<Vec<u8>> {
        let mut paths = Vec::new();
        for folder in ["good", "good/reference", "bad"] {
            let folder = format!("{}/tests/pipelines/{folder}", env!("CARGO_MANIFEST_DIR"));
            let entries = fs::read_dir(folder).expect("it is there");
            paths.extend(entries.map(|entry| entry.expect("it can be read").path()));
        }
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "yml"));
        paths.sort();
        paths.iter().map(|path| fs::read(path).expect("it can be read")).collect()
    }

    /// A short run of what `fuzz/` does for longer.
    #[test]
    fn thousands_of_mutated_files_are_checked_without_a_panic() {
        let examples = examples();
        examples.iter().for_each(|example| pipeline(example));
        let mut rng = Rng::with_seed(1);
        for _ in 0..10_000 {
            let mut input = rng.choice(&examples).expect("there are some").clone();
            let other = rng.choice(&examples).expect("there are some");
            (0..rng.u8(1..6)).for_each(|_| mutate(&mut rng, &mut input, other));
            catch_unwind(|| pipeline(&input)).unwrap_or_else(|_| panic!("{}", input.escape_ascii()));
        }
    }
}
