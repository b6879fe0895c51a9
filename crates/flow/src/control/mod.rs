//! What the supervisor and a host say to each other: JSON and descriptors, over a UNIX socket that keeps packets apart.
//!
//! Messages of the pipeline never come this way; it is used to start, reload and stop instances, and to report their ends.

mod socket;

pub(crate) use self::socket::Socket;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::engine::inspect::Abi;
use crate::engine::wasi::Grants;

/// The number of a function instance within its pipeline.
pub(crate) type InstanceId = u32;

/// The number of a compilation of a function: what a host reports of new code is about one of them. Never 0.
pub(crate) type Generation = u64;

/// What the supervisor asks of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Start an instance. The descriptors that come with it are listed at [`Start`].
    Start(Box<Start>),
    /// Replace an instance's code between two batches, unless it runs this generation. With it comes the compiled code.
    /// It replaces a request that the instance has not met yet. An instance that cannot take the code goes on with what it runs, or
    /// ends if that is not `optional`.
    Reload { instance: InstanceId, generation: Generation, abi: Abi, optional: bool },
    /// End an instance as soon as it is between two calls, or trap its call.
    Stop { instance: InstanceId },
    /// Trap an instance's call, which takes too long. `progress` is the count of [`Counter::Progress`] that has stood still: once
    /// the function has gone on, the request has no effect.
    ///
    /// [`Counter::Progress`]: crate::counters::Counter::Progress
    Interrupt { instance: InstanceId, progress: u64 },
}

/// What a host reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The instance's start function has returned, and it receives messages.
    Ready { instance: InstanceId },
    /// The instance runs this generation of its code, or goes on with what it ran before because of this error.
    Reloaded { instance: InstanceId, generation: Generation, error: Option<String> },
    /// The instance is gone. Its host lives on.
    Ended { instance: InstanceId, end: End },
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// It has done all of its work: its start function returned and there is nothing to receive, or every topic that
    /// feeds it has ended.
    Finished,
    /// It was asked to stop.
    Stopped,
    /// Its code failed: a trap, an exit status other than 0, an endless loop.
    Trapped { reason: String },
    /// Its host could not run it.
    Failed { reason: String },
}

/// The longest reason that is reported, in bytes.
const MAX_REASON: usize = 4096;

/// A reason short enough to be reported: it may quote the function.
pub(crate) fn shorten(mut reason: String) -> String {
    if reason.len() > MAX_REASON {
        reason.truncate(reason.floor_char_boundary(MAX_REASON));
        reason.push('…');
    }
    reason
}

/// An instance to start.
///
/// The descriptors: the compiled code, the counters, stdout, stderr; of an input its bell and each of its rings; for each
/// output and each group that reads it the ring and the bell.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) instance: InstanceId,
    /// `name`, or `name.2` of several replicas.
    pub(crate) name: String,
    pub(crate) abi: Abi,
    pub(crate) generation: Generation,
    /// When the supervisor asked for it, by [`now`].
    pub(crate) requested_at: u64,
    pub(crate) grants: Grants,
    pub(crate) wait: Wait,
    /// The most bytes of linear memory.
    pub(crate) memory_limit: usize,
    pub(crate) input: Option<Input>,
    /// All that it sends to.
    pub(crate) outputs: Vec<Output>,
    /// The function's topics, in its own order, as indexes into `outputs`.
    pub(crate) topics: Vec<usize>,
    /// Where answers go on the stream that feeds the function, as an index into `outputs`.
    pub(crate) reply: Option<usize>,
    /// Where messages go that were delivered too often, as an index into `outputs`.
    pub(crate) dead_letter: Option<usize>,
}

/// The clock that the supervisor and its hosts share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What feeds an instance.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Input {
    /// Its place among the members of its queue group.
    pub(crate) member: usize,
    /// One for each producer of the topic.
    pub(crate) rings: usize,
    /// How often a message may be delivered before it is a dead letter; none for at-most-once delivery.
    pub(crate) max_deliver: Option<u8>,
    /// Whether it copies messages out of the rings before it works on them: where the oldest are dropped, what it works
    /// on must not keep the space.
    pub(crate) copies: bool,
}

/// A topic that an instance sends to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    /// How many queue groups read it; each has a ring of its own.
    pub(crate) groups: usize,
    /// The longest message, in bytes.
    pub(crate) max_message: usize,
    pub(crate) overflow: Overflow,
}

/// What happens to a message when a group's ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Overflow {
    Block,
    DropOldest,
    DropNew,
}

/// How an instance waits for messages and for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wait {
    Spin,
    Adaptive,
    Block,
}
