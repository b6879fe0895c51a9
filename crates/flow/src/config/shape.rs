//! The types of values in a pipeline's files. One table of keys serves the check, the suggestions
//! ("did you mean"), and the JSON schema for editors.

use std::time::Duration;

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// The name of a function, source, sink, topic or queue.
    Name,
    /// Any text. Numbers and booleans count as their text.
    Text,
    /// A path on this machine, or as a guest sees it.
    Path,
    /// The URL of a WebSocket server.
    WebsocketUrl,
    /// The URL of a NATS server.
    NatsUrl,
    /// A word of letters, digits, `-` and `_`.
    Token,
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

/// What the keys of a map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKey {
    /// Names of topics.
    Name,
    /// Names of environment variables.
    Variable,
}

/// A word of a [`Shape::Choice`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) word: &'static str,
    pub(super) help: &'static str,
}

/// A map with known keys.
#[derive(Debug)]
pub(super) struct Object {
    /// What it describes, with its article, for error messages: `a function`.
    pub(super) what: &'static str,
    /// The name of its definition in the schema.
    pub(super) definition: &'static str,
    pub(super) help: &'static str,
    pub(super) keys: &'static [Key],
    /// Keys of which exactly one must be present. Empty if there is no such rule.
    pub(super) one_of: &'static [&'static str],
}

/// A key of an object.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) is_required: bool,
    /// The default as one would write it, if there is a fixed one.
    pub(super) default: Option<&'static str>,
    pub(super) help: &'static str,
    /// Whether the key determines which topics are read or written.
    pub(super) is_wiring: bool,
}

impl Key {
    /// An optional key.
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

/// Joins words to a phrase: `a, b and c`.
pub(super) fn listed(words: impl IntoIterator<Item = &'static str>, last: &str) -> String {
    let words: Vec<_> = words.into_iter().collect();
    match words.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}
