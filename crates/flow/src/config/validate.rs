//! Compares a tree with its expected shape, and reports every difference.

use std::time::Duration;

use super::diagnostic::{FileId, Place, Position, Problems, quoted};
use super::shape::{Key, MapKey, Object, Shape, Word, listed};
use super::value::{self, Wrong, nearest};
use super::yaml::{Entry, Node, Scalar, ScalarKind, Value};

/// Reports every difference between a file's tree and the expected object.
pub(super) fn validate(file: FileId, root: &Node, object: &'static Object, problems: &mut Problems) {
    Validator { file, problems, is_wiring: true }.object(root, object, &format!("the file of {}", object.what));
}

struct Validator<'a> {
    file: FileId,
    problems: &'a mut Problems,
    /// Whether the current key determines which topics are read or written.
    is_wiring: bool,
}

impl Validator<'_> {
    fn place(&self, position: Position) -> Place {
        Place { file: self.file, position }
    }

    /// Reports an error that makes the intended value unknown.
    fn unclear(&mut self, position: Position, is_wiring: bool, message: String, help: &str) {
        if is_wiring {
            self.problems.hide_wiring();
        }
        self.problems.error(self.place(position), message, help);
    }

    /// Checks a value. `label` names it: `` `args` `` or `` an entry of `args` ``.
    fn value(&mut self, node: &Node, shape: &Shape, label: &str) {
        match shape {
            Shape::List(of) => self.list(node, of, label),
            Shape::Map { key, value } => self.map(node, *key, value, label),
            Shape::Object(object) => self.object(node, object, label),
            Shape::Either { if_key, then, otherwise } => {
                let object = if node.get(if_key).is_some() { then } else { otherwise };
                self.object(node, object, label);
            }
            _ => self.scalar(node, shape, label),
        }
    }

    fn list(&mut self, node: &Node, of: &Shape, label: &str) {
        let Value::List(nodes) = &node.value else {
            return self.wrong_type(node, label, "a list", "write one entry a line, each behind a dash: `- entry`");
        };
        for node in nodes {
            self.value(node, of, &format!("an entry of {label}"));
        }
    }

    fn map(&mut self, node: &Node, key: MapKey, value: &Shape, label: &str) {
        let Value::Map(entries) = &node.value else {
            return self.wrong_type(node, label, "a map", "write one `NAME: value` a line");
        };
        for entry in entries {
            let checked = match key {
                MapKey::Name => value::name(&entry.key).map(drop),
                MapKey::Variable => value::variable(&entry.key),
            };
            if let Err(Wrong { message, help }) = checked {
                self.problems.error(self.place(entry.key_position), message, help);
            }
            self.value(&entry.node, value, &quoted(&entry.key));
        }
    }

    fn object(&mut self, node: &Node, object: &'static Object, label: &str) {
        let Value::Map(entries) = &node.value else {
            let help = match object.keys.iter().all(|key| !key.is_required) {
                true => String::from("write one `KEY: value` a line; `{}` for the defaults"),
                false => format!("write one `KEY: value` a line; {}", keys_of(object)),
            };
            return self.wrong_type(node, label, "a map", &help);
        };
        for entry in entries {
            match object.key(&entry.key) {
                Some(key) => {
                    self.is_wiring = key.is_wiring;
                    self.value(&entry.node, &key.shape, &quoted(key.name));
                }
                None => self.unknown_key(entry, object),
            }
        }
        let has = |name: &str| entries.iter().any(|entry| &*entry.key == name);
        for key in object.keys.iter().filter(|key| key.is_required && !has(key.name)) {
            self.missing_key(node, key, object);
        }
        if !object.one_of.is_empty() {
            let count = object.one_of.iter().filter(|name| has(name)).count();
            self.one_of(node, object, count);
        }
    }

    fn unknown_key(&mut self, entry: &Entry, object: &'static Object) {
        let mut message = format!("unknown key {} in {}", quoted(&entry.key), object.what);
        let near = nearest(&entry.key, object.names());
        if let Some(near) = near {
            message.push_str(&format!("; did you mean `{near}`?"));
        }
        let is_wiring = near.and_then(|near| object.key(near)).is_some_and(|key| key.is_wiring);
        let help = match &*entry.key {
            "<<" => String::from("merge keys are not part of YAML 1.2; give the whole value by an alias: `key: *name`"),
            _ => keys_of(object),
        };
        self.unclear(entry.key_position, is_wiring, message, &help);
    }

    fn missing_key(&mut self, node: &Node, key: &Key, object: &Object) {
        let message = format!("the key `{}` is missing in {}", key.name, object.what);
        self.unclear(node.position, key.is_wiring, message, &format!("add `{}:`. {}", key.name, key.help));
    }

    fn one_of(&mut self, node: &Node, object: &Object, count: usize) {
        let kinds = listed(object.one_of.iter().copied(), "and");
        let message = match count {
            0 => format!("{} without a kind", object.what),
            1 => return,
            _ => format!("{} of more than one kind", object.what),
        };
        self.unclear(node.position, false, message, &format!("give it exactly one of {kinds}"));
    }

    fn wrong_type(&mut self, node: &Node, label: &str, expected: &str, help: &str) {
        let is = match &node.value {
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Scalar(scalar) => match scalar.kind() {
                ScalarKind::Null => "empty",
                ScalarKind::Flag(_) => "a truth value",
                ScalarKind::Number => "a number",
                ScalarKind::Text => "text",
            },
        };
        let message = format!("{label} must be {expected}, but is {is}");
        self.unclear(node.position, self.is_wiring, message, help);
    }

    fn scalar(&mut self, node: &Node, shape: &Shape, label: &str) {
        let (expected, example) = expectation(shape);
        let Value::Scalar(scalar) = &node.value else {
            return self.wrong_type(node, label, expected, &example);
        };
        if !fits(scalar, shape) {
            let help = match scalar.kind() {
                ScalarKind::Null => format!("{example}, or remove the key"),
                _ if expected == "text" => {
                    format!("write it in quotes: \"{}\"", quoted(&scalar.text).trim_matches('`'))
                }
                _ => example,
            };
            return self.wrong_type(node, label, expected, &help);
        }
        if let Err(Wrong { message, help }) = checked(&scalar.text, shape) {
            self.problems.error(self.place(node.position), format!("{label}: {message}"), help);
        }
    }
}

fn keys_of(object: &'static Object) -> String {
    match object.keys {
        [only] => format!("the only key of {} is {}", object.what, only.name),
        _ => format!("the keys of {} are {}", object.what, listed(object.names(), "and")),
    }
}

/// The name of a scalar's type, and how to write one.
fn expectation(shape: &Shape) -> (&'static str, String) {
    match shape {
        Shape::Flag => ("true or false", String::from("write true or false")),
        Shape::Count { min, max } => ("a whole number", format!("write a whole number from {min} to {max}")),
        Shape::Size { .. } => ("a size", String::from("write a size such as 64KiB")),
        Shape::Time { .. } => ("a time", String::from("write a time such as 100ms")),
        Shape::Choice(words) => ("a word", format!("write {}", one_word(words))),
        Shape::WebsocketUrl => ("a URL", String::from("write ws://HOST:PORT/PATH")),
        Shape::NatsUrl => ("a URL", String::from("write nats://HOST:PORT")),
        Shape::Path | Shape::HttpPath => ("a path", String::from("write a path")),
        Shape::HostPort | Shape::Listen => ("an address", String::from("write an address such as 127.0.0.1:8080")),
        _ => ("text", String::from("write a text")),
    }
}

/// Whether a scalar is of the kind that a shape expects.
fn fits(scalar: &Scalar, shape: &Shape) -> bool {
    match (shape, scalar.kind()) {
        (_, ScalarKind::Null) => false,
        (Shape::Flag, kind) => matches!(kind, ScalarKind::Flag(_)),
        (Shape::Count { .. }, kind) => kind == ScalarKind::Number,
        (Shape::Size { .. }, kind) => matches!(kind, ScalarKind::Number | ScalarKind::Text),
        (Shape::Text, _) => true,
        (_, kind) => kind == ScalarKind::Text,
    }
}

/// Checks a scalar's text.
fn checked(text: &str, shape: &Shape) -> Result<(), Wrong> {
    match shape {
        Shape::Name => value::name(text).map(drop),
        Shape::Path => value::path(text).map(drop),
        Shape::WebsocketUrl => value::websocket_url(text).map(drop),
        Shape::NatsUrl => value::nats_url(text).map(drop),
        Shape::Token => value::token(text),
        Shape::HostPort => value::host_port(text).map(drop),
        Shape::Listen => value::listen(text).map(drop),
        Shape::HttpPath => value::http_path(text).map(drop),
        Shape::Count { min, max } => value::count(text, *min, *max).map(drop),
        Shape::Size { min, max } => value::size(text, *min, *max).map(drop),
        Shape::Time { min, max } => value::time(text, *min, *max).map(drop::<Duration>),
        Shape::Choice(words) => choice(text, words),
        Shape::Text if text.contains('\0') => Err(Wrong::new("text with a null character", "remove it")),
        _ => Ok(()),
    }
}

fn choice(text: &str, words: &'static [Word]) -> Result<(), Wrong> {
    if words.iter().any(|word| word.word == text) {
        return Ok(());
    }
    let mut message = format!("{} is not known", quoted(text));
    if let Some(near) = nearest(text, words.iter().map(|word| word.word)) {
        message.push_str(&format!("; did you mean `{near}`?"));
    }
    Err(Wrong::new(message, format!("write {}", one_word(words))))
}

fn one_word(words: &'static [Word]) -> String {
    match words {
        [only] => format!("{}, the only one so far", only.word),
        _ => listed(words.iter().map(|word| word.word), "or"),
    }
}
