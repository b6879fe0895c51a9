//! A source: a thread of the supervisor that turns input from outside into messages.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::nats::NatsTopic;

/// A source of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// Its name in logs and metrics.
    pub name: String,
    /// Where its messages come from.
    pub kind: SourceKind,
    /// The topics to which it sends each message.
    pub output: Vec<String>,
}

/// Where a source's messages come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Standard input. The source ends at the end of the input. A pipeline has at most one.
    Stdin(Framing),
    /// A file, read once from its beginning to its end.
    File {
        /// The file.
        path: PathBuf,
        /// How its bytes are split into messages.
        framing: Framing,
    },
    /// An HTTP server. The body of each POST is a message. The response is sent when the topics
    /// have accepted it.
    Http {
        /// The address to listen on. Port 0 means any free port.
        listen: SocketAddr,
        /// The path of the requests, `/` by default. Requests to other paths get 404.
        path: String,
    },
    /// A timer. Each message is the tick's number, from 0, in decimal digits.
    Timer {
        /// The time between two messages.
        every: Duration,
        /// The number of messages before it ends; unlimited by default.
        count: Option<u64>,
    },
    /// A WebSocket server to connect to, with reconnection. Each text or binary message becomes a
    /// message.
    Websocket {
        /// `ws://` or `wss://`, a host, and optionally a port and a path.
        url: String,
    },
    /// A topic on a NATS server, see [`crate::config::Pipeline::part`]. Its first output is the
    /// queue's own topic, the second one that for dead letters. Not available in YAML.
    Nats {
        /// The topic.
        topic: NatsTopic,
        /// The queue's name on the server.
        queue: String,
    },
    /// An end that the program that runs the pipeline uses or passes on, see [`crate::external`].
    /// Not available in YAML.
    External,
}

/// How bytes are split into messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Each line is a message, without its line feed. The default.
    #[default]
    Lines,
    /// All bytes up to the end are one message.
    Whole,
}
