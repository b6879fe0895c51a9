//! A sink: a thread of the supervisor that writes messages of the pipeline to the outside.

use std::path::PathBuf;

use serde::Serialize;

use super::function::Input;
use super::nats::NatsTopic;

/// A sink of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sink {
    /// Its name in logs and metrics.
    pub name: String,
    /// The topic that it reads. Without a `queue` it competes with all other readers without one,
    /// including functions.
    pub input: Input,
    /// Where the messages are written.
    pub kind: SinkKind,
}

/// Where a sink writes its messages.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkKind {
    /// Standard output.
    Stdout(Layout),
    /// A file, created if it does not exist.
    File {
        /// The file.
        path: PathBuf,
        /// Whether messages are appended to the file or replace its content; true by default.
        append: bool,
        /// What is written for a message.
        layout: Layout,
    },
    /// A WebSocket server to connect to, with reconnection. Each message becomes one binary
    /// message.
    Websocket {
        /// `ws://` or `wss://`, a host, and optionally a port and a path.
        url: String,
    },
    /// A topic on a NATS server, for the other hosts of the pipeline, see
    /// [`crate::config::Pipeline::part`]. Not available in YAML.
    Nats(NatsTopic),
    /// An end that the program that runs the pipeline uses or passes on, see [`crate::external`].
    /// Not available in YAML.
    External,
}

/// What is written for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Its bytes and a line feed. The default.
    #[default]
    Lines,
    /// Only its bytes.
    Raw,
}
