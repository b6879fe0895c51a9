//! Converts validated trees to the model. An invalid value was reported before. It gets its default
//! here, so that the other rules can still run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::Files;
use super::function::{
    DirectoryGrant, Exhausted, Function, FunctionKind, Grants, Input, Isolation, Limits, Queue, Restart, Stream, Wait,
};
use super::nats::{Nats, NatsStream, NatsTls};
use super::sink::{Layout, Sink, SinkKind};
use super::source::{Framing, Source, SourceKind};
use super::topic::{Delivery, Overflow, Topic, Transport};
use super::value::{self, Wrong};
use super::yaml::{Entry, Node, Value};

/// The folder to which the paths of a file are relative.
pub(super) enum Base<'a> {
    /// The folder of the file itself. For paths in a pipeline's own file.
    File(&'a Path),
    /// The working folder, as in the reference, or the folder of the file if nothing exists there.
    /// For paths in a function's own file, and for the paths of such files.
    Working { working: &'a Path, file: &'a Path, files: &'a dyn Files },
}

impl Base<'_> {
    /// Resolves the path of a file that is read.
    pub(super) fn resolve(&self, path: &str) -> PathBuf {
        match self {
            _ if path.is_empty() => PathBuf::new(),
            Base::File(folder) => folder.join(path),
            Base::Working { working, file, files } => {
                let (first, second) = (working.join(path), file.join(path));
                if !files.is_file(&first) && files.is_file(&second) { second } else { first }
            }
        }
    }

    /// Resolves the path of a folder, or of a file that need not exist.
    fn resolve_any(&self, path: &str) -> PathBuf {
        match self {
            _ if path.is_empty() => PathBuf::new(),
            Base::File(folder) => folder.join(path),
            Base::Working { working, .. } => working.join(path),
        }
    }
}

/// A value that may be absent or of the wrong type.
#[derive(Clone, Copy)]
pub(super) struct Part<'a>(Option<&'a Node>);

impl<'a> Part<'a> {
    pub(super) fn new(node: &'a Node) -> Part<'a> {
        Part(Some(node))
    }

    pub(super) fn get(self, key: &str) -> Part<'a> {
        Part(self.0.and_then(|node| node.get(key)))
    }

    pub(super) fn is_present(self) -> bool {
        self.0.is_some()
    }

    pub(super) fn text(self) -> Option<&'a str> {
        match &self.0?.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    fn string(self) -> Option<String> {
        self.text().map(String::from)
    }

    /// The entries of a list; empty if the value is not a list.
    pub(super) fn items(self) -> &'a [Node] {
        match self.0.map(|node| &node.value) {
            Some(Value::List(nodes)) => nodes,
            _ => &[],
        }
    }

    /// The entries of a map; empty if the value is not a map.
    pub(super) fn entries(self) -> &'a [Entry] {
        match self.0.map(|node| &node.value) {
            Some(Value::Map(entries)) => entries,
            _ => &[],
        }
    }

    fn texts(self) -> Vec<String> {
        self.items().iter().filter_map(|node| Part::new(node).string()).collect()
    }

    fn parsed<T>(self, parse: impl FnOnce(&str) -> Result<T, Wrong>) -> Option<T> {
        self.text().and_then(|text| parse(text).ok())
    }

    fn flag(self) -> Option<bool> {
        self.text().and_then(|text| text.to_ascii_lowercase().parse().ok())
    }

    fn count(self) -> Option<u64> {
        self.text().and_then(|text| text.parse().ok())
    }

    fn size(self) -> Option<u64> {
        self.parsed(|text| value::size(text, 0, u64::MAX))
    }

    fn time(self) -> Option<Duration> {
        self.parsed(|text| value::time(text, Duration::ZERO, Duration::MAX))
    }

    /// Looks up a word's meaning. Returns the default if the word is unknown.
    fn word<T: Copy + Default>(self, words: &[(&str, T)]) -> T {
        let text = self.text();
        words.iter().find(|(word, _)| Some(*word) == text).map(|(_, value)| *value).unwrap_or_default()
    }
}

pub(super) fn function(node: &Node, base: &Base) -> Function {
    let part = Part::new(node);
    let url = part.get("stream").get("websocket").get("url").string();
    Function {
        name: part.get("name").string().unwrap_or_default(),
        kind: part.get("kind").word(&[("processor", FunctionKind::Processor), ("input", FunctionKind::Input)]),
        module: part.get("module").get("path").text().map_or_else(PathBuf::new, |path| base.resolve(path)),
        args: part.get("args").texts(),
        stream: url.map(|url| Stream::Websocket { url }),
        input: input(part.get("input")),
        output: output(part),
        replicas: replicas(part),
        isolation: part.get("isolation").word(&[("process", Isolation::Process), ("thread", Isolation::Thread)]),
        wait: part.get("wait").word(&[("adaptive", Wait::Adaptive), ("spin", Wait::Spin), ("block", Wait::Block)]),
        limits: limits(part.get("limits")),
        restart: restart(part.get("restart")),
        allow: grants(part.get("allow"), base),
    }
}

fn replicas(part: Part) -> u32 {
    let count = part.get("replicas").parsed(|text| value::count(text, 1, u64::from(Function::MAX_REPLICAS)));
    count.and_then(|count| u32::try_from(count).ok()).unwrap_or(1)
}

fn output(part: Part) -> Vec<String> {
    part.get("output").get("topics").texts()
}

fn input(part: Part) -> Option<Input> {
    let queue = match part.get("queue").text() {
        None => Queue::Unnamed,
        Some(Queue::EACH) => Queue::Each,
        Some(name) => Queue::Named(name.to_owned()),
    };
    part.get("topic").string().map(|topic| Input { topic, queue })
}

fn limits(part: Part) -> Limits {
    let default = Limits::default();
    Limits {
        memory: part.get("memory").size().unwrap_or(default.memory),
        call: part.get("call").time().unwrap_or(default.call),
    }
}

fn restart(part: Part) -> Restart {
    let default = Restart::default();
    Restart {
        max: part.get("max").count().and_then(|max| u32::try_from(max).ok()).unwrap_or(default.max),
        within: part.get("within").time().unwrap_or(default.within),
        initial_delay: part.get("initial_delay").time().unwrap_or(default.initial_delay),
        max_delay: part.get("max_delay").time().unwrap_or(default.max_delay),
        then: part.get("then").word(&[("stop", Exhausted::Stop), ("continue", Exhausted::Continue)]),
    }
}

fn grants(part: Part, base: &Base) -> Grants {
    let default = Grants::default();
    let variable = |entry: &Entry| Some((entry.key.to_string(), Part::new(&entry.node).string()?));
    let host_port = |node: &Node| Part::new(node).parsed(value::host_port);
    Grants {
        env: part.get("env").entries().iter().filter_map(variable).collect::<BTreeMap<_, _>>(),
        directories: part.get("directories").items().iter().filter_map(|node| directory(node, base)).collect(),
        clocks: part.get("clocks").flag().unwrap_or(default.clocks),
        random: part.get("random").flag().unwrap_or(default.random),
        network: part.get("network").items().iter().filter_map(host_port).collect(),
    }
}

fn directory(node: &Node, base: &Base) -> Option<DirectoryGrant> {
    let part = Part::new(node);
    let host = part.get("host").text()?;
    Some(DirectoryGrant {
        host: base.resolve_any(host),
        guest: part.get("guest").text().unwrap_or(host).to_owned(),
        write: part.get("write").flag().unwrap_or(false),
    })
}

fn framing(part: Part) -> Framing {
    part.word(&[("lines", Framing::Lines), ("whole", Framing::Whole)])
}

fn layout(part: Part) -> Layout {
    part.word(&[("lines", Layout::Lines), ("raw", Layout::Raw)])
}

fn path(part: Part, base: &Base) -> PathBuf {
    part.get("path").text().map_or_else(PathBuf::new, |path| base.resolve_any(path))
}

pub(super) fn source(node: &Node, base: &Base) -> Source {
    let part = Part::new(node);
    Source {
        name: part.get("name").string().unwrap_or_default(),
        kind: source_kind(part, base).unwrap_or(SourceKind::Stdin(Framing::Lines)),
        output: output(part),
    }
}

fn source_kind(part: Part, base: &Base) -> Option<SourceKind> {
    let (stdin, file, http) = (part.get("stdin"), part.get("file"), part.get("http"));
    let (timer, websocket) = (part.get("timer"), part.get("websocket"));
    if stdin.is_present() {
        return Some(SourceKind::Stdin(framing(stdin)));
    }
    if file.is_present() {
        return Some(SourceKind::File { path: path(file, base), framing: framing(file.get("framing")) });
    }
    if http.is_present() {
        let path = http.get("path").text().unwrap_or("/").to_owned();
        return Some(SourceKind::Http { listen: http.get("listen").parsed(value::listen)?, path });
    }
    if timer.is_present() {
        return Some(SourceKind::Timer { every: timer.get("every").time()?, count: timer.get("count").count() });
    }
    Some(SourceKind::Websocket { url: websocket.get("url").string()? })
}

/// Converts a sink. If it has no topic, the topic's name is empty.
pub(super) fn sink(node: &Node, base: &Base) -> Sink {
    let part = Part::new(node);
    let (file, websocket) = (part.get("file"), part.get("websocket"));
    let kind = if file.is_present() {
        let append = file.get("append").flag().unwrap_or(true);
        SinkKind::File { path: path(file, base), append, layout: layout(file.get("layout")) }
    } else if websocket.is_present() {
        SinkKind::Websocket { url: websocket.get("url").string().unwrap_or_default() }
    } else {
        SinkKind::Stdout(layout(part.get("stdout")))
    };
    let nothing = Input { topic: String::new(), queue: Queue::Unnamed };
    Sink {
        name: part.get("name").string().unwrap_or_default(),
        input: input(part.get("input")).unwrap_or(nothing),
        kind,
    }
}

pub(super) fn topic(node: &Node) -> Topic {
    let part = Part::new(node);
    let size = |key: &str| part.get(key).size().and_then(|size| usize::try_from(size).ok());
    let capacity = size("capacity").unwrap_or(Topic::CAPACITY);
    let overflows =
        [("block", Overflow::Block), ("drop-oldest", Overflow::DropOldest), ("drop-new", Overflow::DropNew)];
    let deliveries = [("at-most-once", Delivery::AtMostOnce), ("at-least-once", Delivery::AtLeastOnce)];
    let transport = part.get("transport").word(&[("local", Transport::Local), ("nats", Transport::Nats)]);
    let max_message = match transport {
        Transport::Local => Topic::default_max_message(capacity),
        Transport::Nats => Topic::default_max_message(capacity).min(Topic::MAX_NATS_MESSAGE),
    };
    let max_deliver = part.get("max_deliver").count().and_then(|count| u8::try_from(count).ok());
    Topic {
        capacity,
        max_message: size("max_message").unwrap_or(max_message),
        overflow: part.get("overflow").word(&overflows),
        delivery: part.get("delivery").word(&deliveries),
        max_deliver: max_deliver.filter(|count| *count > 0).unwrap_or(Topic::MAX_DELIVER),
        dead_letter: part.get("dead_letter").string(),
        transport,
        batch: size("batch").unwrap_or_default(),
        message_ids: part.get("message_ids").flag().unwrap_or(true),
    }
}

/// Converts the settings of the NATS server.
pub(super) fn nats(node: &Node, base: &Base) -> Nats {
    let part = Part::new(node);
    let (tls, stream, default) = (part.get("tls"), part.get("stream"), NatsStream::default());
    let path = |part: Part| part.text().map(|path| base.resolve_any(path));
    Nats {
        servers: part.get("servers").texts(),
        prefix: part.get("prefix").string().unwrap_or_default(),
        credentials: path(part.get("credentials")),
        tls: tls.is_present().then(|| NatsTls {
            ca: path(tls.get("ca")),
            certificate: path(tls.get("certificate")).zip(path(tls.get("key"))),
        }),
        ack_wait: part.get("ack_wait").time().unwrap_or(Nats::ACK_WAIT),
        stream: NatsStream {
            max_age: stream.get("max_age").time(),
            max_bytes: stream.get("max_bytes").size().unwrap_or(default.max_bytes),
            replicas: stream.get("replicas").count().and_then(|count| usize::try_from(count).ok()).unwrap_or(1),
        },
    }
}
