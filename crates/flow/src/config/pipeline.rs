//! A pipeline: everything that its YAML files say, with the defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::function::Function;
use super::sink::Sink;
use super::source::Source;
use super::topic::Topic;

/// A pipeline as its files describe it. Every path in it is ready for use: absolute, or relative to
/// the working folder of the process that checked it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pipeline {
    /// The name of the pipeline's file without its extension.
    pub name: String,
    /// The YAML files it was read from, the one given to the command first. To watch for changes.
    pub files: Vec<PathBuf>,
    /// The functions, in the order of the file. No two share a name.
    pub functions: Vec<Function>,
    /// The sources, in the order of the file. No two share a name, nor do a source and a function.
    pub sources: Vec<Source>,
    /// The sinks, in the order of the file. No two share a name, nor do a sink and a source or
    /// function.
    pub sinks: Vec<Sink>,
    /// Every topic that anyone reads or writes, by name. One that `topics:` leaves out has the
    /// defaults.
    pub topics: BTreeMap<String, Topic>,
}

impl Pipeline {
    /// The function with this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }
}
