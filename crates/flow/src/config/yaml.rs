//! Parses YAML into a tree in which every key and value has its position.
//!
//! Bounds on bytes, depth and nodes protect against hostile input. An alias counts as everything
//! that it expands to. A few lines that expand to billions of nodes are therefore an error after
//! the first [`MAX_NODES`].

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput, Tag};

use super::diagnostic::{Position, quoted};

/// The maximum size of a file in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// The maximum nesting of lists and maps.
const MAX_DEPTH: usize = 32;
/// The maximum number of keys and values in a file, with aliases expanded.
const MAX_NODES: usize = 20_000;

/// A value, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) position: Position,
    pub(super) value: Value,
}

/// The value of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A value that is not a list or map.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalar {
    /// The text, with quotes and escapes resolved.
    pub(super) text: Arc<str>,
    /// Whether it is written without quotes, so that it may be a number, a boolean or null.
    pub(super) is_plain: bool,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Arc<str>,
    pub(super) key_position: Position,
    pub(super) node: Node,
}

/// The type of a plain scalar by the core schema of YAML 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarKind {
    Null,
    Flag(bool),
    Number,
    Text,
}

impl Scalar {
    pub(super) fn kind(&self) -> ScalarKind {
        if !self.is_plain {
            return ScalarKind::Text;
        }
        match &*self.text {
            "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
            "true" | "True" | "TRUE" => ScalarKind::Flag(true),
            "false" | "False" | "FALSE" => ScalarKind::Flag(false),
            text if is_number(text) => ScalarKind::Number,
            _ => ScalarKind::Text,
        }
    }
}

/// Whether a plain scalar is a number: an integer, also hexadecimal or octal, or a float.
fn is_number(text: &str) -> bool {
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|character| character.is_digit(radix));
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return digits(hexadecimal, 16);
    }
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    // Rust also parses some words as floats (`infinity`); in YAML they are text.
    unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned.contains(|any: char| any.is_ascii_digit())
        && unsigned.parse::<f64>().is_ok()
}

impl Node {
    /// The value of a key. None if this is not a map, or has no such key.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        let Value::Map(entries) = &self.value else { return None };
        entries.iter().find(|entry| &*entry.key == key).map(|entry| &entry.node)
    }

    /// The number of keys and values in this tree, including itself.
    fn count(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(nodes) => nodes.iter().map(Node::count).sum(),
            Value::Map(entries) => entries.iter().map(|entry| 1 + entry.node.count()).sum(),
        }
    }

    /// The depth of nested lists and maps.
    fn depth(&self) -> usize {
        match &self.value {
            Value::Scalar(_) => 0,
            Value::List(nodes) => 1 + nodes.iter().map(Node::depth).max().unwrap_or(0),
            Value::Map(entries) => 1 + entries.iter().map(|entry| entry.node.depth()).max().unwrap_or(0),
        }
    }
}

/// Why a file could not be parsed, or an error in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) position: Position,
    pub(super) message: String,
    pub(super) help: String,
}

impl Failure {
    fn new(position: Position, message: impl Into<String>, help: impl Into<String>) -> Failure {
        Failure { position, message: message.into(), help: help.into() }
    }
}

/// The tree of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    pub(super) root: Node,
    /// The number of its keys and values.
    pub(super) nodes: usize,
    /// Keys that occur twice in a map. The tree contains the first value of each.
    pub(super) duplicates: Vec<Failure>,
}

/// Parses a file. It must contain one document that is not empty.
pub(super) fn parse(bytes: &[u8]) -> Result<Document, Failure> {
    if bytes.len() > MAX_BYTES {
        let message = format!("the file is longer than {} MiB", MAX_BYTES >> 20);
        return Err(Failure::new(Position::default(), message, "a pipeline is shorter: is it another file?"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(&bytes[..error.valid_up_to()]))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    let mut last = Position { line: 1, column: 1 };
    while let Some(event) = next(&mut parser)? {
        last = event.1;
        builder.event(event)?;
    }
    let root = builder.root.ok_or_else(|| {
        let help = "write a pipeline, or have `estafette flow new` write an example";
        Failure::new(last, "the file is empty", help)
    })?;
    Ok(Document { root, nodes: builder.nodes, duplicates: builder.duplicates })
}

fn not_utf8(valid: &[u8]) -> Failure {
    let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
    let of_line = valid.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(of_line).chars().count() + 1;
    Failure::new(Position { line, column }, "the file is not text in UTF-8", "save it as UTF-8")
}

fn position(marker: &Marker) -> Position {
    // The parser's columns begin at 0, as does the line of an event without a position.
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

type Located<'a> = (Event<'a>, Position);

fn next<'a>(parser: &mut Parser<'a, StrInput<'a>>) -> Result<Option<Located<'a>>, Failure> {
    match parser.next_event() {
        None => Ok(None),
        Some(Ok((event, span))) => Ok(Some((event, position(&span.start)))),
        Some(Err(error)) => {
            let help = "check indentation, quotes and brackets from there upwards";
            Err(Failure::new(position(error.marker()), format!("not YAML: {}", error.info()), help))
        }
    }
}

/// A list or map whose end has not been read yet.
struct Open {
    position: Position,
    anchor: usize,
    value: Value,
    /// In a map: the key whose value comes next.
    key: Option<(Arc<str>, Position)>,
}

/// Builds a tree from parser events.
#[derive(Default)]
struct Builder {
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    anchors: HashMap<usize, Node>,
    duplicates: Vec<Failure>,
}

impl Builder {
    fn event(&mut self, (event, position): Located) -> Result<(), Failure> {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let help = "keep one document in a file, without a second `---`";
                    return Err(Failure::new(position, "a second document in the file", help));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                let forced = known_tag(tag.as_deref(), position)? == Some("str");
                let is_plain = style == ScalarStyle::Plain && !forced;
                let value = Value::Scalar(Scalar { text: Arc::from(&*text), is_plain });
                self.count(1, position)?;
                self.finish(Node { position, value }, anchor)
            }
            Event::SequenceStart(anchor, tag) => self.start(Value::List(Vec::new()), anchor, tag.as_deref(), position),
            Event::MappingStart(anchor, tag) => self.start(Value::Map(Vec::new()), anchor, tag.as_deref(), position),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { position, anchor, value, .. }) => self.finish(Node { position, value }, anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => self.alias(anchor, position),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Nothing => Ok(()),
        }
    }

    /// Counts nodes. Fails if there are too many.
    fn count(&mut self, nodes: usize, position: Position) -> Result<(), Failure> {
        self.nodes += nodes;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let message = format!("more than {MAX_NODES} keys and values, aliases expanded");
        Err(Failure::new(position, message, "write less, or fewer aliases (`*name`)"))
    }

    fn start(&mut self, value: Value, anchor: usize, tag: Option<&Tag>, position: Position) -> Result<(), Failure> {
        known_tag(tag, position)?;
        self.count(1, position)?;
        self.check_depth(self.open.len() + 1, position)?;
        self.open.push(Open { position, anchor, value, key: None });
        Ok(())
    }

    fn check_depth(&self, depth: usize, position: Position) -> Result<(), Failure> {
        if depth <= MAX_DEPTH {
            return Ok(());
        }
        let message = format!("lists and maps are nested deeper than {MAX_DEPTH}");
        Err(Failure::new(position, message, "a pipeline is flatter: is it another file?"))
    }

    fn alias(&mut self, anchor: usize, position: Position) -> Result<(), Failure> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(Failure::new(
                position,
                "an alias of something that is not finished here",
                "name another anchor",
            ));
        };
        let node = node.clone();
        self.count(node.count(), position)?;
        self.check_depth(self.open.len() + node.depth(), position)?;
        // Errors in its content are reported at the anchor. Errors of its use as a key are reported
        // here.
        self.finish(node, 0)
    }

    /// Adds a finished value to the list or map that contains it.
    fn finish(&mut self, node: Node, anchor: usize) -> Result<(), Failure> {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
            self.count(node.count(), node.position)?;
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut parent.value {
            Value::List(nodes) => nodes.push(node),
            Value::Map(entries) => match parent.key.take() {
                None => parent.key = Some(key(node)?),
                Some((key, key_position)) => match entries.iter().find(|entry| entry.key == key) {
                    Some(first) => self.duplicates.push(duplicate(first, key_position)),
                    None => entries.push(Entry { key, key_position, node }),
                },
            },
            Value::Scalar(_) => {}
        }
        Ok(())
    }
}

fn key(node: Node) -> Result<(Arc<str>, Position), Failure> {
    match node.value {
        Value::Scalar(scalar) => Ok((scalar.text, node.position)),
        _ => Err(Failure::new(node.position, "a list or map as a key", "write a word before the colon")),
    }
}

fn duplicate(first: &Entry, second: Position) -> Failure {
    let message = format!("the key {} is there twice", quoted(&first.key));
    Failure::new(second, message, format!("remove one of the two; the first is in line {}", first.key_position.line))
}

/// Returns the suffix of a standard YAML tag. Other tags are errors.
fn known_tag(tag: Option<&Tag>, position: Position) -> Result<Option<&str>, Failure> {
    match tag {
        None => Ok(None),
        Some(tag) if tag.is_yaml_core_schema() => Ok(Some(&tag.suffix)),
        Some(tag) => {
            let name = quoted(&format!("{}{}", tag.handle, tag.suffix));
            Err(Failure::new(position, format!("the tag {name} has no meaning here"), "remove it"))
        }
    }
}

#[cfg(test)]
mod tests;
