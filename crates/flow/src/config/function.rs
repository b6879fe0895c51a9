//! A function: a WASM module, what feeds it, where its messages go and what it may do.

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
    /// What feeds it.
    pub kind: FunctionKind,
    /// Its file: a core module, a component or the text of one (`.wat`).
    pub module: PathBuf,
    /// Its arguments. The guest sees the first as argument 0: there is no program name before it.
    pub args: Vec<String>,
    /// The stream that feeds a function of [`FunctionKind::Input`]; none for a processor.
    pub stream: Option<Stream>,
    /// The topic that feeds a processor. One without is a sender, whose work is its start function.
    pub input: Option<Input>,
    /// The topics it may send to. The guest names them by their index here; one topic may have
    /// several indexes.
    pub output: Vec<String>,
    /// How many instances run, 1 to [`Function::MAX_REPLICAS`]; 1 by default. They compete for the
    /// messages.
    pub replicas: u32,
    /// Where an instance runs.
    pub isolation: Isolation,
    /// How an instance waits for messages, and for space to send.
    pub wait: Wait,
    /// What an instance may use.
    pub limits: Limits,
    /// What follows when an instance fails.
    pub restart: Restart,
    /// What an instance may see and do outside of its memory.
    pub allow: Grants,
}

impl Function {
    /// The most instances of a function, and the most members of a queue group: a ring has space
    /// for the claims of so many.
    pub const MAX_REPLICAS: u32 = estafette_ipc::group::MAX_MEMBERS as u32;
}

/// What feeds a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionKind {
    /// A topic, or nothing. The default.
    #[default]
    Processor,
    /// A stream from outside, which the supervisor connects to.
    Input,
}

/// A stream from outside that feeds one function, and that the function may answer on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stream {
    /// A WebSocket server to connect to. Each text or binary message is one message for the
    /// function.
    Websocket {
        /// `ws://` or `wss://`, a host, and maybe a port and a path.
        url: String,
    },
}

/// The topic that a function or a sink reads, and with whom it shares the messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// The topic.
    pub topic: String,
    /// Its queue on the topic.
    pub queue: Queue,
}

/// Who shares a topic's messages. Those of one queue compete; every queue gets each message.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Queue {
    /// No queue is named: all such readers of the topic compete.
    #[default]
    Unnamed,
    /// Readers of the topic that give the same name compete.
    Named(String),
    /// `queue: each`: this reader gets a copy of each message. Its replicas compete for the copies.
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
    /// In a process of its own. The default.
    #[default]
    Process,
    /// In a thread of a process that it shares with other such instances of the pipeline.
    Thread,
}

/// How an instance waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// It polls for about as long as a wake-up costs, then sleeps. The default.
    #[default]
    Adaptive,
    /// It polls and never sleeps: a whole core for the lowest latency.
    Spin,
    /// It sleeps at once.
    Block,
}

/// What an instance may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The size of its linear memory, in bytes; 256 MiB by default. Growing beyond fails.
    pub memory: u64,
    /// The longest time without a call to the host; 5 s by default. Longer ones are taken for an
    /// endless loop.
    pub call: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { memory: 256 << 20, call: Duration::from_secs(5) }
    }
}

/// What follows when an instance fails: a trap, an exit with an error, a limit or a killed process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// How many restarts are allowed in the time `within`; 5 by default, 0 for none.
    pub max: u32,
    /// The window in which restarts are counted; 60 s by default.
    pub within: Duration,
    /// The delay before the first restart of a window; 100 ms by default. It doubles with each.
    pub initial_delay: Duration,
    /// The longest delay; 5 s by default.
    pub max_delay: Duration,
    /// What follows when no restart is left.
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

/// What follows when an instance fails and no restart is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exhausted {
    /// The pipeline stops with an error. The default.
    #[default]
    Stop,
    /// The pipeline goes on without the instance.
    Continue,
}

/// What an instance may see and do outside of its memory. Clocks and random numbers are granted by
/// default, as the reference's functions use them without asking; nothing else is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grants {
    /// Its environment variables. It sees no others.
    pub env: BTreeMap<String, String>,
    /// The folders it may open.
    pub directories: Vec<DirectoryGrant>,
    /// Whether it may read clocks; true by default.
    pub clocks: bool,
    /// Whether it may draw random numbers; true by default.
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
    /// The path under which the function sees it; the same as `host` is written by default.
    pub guest: String,
    /// Whether the function may change what is in it; false by default.
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
