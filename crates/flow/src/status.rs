//! A pipeline as it is at one moment: what its functions have done and what waits between them.

use serde::{Deserialize, Serialize};

/// A pipeline as it is now. All counts grow from the start of the pipeline and go on over restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pipeline's name.
    pub pipeline: String,
    /// How long it has run, in seconds.
    pub uptime_seconds: f64,
    /// What it is doing.
    pub mode: ModeStatus,
    /// What failed for good, a line each.
    pub failures: Vec<String>,
    /// The function instances, in the order of the pipeline.
    pub functions: Vec<FunctionStatus>,
    /// The queue groups, in the order of topics.
    pub edges: Vec<EdgeStatus>,
    /// The sources, sinks and streams.
    pub connectors: Vec<ConnectorStatus>,
}

/// What a pipeline is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModeStatus {
    /// Messages come in and are worked off.
    #[default]
    Running,
    /// Nothing new comes in; what is under way is worked off.
    Draining,
    /// Everything ends now.
    Stopping,
}

/// A function instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// The function's name.
    pub function: String,
    /// Which of its instances, from 0.
    pub replica: u32,
    /// Where it is in its life.
    pub phase: PhaseStatus,
    /// Its host's process number, while it has one.
    pub pid: Option<u32>,
    /// Calls into the function: one a message, or one a batch.
    pub calls: u64,
    /// Messages that it has worked off.
    pub received_messages: u64,
    /// Their bytes, with 8 bytes a message for the header and the padding.
    pub received_bytes: u64,
    /// Messages that it has sent.
    pub sent_messages: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that a topic's overflow policy dropped as it sent.
    pub dropped: u64,
    /// Messages that were delivered too often.
    pub dead_letters: u64,
    /// Calls that failed.
    pub traps: u64,
    /// How often it was restarted.
    pub restarts: u64,
    /// Its linear memory, in bytes.
    pub memory_bytes: u64,
    /// The memory of its host process, in bytes; none where it shares the process with others.
    pub resident_bytes: Option<u64>,
    /// The processor time of its host process, in seconds; none where it shares the process with others.
    pub cpu_seconds: Option<f64>,
    /// How long its last start took, from the request to the function's first instruction, in seconds.
    pub start_seconds: f64,
}

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseStatus {
    /// It waits for a restart.
    Waiting,
    /// Its start function runs: for a sender, all of its work.
    Starting,
    /// It receives messages.
    Running,
    /// It has done all of its work.
    Finished,
    /// It was stopped.
    Stopped,
    /// It failed and has no restart left.
    Failed,
}

/// A queue group of a topic: where messages wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// The topic, or the name of the function whose stream it is.
    pub topic: String,
    /// The queue: a name, empty for readers without a queue, or the name of the reader that gets a copy of its own.
    pub queue: String,
    /// Messages that were published to it.
    pub published_messages: u64,
    /// Their bytes.
    pub published_bytes: u64,
    /// Messages that wait, or are being worked off.
    pub depth_messages: u64,
    /// Their bytes, with headers and padding.
    pub depth_bytes: u64,
    /// The bytes that may wait in all of its rings.
    pub capacity_bytes: u64,
    /// How long the oldest message has waited, in seconds, to within half a second.
    pub oldest_seconds: f64,
    /// Messages that were dropped for newer ones.
    pub dropped: u64,
    /// Messages that were dropped as they were sent, since there was no space.
    pub dropped_new: u64,
    /// Messages that were lost with a reader that failed.
    pub discarded: u64,
}

/// A source, a sink or a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectorStatus {
    /// Its name.
    pub name: String,
    /// Messages that it has sent into the pipeline.
    pub sent_messages: u64,
    /// Messages that it has taken out of the pipeline.
    pub received_messages: u64,
    /// Messages that it dropped: too long, or by a topic's overflow policy.
    pub dropped: u64,
    /// Whether it has ended.
    pub is_ended: bool,
}
