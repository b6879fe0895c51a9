//! A pipeline: the content of its YAML files, with the defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::function::Function;
use super::hosts::Hosts;
use super::nats::Nats;
use super::sink::Sink;
use super::source::Source;
use super::topic::Topic;

/// A pipeline as its files describe it. All paths are usable as they are: absolute, or relative to
/// the working folder of the process that checked it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pipeline {
    /// The name of the pipeline's file without its extension.
    pub name: String,
    /// The YAML files it was read from, the pipeline's own file first. A caller can watch them for
    /// changes.
    pub files: Vec<PathBuf>,
    /// The functions, in the order of the file. Their names are unique.
    pub functions: Vec<Function>,
    /// The sources, in the order of the file. Their names are unique, also among functions.
    pub sources: Vec<Source>,
    /// The sinks, in the order of the file. Their names are unique, also among sources and
    /// functions.
    pub sinks: Vec<Sink>,
    /// All topics that are read or written, by name. A topic that is not listed in `topics:` has
    /// the defaults.
    pub topics: BTreeMap<String, Topic>,
    /// The machines it runs on. Empty for a pipeline of one machine, and for a [part](Self::part).
    pub hosts: Hosts,
    /// The host of a [part](Self::part).
    pub host: Option<String>,
    /// The NATS server for topics that cross hosts.
    pub nats: Option<Nats>,
}

impl Pipeline {
    /// The function with this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}
