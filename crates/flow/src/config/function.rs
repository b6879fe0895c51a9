//! A function: its WASM module, its input and outputs, and its limits and permissions.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// A function of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Function {
    /// Its name in logs, metrics and `flow reload`.
    pub name: String,
    /// Its kind of input.
    pub kind: FunctionKind,
    /// Its module's file: a core module, a component, or the text format of one (`.wat`).
    pub module: PathBuf,
    /// Its arguments. The guest gets the first as argument 0, as there is no program name before
    /// it.
    pub args: Vec<String>,
    /// The input stream of a function of [`FunctionKind::Input`]. None for a processor.
    pub stream: Option<Stream>,
    /// The input topic of a processor. A processor without one is a sender, which does its work in
    /// its start function.
    pub input: Option<Input>,
    /// The topics that it may send to. The guest refers to them by their index here. One topic may
    /// have several indexes.
    pub output: Vec<String>,
    /// The number of instances, 1 to [`Function::MAX_REPLICAS`]; 1 by default. They compete for the
    /// messages.
    pub replicas: u32,
    /// Where an instance runs.
    pub isolation: Isolation,
    /// How an instance waits for messages, and for space to send.
    pub wait: Wait,
    /// The resource limits of an instance.
    pub limits: Limits,
    /// When a failed instance is restarted.
    pub restart: Restart,
    /// What an instance may access outside of its memory.
    pub allow: Grants,
}

impl Function {
    /// The maximum number of instances of a function, and of members of a queue group. A ring can
    /// record the claims of so many.
    pub const MAX_REPLICAS: u32 = estafette_ipc::group::MAX_MEMBERS as u32;
}

/// The kind of input of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionKind {
    /// A topic, or no input. The default.
    #[default]
    Processor,
    /// A stream from outside of the pipeline, to which the supervisor connects.
    Input,
}

/// A stream from outside of the pipeline that is the input of one function. The function may reply
/// on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// A WebSocket server to connect to. Each text or binary message is one message for the
    /// function.
    Websocket {
        /// `ws://` or `wss://`, a host, and optionally a port and a path.
        url: String,
    },
}

/// The input topic of a function or a sink, and the queue through which it reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The topic.
    pub topic: String,
    /// The queue on the topic.
    pub queue: Queue,
}

/// The queue of a reader. Readers of one queue compete for messages; every queue gets each message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// No queue is given. All such readers of the topic compete.
    #[default]
    Unnamed,
    /// Readers of the topic with the same queue name compete.
    Named(String),
    /// `queue: each`: this reader gets its own copy of each message. Its replicas compete for the
    /// copies.
    Each,
}

impl Queue {
    /// The word in YAML for [`Queue::Each`].
    pub const EACH: &str = "each";
}

/// Where an instance of a function runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// In its own process. The default.
    #[default]
    Process,
    /// In a thread of a process that is shared with other such instances of the pipeline.
    Thread,
}

/// How an instance waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Polls for about as long as a wake-up costs, then sleeps. The default.
    #[default]
    Adaptive,
    /// Polls and never sleeps. Lowest latency, but uses a whole core.
    Spin,
    /// Sleeps at once.
    Block,
}

/// The resource limits of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The maximum size of its linear memory, in bytes; 256 MiB by default. A `memory.grow` beyond
    /// it fails.
    pub memory: u64,
    /// The maximum time without a call to the host; 5 s by default. A longer time is treated as an
    /// endless loop.
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 256 << 20, call: Duration::from_secs(5) }
    }
}

/// When a failed instance is restarted. An instance fails by a trap, an exit with an error, a
/// limit, or a killed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// The number of restarts that are allowed in the window `within`; 5 by default, 0 for none.
    pub max: u32,
    /// The time window in which restarts are counted; 60 s by default.
    pub within: Duration,
    /// The delay before the first restart of a window; 100 ms by default. It doubles with each
    /// restart.
    pub initial_delay: Duration,
    /// The maximum delay; 5 s by default.
    pub max_delay: Duration,
    /// What happens when no restart is left.
    pub then: Exhausted,
}

impl Default for Restart {
    fn default() -> Restart {
        Restart {
            max: 5,
            within: Duration::from_secs(60),
            initial_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            then: Exhausted::default(),
        }
    }
}

/// What happens when an instance fails and no restart is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exhausted {
    /// The pipeline stops with an error. The default.
    #[default]
    Stop,
    /// The pipeline continues without the instance.
    Continue,
}

/// What an instance may access outside of its memory. By default, clocks and random numbers are
/// granted, as the reference's functions use both; nothing else is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grants {
    /// Its environment variables. It gets no others.
    pub env: BTreeMap<String, String>,
    /// The folders it may open.
    pub directories: Vec<DirectoryGrant>,
    /// Whether it may read clocks; true by default.
    pub clocks: bool,
    /// Whether it may read random numbers; true by default.
    pub random: bool,
    /// The hosts it may connect to.
    pub network: Vec<HostPort>,
}

impl Default for Grants {
    fn default() -> Grants {
        Grants { env: BTreeMap::new(), directories: Vec::new(), clocks: true, random: true, network: Vec::new() }
    }
}

/// A folder that a function may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DirectoryGrant {
    /// The folder on this machine.
    pub host: PathBuf,
    /// The path under which the function sees the folder; by default, `host` as written.
    pub guest: String,
    /// Whether the function may change the folder's content; false by default.
    pub write: bool,
}

/// A host and a port, as in `example.org:443` or `[::1]:80`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostPort {
    /// A name or an IP address, IPv6 without brackets.
    pub host: String,
    /// The port, 1 to 65535.
    pub port: u16,
}

impl Display for HostPort {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}
