//! The status of a pipeline: what its functions have done, and what waits between them.

use serde::{Deserialize, Serialize};

/// A pipeline's current status. All counts start with the pipeline and continue over restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The pipeline's name.
    pub pipeline: String,
    /// How long the pipeline has run, in seconds.
    pub uptime_seconds: f64,
    /// What the pipeline is doing.
    pub mode: ModeStatus,
    /// Permanent failures, one line each.
    pub failures: Vec<String>,
    /// The function instances, in the order of the pipeline's file.
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
    /// Messages come in and are processed.
    #[default]
    Running,
    /// No new messages come in. Messages in flight are processed.
    Draining,
    /// All processing ends now.
    Stopping,
    /// It has ended: all work was done.
    Finished,
    /// It has ended on request, after all messages in flight were processed.
    Drained,
    /// It was stopped with messages in flight.
    Stopped,
    /// It has ended because of a permanent failure.
    Failed,
}

/// A function instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FunctionStatus {
    /// The function's name.
    pub function: String,
    /// The index of the instance, from 0.
    pub replica: u32,
    /// The phase of its life cycle.
    pub phase: PhaseStatus,
    /// The process ID of its host. None while it has no host.
    pub pid: Option<u32>,
    /// Calls of the function, one per message or per batch.
    pub calls: u64,
    /// Messages that it has processed.
    pub received_messages: u64,
    /// Their bytes, with 8 bytes per message for header and padding.
    pub received_bytes: u64,
    /// Messages that it has sent.
    pub sent_messages: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages that were dropped by a topic's overflow policy when it sent them.
    pub dropped: u64,
    /// Messages that it sent to a queue whose readers had all ended: one for each such queue.
    pub unread: u64,
    /// Messages that reached the maximum number of deliveries.
    pub dead_letters: u64,
    /// Calls that failed.
    pub traps: u64,
    /// How often it was restarted.
    pub restarts: u64,
    /// The size of its linear memory, in bytes.
    pub memory_bytes: u64,
    /// The memory of its host process, in bytes. None if it shares the process with other
    /// instances.
    pub resident_bytes: Option<u64>,
    /// The CPU time of its host process, in seconds. None if it shares the process with other
    /// instances.
    pub cpu_seconds: Option<f64>,
    /// The duration of its last start, from the request to the function's first instruction, in
    /// seconds.
    pub start_seconds: f64,
}

/// The phase in an instance's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseStatus {
    /// It waits to be restarted.
    Waiting,
    /// Its start function runs. A sender does all of its work there.
    Starting,
    /// It receives messages.
    Running,
    /// It has done all of its work and ended.
    Finished,
    /// It was stopped.
    Stopped,
    /// It failed, and no restart is left.
    Failed,
}

/// A queue group of a topic: where messages wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// The topic, or the name of the function whose stream it is.
    pub topic: String,
    /// The queue's name. Empty for readers without a queue. For `queue: each`, the name of the
    /// reader.
    pub queue: String,
    /// Messages that were published to the group.
    pub published_messages: u64,
    /// Their bytes.
    pub published_bytes: u64,
    /// Messages that wait or are being processed.
    pub depth_messages: u64,
    /// Their bytes, with headers and padding.
    pub depth_bytes: u64,
    /// The capacity of all of its rings, in bytes.
    pub capacity_bytes: u64,
    /// How long the oldest message has waited, in seconds, accurate to half a second.
    pub oldest_seconds: f64,
    /// Old messages that were dropped to make space for new ones.
    pub dropped: u64,
    /// New messages that were dropped because there was no space.
    pub dropped_new: u64,
    /// Messages that were lost because a reader failed or ended while it processed them.
    pub discarded: u64,
}

/// A source, a sink or a stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectorStatus {
    /// Its name.
    pub name: String,
    /// Messages that it has sent into the pipeline.
    pub sent_messages: u64,
    /// Messages that it has received from the pipeline.
    pub received_messages: u64,
    /// Messages that it dropped because they were too long, or by a topic's overflow policy.
    pub dropped: u64,
    /// Messages that it sent to a queue whose readers had all ended: one for each such queue.
    pub unread: u64,
    /// Whether it has ended.
    pub is_ended: bool,
    /// What keeps it from its work at the moment, such as a lost server.
    #[serde(default)]
    pub problem: Option<String>,
}
