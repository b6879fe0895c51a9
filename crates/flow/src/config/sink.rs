//! A sink: a thread of the supervisor that carries messages out of the pipeline.

use std::path::PathBuf;

use serde::Serialize;

use super::function::Input;

/// A sink of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sink {
    /// Its name in logs and metrics.
    pub name: String,
    /// The topic it reads. Without a `queue` it competes with others that have none, functions
    /// included.
    pub input: Input,
    /// Where the messages go.
    pub kind: SinkKind,
}

/// Where a sink's messages go.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SinkKind {
    /// Standard output.
    Stdout(Layout),
    /// A file, made if it is absent.
    File {
        /// The file.
        path: PathBuf,
        /// Whether messages are added to what is in the file, or replace it; true by default.
        append: bool,
        /// What is written for a message.
        layout: Layout,
    },
    /// A WebSocket server to connect to, with reconnection. Each message is one binary message.
    Websocket {
        /// `ws://` or `wss://`, a host, and maybe a port and a path.
        url: String,
    },
    /// Whoever the program that runs the pipeline gives this end to, see [`crate::external`]. Not
    /// in YAML.
    External,
}

/// What is written for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Its bytes and a line feed. The default.
    #[default]
    Lines,
    /// Its bytes alone.
    Raw,
}
