//! A pipeline with the positions of all its keys and values: the input of the rules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::diagnostic::{FileId, Place, Problems, quoted, quoted_path};
use super::files::Files;
use super::function::Function;
use super::hosts::Hosts;
use super::keys::{FUNCTION, PIPELINE};
use super::nats::Nats;
use super::pipeline::Pipeline;
use super::read::{self, Base, Part};
use super::sink::Sink;
use super::source::Source;
use super::topic::Topic;
use super::validate::validate;
use super::yaml::{self, Document, Node};

/// The maximum number of functions in a pipeline.
const MAX_FUNCTIONS: usize = 1000;
/// The maximum size of all files of a pipeline in bytes: a list may refer to one large file many
/// times.
const MAX_BYTES: usize = 16 << 20;
/// The maximum number of keys and values in all files of a pipeline.
const MAX_NODES: usize = 200_000;

/// An item, and where it is written.
pub(super) struct Draft<T> {
    pub(super) item: T,
    /// To which folder its paths are relative, as a help text.
    pub(super) paths: &'static str,
    file: FileId,
    node: Node,
}

/// For paths in a pipeline's own file.
const IN_FOLDER: &str = "paths here begin in the folder of this file";
/// For paths in a file of the reference's layout.
const IN_WORKING_FOLDER: &str = "paths here begin in the working folder, or else in the folder of this file";

impl<T> Draft<T> {
    /// The place of the value under these keys, or under as many of them as exist.
    pub(super) fn at(&self, keys: &[&str]) -> Place {
        let mut node = &self.node;
        for key in keys {
            match node.get(key) {
                Some(next) => node = next,
                None => break,
            }
        }
        Place { file: self.file, position: node.position }
    }

    /// The place of an entry of the list under these keys.
    pub(super) fn at_entry(&self, keys: &[&str], index: usize) -> Place {
        let list = keys.iter().fold(Part::new(&self.node), |part, key| part.get(key));
        match list.items().get(index) {
            Some(node) => Place { file: self.file, position: node.position },
            None => self.at(keys),
        }
    }

    /// The text of a key's value, if it is a scalar.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        Part::new(&self.node).get(key).text()
    }

    /// Whether a key is present.
    pub(super) fn has(&self, key: &str) -> bool {
        self.has_path(&[key])
    }

    /// Whether the value under these keys is present.
    pub(super) fn has_path(&self, keys: &[&str]) -> bool {
        keys.iter().fold(Part::new(&self.node), |part, key| part.get(key)).is_present()
    }
}

/// An entry of `topics:`.
pub(super) struct TopicDraft {
    pub(super) name: String,
    /// The place of its name.
    pub(super) place: Place,
    pub(super) draft: Draft<Topic>,
}

/// An entry of `hosts:`.
pub(super) struct HostDraft {
    pub(super) name: String,
    pub(super) place: Place,
}

/// The content of all files of a pipeline.
#[derive(Default)]
pub(super) struct Drafts {
    pub(super) hosts: Vec<HostDraft>,
    pub(super) nats: Option<Draft<Nats>>,
    pub(super) files: Vec<PathBuf>,
    pub(super) functions: Vec<Draft<Function>>,
    pub(super) sources: Vec<Draft<Source>>,
    pub(super) sinks: Vec<Draft<Sink>>,
    pub(super) topics: Vec<TopicDraft>,
}

impl Drafts {
    /// Converts a pipeline without errors.
    pub(super) fn into_pipeline(self, name: String) -> Pipeline {
        let mut topics: BTreeMap<String, Topic> = BTreeMap::new();
        let hosts = self.hosts();
        let functions: Vec<_> = self.functions.into_iter().map(|draft| draft.item).collect();
        let sources: Vec<_> = self.sources.into_iter().map(|draft| draft.item).collect();
        let sinks: Vec<_> = self.sinks.into_iter().map(|draft| draft.item).collect();
        topics.extend(self.topics.into_iter().map(|topic| (topic.name, topic.draft.item)));
        let inputs = functions.iter().filter_map(|function| function.input.as_ref());
        let inputs = inputs.chain(sinks.iter().map(|sink| &sink.input)).map(|input| &input.topic);
        let outputs = functions.iter().flat_map(|function| &function.output);
        let outputs = outputs.chain(sources.iter().flat_map(|source| &source.output));
        for topic in inputs.chain(outputs) {
            topics.entry(topic.clone()).or_default();
        }
        let nats = self.nats.map(|draft| draft.item);
        Pipeline { name, files: self.files, functions, sources, sinks, topics, hosts, host: None, nats }
    }

    fn hosts(&self) -> Hosts {
        let functions = self.functions.iter().map(|draft| (&draft.item.name, draft.text("on")));
        let sources = self.sources.iter().map(|draft| (&draft.item.name, draft.text("on")));
        let sinks = self.sinks.iter().map(|draft| (&draft.item.name, draft.text("on")));
        let placed =
            functions.chain(sources).chain(sinks).filter_map(|(name, on)| Some((name.clone(), on?.to_owned())));
        Hosts { names: self.hosts.iter().map(|host| host.name.clone()).collect(), placed: placed.collect() }
    }
}

/// Reads and validates a pipeline's files.
pub(super) struct Loader<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) working_folder: &'a Path,
    pub(super) problems: &'a mut Problems,
    /// The bytes, and the keys and values, that all further files may have.
    bytes: usize,
    nodes: usize,
}

impl<'a> Loader<'a> {
    pub(super) fn new(files: &'a dyn Files, working_folder: &'a Path, problems: &'a mut Problems) -> Loader<'a> {
        Loader { files, working_folder, problems, bytes: MAX_BYTES, nodes: MAX_NODES }
    }

    /// Reads the pipeline's file and the files that it refers to.
    pub(super) fn load(&mut self, path: &Path) -> Drafts {
        let mut drafts = Drafts { files: vec![path.to_owned()], ..Drafts::default() };
        let file = self.problems.file(path.display().to_string());
        let root = match self.files.read(path) {
            Ok(bytes) => self.parse(file, &bytes),
            Err(error) => {
                let message = format!("cannot read the file: {error}");
                self.unreadable(Place::of_file(file), message, "name a pipeline's YAML file");
                None
            }
        };
        let Some(root) = root else { return drafts };
        if let (Some(module), None) = (root.get("module"), root.get("functions")) {
            let place = Place { file, position: module.position };
            let message = String::from("this is the file of a function, not of a pipeline");
            self.unreadable(place, message, "name the file that lists it under `functions`");
            return drafts;
        }
        validate(file, &root, &PIPELINE, self.problems);
        self.read(file, &root, folder(path), &mut drafts);
        drafts
    }

    /// Reports that a file cannot be read, so that its content is unknown.
    fn unreadable(&mut self, place: Place, message: String, help: impl Into<String>) {
        self.problems.hide_wiring();
        self.problems.error(place, message, help);
    }

    /// Parses a file into a tree. Reports an error and returns none if it is not valid YAML.
    fn parse(&mut self, file: FileId, bytes: &[u8]) -> Option<Node> {
        match yaml::parse(bytes) {
            Ok(Document { root, nodes, duplicates }) => {
                self.nodes = self.nodes.saturating_sub(nodes);
                self.bytes = self.bytes.saturating_sub(bytes.len());
                for duplicate in duplicates {
                    let place = Place { file, position: duplicate.position };
                    self.problems.error(place, duplicate.message, duplicate.help);
                }
                Some(root)
            }
            Err(failure) => {
                let place = Place { file, position: failure.position };
                self.unreadable(place, failure.message, failure.help);
                None
            }
        }
    }

    fn read(&mut self, file: FileId, root: &Node, folder: &Path, drafts: &mut Drafts) {
        let (part, base) = (Part::new(root), Base::File(folder));
        let functions = part.get("functions").items();
        if let Some(over) = functions.get(MAX_FUNCTIONS) {
            let place = Place { file, position: over.position };
            let help = "split the pipeline, or use `replicas`";
            self.unreadable(place, format!("more than {MAX_FUNCTIONS} functions"), help);
        }
        for node in functions.iter().take(MAX_FUNCTIONS) {
            match node.get("config") {
                Some(_) => self.referenced(file, node, folder, drafts),
                None => drafts.functions.push(Draft {
                    item: read::function(node, &base),
                    paths: IN_FOLDER,
                    file,
                    node: node.clone(),
                }),
            }
        }
        for node in part.get("sources").items() {
            drafts.sources.push(Draft { item: read::source(node, &base), paths: IN_FOLDER, file, node: node.clone() });
        }
        for node in part.get("sinks").items() {
            drafts.sinks.push(Draft { item: read::sink(node, &base), paths: IN_FOLDER, file, node: node.clone() });
        }
        for node in part.get("hosts").items() {
            let Some(name) = Part::new(node).text() else { continue };
            drafts.hosts.push(HostDraft { name: name.to_owned(), place: Place { file, position: node.position } });
        }
        drafts.nats = root.get("nats").map(|node| Draft {
            item: read::nats(node, &base),
            paths: IN_FOLDER,
            file,
            node: node.clone(),
        });
        for entry in part.get("topics").entries() {
            let place = Place { file, position: entry.key_position };
            let draft = Draft { item: read::topic(&entry.node), paths: IN_FOLDER, file, node: entry.node.clone() };
            drafts.topics.push(TopicDraft { name: entry.key.to_string(), place, draft });
        }
    }

    /// Reads a function's own file, to which an entry of the list refers.
    fn referenced(&mut self, list: FileId, entry: &Node, folder_of_list: &Path, drafts: &mut Drafts) {
        if self.problems.is_full() {
            return self.problems.hide_wiring();
        }
        let part = Part::new(entry);
        let Some(config) = part.get("config").text() else { return };
        let base = Base::Working { working: self.working_folder, file: folder_of_list, files: self.files };
        let path = base.resolve(config);
        let position = entry.get("config").unwrap_or(entry).position;
        let Some(bytes) = self.own_file(&path, Place { file: list, position }) else { return };
        let file = self.problems.file(path.display().to_string());
        drafts.files.push(path.clone());
        let Some(root) = self.parse(file, &bytes) else { return };
        if let Some(functions) = root.get("functions") {
            let place = Place { file, position: functions.position };
            let message = String::from("this is the file of a pipeline, not of a function");
            return self.unreadable(place, message, "name the file of one function; a pipeline cannot hold another");
        }
        validate(file, &root, &FUNCTION, self.problems);
        let base = Base::Working { working: self.working_folder, file: folder(&path), files: self.files };
        let item = read::function(&root, &base);
        if let Some(listed) = part.get("name").text().filter(|name| !item.name.is_empty() && item.name != *name) {
            let position = root.get("name").unwrap_or(&root).position;
            let message = format!("the list names this function {}, this file {}", quoted(listed), quoted(&item.name));
            self.problems.error(Place { file, position }, message, "give it the same name in both");
        }
        drafts.functions.push(Draft { item, paths: IN_WORKING_FOLDER, file, node: root });
    }

    /// Reads a function's own file. Reports an error if it cannot be read.
    fn own_file(&mut self, path: &Path, place: Place) -> Option<Vec<u8>> {
        let why = match self.files.is_file(path) {
            _ if self.bytes == 0 || self.nodes == 0 => String::from("the files of the pipeline are too large in all"),
            true => match self.files.read(path) {
                Ok(bytes) => return Some(bytes),
                Err(error) => error.to_string(),
            },
            false => String::from("there is no file"),
        };
        let message = format!("cannot read the function's file {}: {why}", quoted_path(path));
        let help = "correct the path; it begins in the working folder, or else in the folder of this file";
        self.unreadable(place, message, help);
        None
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
