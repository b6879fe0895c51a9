//! Rules that concern several values: names, inputs, queues and topics that contradict each other.

mod hosts;
mod topics;

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::{Place, Problems, Severity, quoted, quoted_path};
use super::draft::{Draft, Drafts};
use super::files::Files;
use super::function::{Function, FunctionKind, Input, Queue};
use super::inspect::ModuleInspector;
use super::source::{Source, SourceKind};
use super::topology::MAX_MEMBERS;
use super::{Options, value};

/// Applies all rules.
pub(super) fn apply(drafts: &Drafts, files: &dyn Files, options: &Options, found: &mut Problems) {
    names(drafts, found);
    for draft in &drafts.functions {
        feed(draft, found);
        restart(draft, found);
        if hosts::is_checked(draft, options) {
            module(draft, files, options.inspector, found);
        }
    }
    let sources = drafts.sources.iter().filter(|draft| hosts::is_checked(draft, options));
    sources.for_each(|draft| source_file(draft, files, found));
    shared_sources(drafts, found);
    hosts::apply(drafts, options, found);
    instances(drafts, found);
    rings(drafts, found);
    queues(drafts, found);
    topics::apply(drafts, found);
}

/// Names must be unique among functions, sources and sinks: logs, metrics and commands use them.
fn names(drafts: &Drafts, found: &mut Problems) {
    let functions = drafts.functions.iter().map(|draft| ("function", draft.item.name.as_str(), draft.at(&["name"])));
    let sources = drafts.sources.iter().map(|draft| ("source", draft.item.name.as_str(), draft.at(&["name"])));
    let sinks = drafts.sinks.iter().map(|draft| ("sink", draft.item.name.as_str(), draft.at(&["name"])));
    let mut seen: BTreeMap<&str, (&str, Place)> = BTreeMap::new();
    for (what, name, place) in functions.chain(sources).chain(sinks).filter(|(_, name, _)| !name.is_empty()) {
        if let Some((first, at)) = seen.get(name) {
            let message = format!("the name {} of this {what} is taken", quoted(name));
            let help = format!("rename it; the other is the {first} in {}", found.seen_from(place, *at));
            found.error(place, message, help);
        } else {
            seen.insert(name, (what, place));
        }
    }
}

/// The input of a function is a topic, a stream, or nothing.
fn feed(draft: &Draft<Function>, found: &mut Problems) {
    let has_stream = draft.has("stream");
    if draft.text("kind").is_some_and(|kind| !matches!(kind, "processor" | "input")) {
        // Reported already. Further findings would be guesses.
        return;
    }
    match draft.item.kind {
        FunctionKind::Input if !has_stream => {
            let help = "add `stream: {websocket: {url: ws://HOST:PORT}}`, or remove `kind` to have a topic feed it";
            found.error(draft.at(&["kind"]), "a function of kind `input` without `stream`", help);
        }
        FunctionKind::Input if draft.has("input") => {
            let help = "remove `input`, or feed a second function by the topic";
            found.error(draft.at(&["input"]), "a function of kind `input` is fed by its stream, not by a topic", help);
        }
        FunctionKind::Processor if has_stream => {
            let message = "only a function of kind `input` is fed by a stream";
            found.error(draft.at(&["stream"]), message, "add `kind: input`, or remove `stream`");
        }
        FunctionKind::Input | FunctionKind::Processor => {}
    }
}

fn restart(draft: &Draft<Function>, found: &mut Problems) {
    let restart = &draft.item.restart;
    if restart.initial_delay > restart.max_delay {
        let key = if draft.has_path(&["restart", "initial_delay"]) { "initial_delay" } else { "max_delay" };
        let message =
            format!("`initial_delay` of {} is longer than `max_delay`", value::written(restart.initial_delay));
        let help = format!("write at most {}, or a longer `max_delay`", value::written(restart.max_delay));
        found.error(draft.at(&["restart", key]), message, help);
    }
}

/// The module must exist, and have the exports and imports of a function.
fn module(draft: &Draft<Function>, files: &dyn Files, inspector: Option<&dyn ModuleInspector>, found: &mut Problems) {
    if draft.item.module.as_os_str().is_empty() {
        return;
    }
    let (place, path) = (draft.at(&["module", "path"]), draft.item.module.as_path());
    if !files.is_file(path) {
        let message = format!("there is no file at {}", quoted_path(path));
        return found.error(place, message, format!("build the module, or correct the path; {}", draft.paths));
    }
    let findings = inspector.map(|inspector| inspector.inspect(path, &draft.item)).unwrap_or_default();
    for finding in findings {
        found.add(finding.severity, place, format!("{}: {}", quoted_path(path), finding.message), finding.help);
    }
}

/// A missing source file is only a warning, as the file may be created later.
fn source_file(draft: &Draft<Source>, files: &dyn Files, found: &mut Problems) {
    let SourceKind::File { path, .. } = &draft.item.kind else { return };
    if !path.as_os_str().is_empty() && !files.is_file(path) {
        let help = format!("make it before the pipeline runs, or correct the path; {}", draft.paths);
        found.warning(draft.at(&["file", "path"]), format!("there is no file at {}", quoted_path(path)), help);
    }
}

/// Two sources of one host cannot share standard input, or the same address and path.
fn shared_sources(drafts: &Drafts, found: &mut Problems) {
    let mut stdin = BTreeMap::new();
    let mut served = BTreeMap::new();
    for draft in &drafts.sources {
        let on = draft.text("on");
        let first = match &draft.item.kind {
            SourceKind::Stdin(_) if draft.has("stdin") => {
                stdin.insert(on, &draft.item.name).map(|first| ("stdin", first))
            }
            SourceKind::Http { listen, path } if listen.port() > 0 => {
                served.insert((on, listen, path), &draft.item.name).map(|first| ("http", first))
            }
            _ => None,
        };
        if let Some((key, first)) = first {
            let what = if key == "stdin" { "reads the standard input" } else { "listens there" };
            let help = "keep one of the two; it may write several topics";
            found.error(draft.at(&[key]), format!("the source {} {what} already", quoted(first)), help);
        }
    }
}

/// The maximum number of function instances in a pipeline.
const MAX_INSTANCES: usize = 1024;
/// The maximum number of rings in a pipeline. The supervisor keeps a file descriptor open for each.
const MAX_RINGS: usize = 2_000;

fn instances(drafts: &Drafts, found: &mut Problems) {
    let mut instances = 0;
    for draft in &drafts.functions {
        let before = instances;
        instances += draft.item.replicas as usize;
        if before <= MAX_INSTANCES && instances > MAX_INSTANCES {
            let message = format!("more than {MAX_INSTANCES} instances of functions in the pipeline");
            found.error(draft.at(&["replicas"]), message, "take fewer `replicas`");
        }
    }
}

/// Bounds the resources of a pipeline. The rings are counted without building the topology, whose
/// size is what must be bounded.
fn rings(drafts: &Drafts, found: &mut Problems) {
    let mut queues: BTreeMap<&str, BTreeSet<(&Queue, &str)>> = BTreeMap::new();
    for Reader { name, input, .. } in readers(drafts) {
        // All readers of one queue count once. Each reader with `queue: each` counts separately.
        let name = if input.queue == Queue::Each { name } else { "" };
        queues.entry(&input.topic).or_default().insert((&input.queue, name));
    }
    let count = |topic: &String| queues.get(topic.as_str()).map_or(0, BTreeSet::len);
    let rings = |outputs: &[String]| outputs.iter().map(count).sum::<usize>();
    let functions = drafts.functions.iter().map(|draft| draft.item.replicas as usize * rings(&draft.item.output));
    let total: usize = functions.chain(drafts.sources.iter().map(|draft| rings(&draft.item.output))).sum();
    if total > MAX_RINGS {
        let message = format!("the pipeline takes {total} rings, one for each pair of an output and a queue");
        let help = format!("at most {MAX_RINGS} are possible: take fewer `replicas`, or fewer queues on a topic");
        found.error(Place::of_first_file(), message, help);
    }
}

/// A reader of a topic.
struct Reader<'a> {
    name: &'a str,
    input: &'a Input,
    instances: usize,
    is_sink: bool,
    place: Place,
}

fn readers(drafts: &Drafts) -> Vec<Reader<'_>> {
    let functions = drafts.functions.iter().filter_map(|draft| {
        let place = draft.at(&["input", "topic"]);
        let instances = draft.item.replicas as usize;
        Some(Reader { name: &draft.item.name, input: draft.item.input.as_ref()?, instances, is_sink: false, place })
    });
    let sinks = drafts.sinks.iter().map(|draft| {
        let place = draft.at(&["input", "topic"]);
        Reader { name: &draft.item.name, input: &draft.item.input, instances: 1, is_sink: true, place }
    });
    functions.chain(sinks).filter(|reader| !reader.input.topic.is_empty()).collect()
}

/// The number of members of a group is bounded. A sink that competes with a function is a warning.
fn queues(drafts: &Drafts, found: &mut Problems) {
    let mut groups: BTreeMap<(&str, &Queue), Vec<Reader>> = BTreeMap::new();
    for reader in readers(drafts).into_iter().filter(|reader| reader.input.queue != Queue::Each) {
        groups.entry((&reader.input.topic, &reader.input.queue)).or_default().push(reader);
    }
    for ((topic, queue), readers) in groups {
        let members: usize = readers.iter().map(|reader| reader.instances).sum();
        if let (true, Some(last)) = (members > MAX_MEMBERS, readers.last()) {
            let message = format!("{members} instances compete for the topic {}", quoted(topic));
            found.error(last.place, message, format!("at most {MAX_MEMBERS} can: take fewer `replicas`"));
        }
        let function = readers.iter().find(|reader| !reader.is_sink);
        let sinks = readers.iter().filter(|reader| reader.is_sink);
        for (sink, function) in sinks.zip(function.iter().cycle()).filter(|_| *queue == Queue::Unnamed) {
            let message = format!("this sink takes messages of {} away from {}", quoted(topic), quoted(function.name));
            let help = "add `queue: each` to the sink's `input` for a copy of each message";
            found.add(Severity::Warning, sink.place, message, String::from(help));
        }
    }
}
