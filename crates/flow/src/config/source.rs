//! A source: a thread of the supervisor that turns something outside into messages.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

/// A source of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Source {
    /// Its name in logs and metrics.
    pub name: String,
    /// Where its messages come from.
    pub kind: SourceKind,
    /// The topics it sends each message to.
    pub output: Vec<String>,
}

/// Where a source's messages come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// Standard input. It ends with the input. A pipeline has at most one.
    Stdin(Framing),
    /// A file, read once from its beginning to its end.
    File {
        /// The file.
        path: PathBuf,
        /// How it becomes messages.
        framing: Framing,
    },
    /// An HTTP server: the body of each POST is a message, answered when the topics have accepted
    /// it.
    Http {
        /// The address to listen at. Port 0 stands for any free one.
        listen: SocketAddr,
        /// The path of the requests, `/` by default. Others are answered by 404.
        path: String,
    },
    /// A clock. Each message is the tick's number, from 0, in decimal digits.
    Timer {
        /// The time between two messages.
        every: Duration,
        /// How many messages it sends before it ends; without end by default.
        count: Option<u64>,
    },
    /// A WebSocket server to connect to, with reconnection. Each text or binary message is a
    /// message.
    Websocket {
        /// `ws://` or `wss://`, a host, and maybe a port and a path.
        url: String,
    },
    /// Whoever the program that runs the pipeline gives this end to, see [`crate::external`]. Not
    /// in YAML.
    External,
}

/// How bytes become messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Each line is a message, without its line feed. The default.
    #[default]
    Lines,
    /// All bytes up to the end are one message.
    Whole,
}
