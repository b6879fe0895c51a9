//! What a part of a pipeline's file may look like. One description of each key serves the check,
//! the words "did you mean", and the JSON schema for editors.

use std::time::Duration;

/// What a value may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// The name of a function, source, sink, topic or queue.
    Name,
    /// Any text. Numbers and truth values count as what is written.
    Text,
    /// A path of this machine, or as a guest sees it.
    Path,
    /// The URL of a WebSocket server.
    WebsocketUrl,
    /// A host and a port.
    HostPort,
    /// An IP address and a port to listen at.
    Listen,
    /// The path of HTTP requests.
    HttpPath,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count { min: u64, max: u64 },
    /// A size in bytes.
    Size { min: u64, max: u64 },
    /// A length of time.
    Time { min: Duration, max: Duration },
    /// One of these words.
    Choice(&'static [Word]),
    /// A list.
    List(&'static Shape),
    /// A map whose keys the user chooses.
    Map { key: MapKey, value: &'static Shape },
    /// A map with known keys.
    Object(&'static Object),
    /// A map of one of two kinds: the presence of `if_key` decides which.
    Either { if_key: &'static str, then: &'static Object, otherwise: &'static Object },
}

/// What the keys of a map stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKey {
    /// Names of topics.
    Name,
    /// Names of environment variables.
    Variable,
}

/// A word among which to choose.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) word: &'static str,
    pub(super) help: &'static str,
}

/// A map with known keys.
#[derive(Debug)]
pub(super) struct Object {
    /// What it describes, with its article: `a function`.
    pub(super) what: &'static str,
    /// The name of its definition in the schema.
    pub(super) definition: &'static str,
    pub(super) help: &'static str,
    pub(super) keys: &'static [Key],
    /// Keys of which there is exactly one; empty if there is no such rule.
    pub(super) one_of: &'static [&'static str],
}

/// A key of an object.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
    /// The default as one would write it, for keys that have a fixed one.
    pub(super) default: Option<&'static str>,
    pub(super) help: &'static str,
    /// Whether it says who reads and writes which topic.
    pub(super) is_wiring: bool,
}

impl Key {
    /// A key that may be left out.
    pub(super) const fn new(name: &'static str, shape: Shape, help: &'static str) -> Key {
        Key { name, shape, is_required: false, default: None, help, is_wiring: false }
    }

    pub(super) const fn required(self) -> Key {
        Key { is_required: true, ..self }
    }

    pub(super) const fn wiring(self) -> Key {
        Key { is_wiring: true, ..self }
    }

    pub(super) const fn default(self, default: &'static str) -> Key {
        Key { default: Some(default), ..self }
    }
}

impl Object {
    pub(super) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.keys.iter().map(|key| key.name)
    }
}

/// `a, b and c`.
pub(super) fn listed(words: impl IntoIterator<Item = &'static str>, last: &str) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}
