//! All keys of a pipeline's files. The check, the suggestions and the JSON schemas are made from
//! this table.

use std::time::Duration;

use super::function::Function;
use super::shape::{Key, MapKey, Object, Shape, Word};
use super::topic::Topic;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const YEAR: Duration = Duration::from_secs(366 * 24 * 60 * 60);
/// The address space of 32-bit linear memory.
const MAX_MEMORY: u64 = 4 << 30;
const NAMES: Shape = Shape::List(&Shape::Name);
const ON: Key = Key::new("on", Shape::Name, "The host it runs on, one of `hosts`. Required if there are `hosts`.");

/// The pipeline's file.
pub(super) static PIPELINE: Object = Object {
    what: "a pipeline",
    definition: "Pipeline",
    help: "A pipeline: functions, sources and sinks, joined by topics.",
    keys: &[
        Key::new("functions", Shape::List(&ENTRY), "The functions: in place, or by the paths of their own files.")
            .required()
            .wiring(),
        Key::new("sources", Shape::List(&Shape::Object(&SOURCE)), "What brings messages in.").wiring(),
        Key::new("sinks", Shape::List(&Shape::Object(&SINK)), "What carries messages out.").wiring(),
        Key::new(
            "topics",
            Shape::Map { key: MapKey::Name, value: &Shape::Object(&TOPIC) },
            "Policies of topics. A topic that is left out has the defaults.",
        )
        .wiring(),
        Key::new(
            "hosts",
            NAMES,
            "The machines that the pipeline runs on, by names of your choice. `flow run --host NAME` starts one's part.",
        ),
        Key::new("nats", Shape::Object(&NATS), "The NATS server for topics that cross machines."),
    ],
    one_of: &[],
};

static NATS: Object = Object {
    what: "`nats`",
    definition: "Nats",
    help: "The NATS server for topics with `transport: nats`.",
    keys: &[
        Key::new("servers", Shape::List(&Shape::NatsUrl), "The servers of one cluster: nats://HOST:PORT or tls://HOST:PORT.")
            .required(),
        Key::new(
            "prefix",
            Shape::Token,
            "The first word of all subjects and streams of this pipeline: letters, digits, `-` and `_`. No other pipeline \
             on the server may have the same.",
        )
        .required(),
        Key::new("credentials", Shape::Path, "A credentials file (.creds), as `nsc` makes them."),
        Key::new("tls", Shape::Object(&NATS_TLS), "Certificates. With it, connections without TLS are refused."),
        Key::new(
            "ack_wait",
            Shape::Time { min: Duration::from_secs(1), max: HOUR },
            "After how long without a sign of life the server delivers the messages of a host again.",
        )
        .default("30s"),
        Key::new("stream", Shape::Object(&NATS_STREAM), "The limits of streams that do not exist yet."),
    ],
    one_of: &[],
};

static NATS_TLS: Object = Object {
    what: "`tls`",
    definition: "NatsTls",
    help: "Certificates for connections to the NATS server. `{}`: those that the system trusts.",
    keys: &[
        Key::new("ca", Shape::Path, "The certificates to trust beside the system's, in a PEM file."),
        Key::new("certificate", Shape::Path, "This host's own certificate, in a PEM file; with `key`."),
        Key::new("key", Shape::Path, "The key of `certificate`, in a PEM file."),
    ],
    one_of: &[],
};

static NATS_STREAM: Object = Object {
    what: "`stream`",
    definition: "NatsStream",
    help: "The limits of a stream: one for each topic that crosses hosts and is delivered at least once.",
    keys: &[
        Key::new(
            "max_age",
            Shape::Time { min: Duration::from_secs(1), max: YEAR },
            "After how long a message is lost though nobody has processed it; never unless given.",
        ),
        Key::new(
            "max_bytes",
            Shape::Size { min: 64 << 10, max: 1 << 50 },
            "How much a stream keeps. Senders wait while it is full.",
        )
        .default("256MiB"),
        Key::new("replicas", Shape::Count { min: 1, max: 5 }, "On how many servers of the cluster a stream is kept.")
            .default("1"),
    ],
    one_of: &[],
};

const ENTRY: Shape = Shape::Either { if_key: "config", then: &REFERENCE, otherwise: &FUNCTION };

/// An entry of `functions` that refers to a file.
pub(super) static REFERENCE: Object = Object {
    what: "an entry with `config`",
    definition: "FunctionReference",
    help: "A function that is described in a file of its own.",
    keys: &[
        Key::new("name", Shape::Name, "The function's name, as in its file.").required(),
        Key::new("config", Shape::Path, "The function's file, relative to the working folder or else to this file.")
            .required()
            .wiring(),
    ],
    one_of: &[],
};

/// A function, inline or in its own file.
pub(super) static FUNCTION: Object = Object {
    what: "a function",
    definition: "Function",
    help: "A WASM module, what feeds it, where its messages go and what it may do.",
    keys: &[
        Key::new("name", Shape::Name, "Its name in logs, metrics and `flow reload`.").required(),
        ON,
        Key::new("kind", Shape::Choice(KINDS), "What feeds it.").default("processor"),
        Key::new("module", Shape::Object(&MODULE), "Its WASM file.").required(),
        Key::new("args", Shape::List(&Shape::Text), "Its arguments. The guest sees the first as argument 0."),
        Key::new("stream", Shape::Object(&STREAM), "The stream that feeds a function of kind `input`."),
        Key::new("input", Shape::Object(&INPUT), "The topic that feeds it. A processor without one is a sender.")
            .wiring(),
        Key::new("output", Shape::Object(&OUTPUT), "Where it may send to.").wiring(),
        Key::new(
            "replicas",
            Shape::Count { min: 1, max: Function::MAX_REPLICAS as u64 },
            "How many instances run and compete for the messages.",
        )
        .default("1"),
        Key::new("isolation", Shape::Choice(ISOLATIONS), "Where an instance runs.").default("process"),
        Key::new("wait", Shape::Choice(WAITS), "How an instance waits for messages, and for space to send.")
            .default("adaptive"),
        Key::new("limits", Shape::Object(&LIMITS), "What an instance may use."),
        Key::new("restart", Shape::Object(&RESTART), "What follows when an instance fails."),
        Key::new("allow", Shape::Object(&ALLOW), "What an instance may see and do outside of its memory."),
    ],
    one_of: &[],
};

const KINDS: &[Word] = &[
    Word { word: "processor", help: "It is fed by a topic, or by nothing: a sender." },
    Word { word: "input", help: "It is fed by a stream." },
];

const ISOLATIONS: &[Word] = &[
    Word { word: "process", help: "In a process of its own." },
    Word { word: "thread", help: "In a thread of a process that it shares with other such instances." },
];

const WAITS: &[Word] = &[
    Word { word: "adaptive", help: "Polls for about as long as a wake-up costs, then sleeps." },
    Word { word: "spin", help: "Polls and never sleeps: a whole core for the lowest latency." },
    Word { word: "block", help: "Sleeps at once." },
];

static MODULE: Object = Object {
    what: "a module",
    definition: "Module",
    help: "A WASM file.",
    keys: &[Key::new("path", Shape::Path, "A core module, a component or the text of one (.wat).").required()],
    one_of: &[],
};

static STREAM: Object = Object {
    what: "a stream",
    definition: "Stream",
    help: "A stream from outside. The function may answer on it.",
    keys: &[Key::new("websocket", Shape::Object(&WEBSOCKET), "A WebSocket server to connect to.").required()],
    one_of: &[],
};

static WEBSOCKET: Object = Object {
    what: "a WebSocket",
    definition: "Websocket",
    help: "A WebSocket server to connect to.",
    keys: &[Key::new("url", Shape::WebsocketUrl, "ws://HOST:PORT/PATH or wss://HOST/PATH.").required()],
    one_of: &[],
};

static INPUT: Object = Object {
    what: "an input",
    definition: "Input",
    help: "A topic to read, and with whom to share its messages.",
    keys: &[
        Key::new("topic", Shape::Name, "The topic.").required().wiring(),
        Key::new(
            "queue",
            Shape::Name,
            "Readers of one queue compete for messages; each queue gets every message. `each`: a queue for this reader \
             alone. Readers without a queue compete.",
        ),
    ],
    one_of: &[],
};

static OUTPUT: Object = Object {
    what: "an output",
    definition: "Output",
    help: "Topics to write.",
    keys: &[Key::new("topics", NAMES, "The topics. A function names them by their index here, from 0.")
        .required()
        .wiring()],
    one_of: &[],
};

static LIMITS: Object = Object {
    what: "`limits`",
    definition: "Limits",
    help: "What an instance may use.",
    keys: &[
        Key::new("memory", Shape::Size { min: 64 << 10, max: MAX_MEMORY }, "The size of its linear memory.")
            .default("256MiB"),
        Key::new(
            "call",
            Shape::Time { min: MS, max: HOUR },
            "The longest that a call may go on without sending or returning. Calls of WASI, such as a sleep, count; a send that waits for space does not.",
        )
        .default("5s"),
    ],
    one_of: &[],
};

static RESTART: Object = Object {
    what: "`restart`",
    definition: "Restart",
    help: "What follows when an instance fails.",
    keys: &[
        Key::new("max", Shape::Count { min: 0, max: 1_000_000 }, "How many restarts are allowed in the time `within`.")
            .default("5"),
        Key::new("within", Shape::Time { min: MS, max: HOUR }, "The window in which restarts are counted.")
            .default("60s"),
        Key::new("initial_delay", Shape::Time { min: Duration::ZERO, max: HOUR }, "The first delay. It doubles.")
            .default("100ms"),
        Key::new("max_delay", Shape::Time { min: Duration::ZERO, max: HOUR }, "The longest delay.").default("5s"),
        Key::new("then", Shape::Choice(EXHAUSTED), "What follows when no restart is left.").default("stop"),
    ],
    one_of: &[],
};

const EXHAUSTED: &[Word] = &[
    Word { word: "stop", help: "The pipeline stops with an error." },
    Word { word: "continue", help: "The pipeline goes on without the instance." },
];

static ALLOW: Object = Object {
    what: "`allow`",
    definition: "Grants",
    help: "What an instance may see and do outside of its memory.",
    keys: &[
        Key::new("env", Shape::Map { key: MapKey::Variable, value: &Shape::Text }, "Its environment variables."),
        Key::new("directories", Shape::List(&Shape::Object(&DIRECTORY)), "The folders it may open."),
        Key::new("clocks", Shape::Flag, "Whether it may read clocks.").default("true"),
        Key::new("random", Shape::Flag, "Whether it may draw random numbers.").default("true"),
        Key::new("network", Shape::List(&Shape::HostPort), "The hosts it may connect to, as HOST:PORT."),
    ],
    one_of: &[],
};

static DIRECTORY: Object = Object {
    what: "a directory",
    definition: "Directory",
    help: "A folder that a function may open.",
    keys: &[
        Key::new("host", Shape::Path, "The folder on this machine.").required(),
        Key::new("guest", Shape::Path, "The path under which the function sees it; as `host` unless given."),
        Key::new("write", Shape::Flag, "Whether the function may change what is in it.").default("false"),
    ],
    one_of: &[],
};

pub(super) static SOURCE: Object = Object {
    what: "a source",
    definition: "Source",
    help: "Brings messages in, from one of stdin, file, http, timer and websocket.",
    keys: &[
        Key::new("name", Shape::Name, "Its name in logs and metrics.").required(),
        ON,
        Key::new("stdin", Shape::Choice(FRAMINGS), "Standard input."),
        Key::new("file", Shape::Object(&FILE_SOURCE), "A file, read once."),
        Key::new("http", Shape::Object(&HTTP), "An HTTP server: the body of each POST is a message."),
        Key::new("timer", Shape::Object(&TIMER), "A clock: each message is the tick's number, from 0, in digits."),
        Key::new("websocket", Shape::Object(&WEBSOCKET), "A WebSocket server to connect to."),
        Key::new("output", Shape::Object(&OUTPUT), "The topics that get each message.").required().wiring(),
    ],
    one_of: &["stdin", "file", "http", "timer", "websocket"],
};

const FRAMINGS: &[Word] = &[
    Word { word: "lines", help: "Each line is a message, without its line feed." },
    Word { word: "whole", help: "All bytes up to the end are one message." },
];

static FILE_SOURCE: Object = Object {
    what: "a file to read",
    definition: "FileSource",
    help: "A file, read once from its beginning to its end.",
    keys: &[
        Key::new("path", Shape::Path, "The file.").required(),
        Key::new("framing", Shape::Choice(FRAMINGS), "How it becomes messages.").default("lines"),
    ],
    one_of: &[],
};

static HTTP: Object = Object {
    what: "an HTTP server",
    definition: "Http",
    help: "An HTTP server: the body of each POST is a message, answered when the topics have accepted it.",
    keys: &[
        Key::new("listen", Shape::Listen, "The IP address and port to listen at. Port 0 is any free one.").required(),
        Key::new("path", Shape::HttpPath, "The path of the requests.").default("/"),
    ],
    one_of: &[],
};

static TIMER: Object = Object {
    what: "a timer",
    definition: "Timer",
    help: "A clock: each message is the tick's number, from 0, in decimal digits.",
    keys: &[
        Key::new("every", Shape::Time { min: Duration::from_micros(1), max: HOUR }, "The time between two messages.")
            .required(),
        Key::new("count", Shape::Count { min: 1, max: 1 << 53 }, "How many messages; without end unless given."),
    ],
    one_of: &[],
};

pub(super) static SINK: Object = Object {
    what: "a sink",
    definition: "Sink",
    help: "Carries messages out, to one of stdout, file and websocket.",
    keys: &[
        Key::new("name", Shape::Name, "Its name in logs and metrics.").required(),
        ON,
        Key::new("input", Shape::Object(&INPUT), "The topic it reads.").required().wiring(),
        Key::new("stdout", Shape::Choice(LAYOUTS), "Standard output."),
        Key::new("file", Shape::Object(&FILE_SINK), "A file to write."),
        Key::new("websocket", Shape::Object(&WEBSOCKET), "A WebSocket server to connect to."),
    ],
    one_of: &["stdout", "file", "websocket"],
};

const LAYOUTS: &[Word] = &[
    Word { word: "lines", help: "The bytes of each message and a line feed." },
    Word { word: "raw", help: "The bytes of each message alone." },
];

static FILE_SINK: Object = Object {
    what: "a file to write",
    definition: "FileSink",
    help: "A file to write. It is created if it does not exist.",
    keys: &[
        Key::new("path", Shape::Path, "The file.").required(),
        Key::new("append", Shape::Flag, "Whether to add to what is in the file, or replace it.").default("true"),
        Key::new("layout", Shape::Choice(LAYOUTS), "What is written for a message.").default("lines"),
    ],
    one_of: &[],
};

static TOPIC: Object = Object {
    what: "a topic",
    definition: "Topic",
    help: "Policies of a topic.",
    keys: &[
        Key::new(
            "capacity",
            Shape::Size { min: 4 << 10, max: 16 << 30 },
            "How many bytes may wait in each ring: one for each producer and queue group.",
        )
        .default("4MiB"),
        Key::new(
            "max_message",
            Shape::Size { min: 1, max: 2 << 30 },
            "The longest message; 1MiB, or a quarter of `capacity` where that is less, unless given.",
        ),
        Key::new("overflow", Shape::Choice(OVERFLOWS), "What a send does while the topic is full.").default("block"),
        Key::new("delivery", Shape::Choice(DELIVERIES), "What happens to the messages of a consumer that dies.")
            .default("at-most-once"),
        Key::new(
            "max_deliver",
            Shape::Count { min: 1, max: 255 },
            "How often a message is tried at least once before it is dead; 5 unless given.",
        ),
        Key::new("dead_letter", Shape::Name, "The topic for dead messages. Without one they are dropped and counted."),
        Key::new("transport", Shape::Choice(TRANSPORTS), "How messages travel.").default("local"),
        Key::new(
            "batch",
            Shape::Size { min: 1, max: Topic::MAX_NATS_BATCH as u64 },
            "With `transport: nats`: waiting messages are sent as one NATS message of at most this size.",
        ),
        Key::new(
            "message_ids",
            Shape::Flag,
            "With `transport: nats`, at most once: whether each NATS message has the name of its producer and a number.",
        )
        .default("true"),
    ],
    one_of: &[],
};

const OVERFLOWS: &[Word] = &[
    Word { word: "block", help: "The sender waits." },
    Word { word: "drop-oldest", help: "The oldest messages that nobody has received yet are dropped and counted." },
    Word { word: "drop-new", help: "The message that is sent is dropped and counted." },
];

const DELIVERIES: &[Word] = &[
    Word { word: "at-most-once", help: "They are dropped and counted." },
    Word { word: "at-least-once", help: "They return to their group. A message may arrive twice." },
];

const TRANSPORTS: &[Word] = &[
    Word { word: "local", help: "Through shared memory of one machine." },
    Word { word: "nats", help: "Through a NATS server, if the topic's ends are on several hosts; else as `local`." },
];
