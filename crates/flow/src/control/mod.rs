//! The control protocol between the supervisor and a host: JSON and file descriptors, over a UNIX
//! socket that preserves packets.
//!
//! It starts, reloads and stops instances, and reports their ends. Messages of the pipeline never
//! use it.

mod socket;

pub(crate) use self::socket::Socket;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::engine::inspect::Abi;
use crate::engine::wasi::Grants;

/// The index of a function instance in its pipeline.
pub(crate) type InstanceId = u32;

/// The number of a compilation of a function. A host's report about new code names one of them.
/// Never 0.
pub(crate) type Generation = u64;

/// A request of the supervisor to a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Start an instance. [`Start`] lists the descriptors that are sent with it.
    Start(Box<Start>),
    /// Replace an instance's code between two batches, unless it runs this generation already. The
    /// compiled code is sent with it. The request replaces an earlier one that the instance has not
    /// handled yet. If the instance cannot use the code, it keeps its current code if the request
    /// is `optional`, and ends otherwise.
    Reload { instance: InstanceId, generation: Generation, abi: Abi, optional: bool },
    /// End an instance between two calls, or trap its current call.
    Stop { instance: InstanceId },
    /// Trap a call that takes too long. `progress` is the value of [`Counter::Progress`] that has
    /// not changed. If the function has made progress since, the request has no effect.
    ///
    /// [`Counter::Progress`]: crate::counters::Counter::Progress
    Interrupt { instance: InstanceId, progress: u64 },
}

/// A report of a host to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The instance's start function has returned, and the instance receives messages.
    Ready { instance: InstanceId },
    /// The instance runs this generation of its code, or keeps its earlier code because of this
    /// error.
    Reloaded { instance: InstanceId, generation: Generation, error: Option<String> },
    /// The instance has ended. Its host still runs.
    Ended { instance: InstanceId, end: End },
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum End {
    /// It has done all of its work: its start function returned and it has no input, or all
    /// producers of its input have ended.
    Finished,
    /// It was stopped by a request.
    Stopped,
    /// Its code failed: a trap, an exit status other than 0, an endless loop.
    Trapped { reason: String },
    /// Its host could not run it.
    Failed { reason: String },
}

/// The maximum length of a reported reason in bytes.
const MAX_REASON: usize = 4096;

/// Shortens a reason for a report: it may contain text of the function.
pub(crate) fn shorten(mut reason: String) -> String {
    if reason.len() > MAX_REASON {
        reason.truncate(reason.floor_char_boundary(MAX_REASON));
        reason.push('…');
    }
    reason
}

/// The request to start an instance.
///
/// The descriptors, in order: the compiled code, the counters, stdout, stderr; for an input its
/// bell and each of its rings; for each output, and each group that reads it, the ring and the
/// bell.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) instance: InstanceId,
    /// `name`, or `name.2` if there are several replicas.
    pub(crate) name: String,
    pub(crate) abi: Abi,
    pub(crate) generation: Generation,
    /// The time of the supervisor's request, by [`now`].
    pub(crate) requested_at: u64,
    pub(crate) grants: Grants,
    pub(crate) wait: Wait,
    /// The maximum size of its linear memory in bytes.
    pub(crate) memory_limit: usize,
    pub(crate) input: Option<Input>,
    /// All feeds that it sends to.
    pub(crate) outputs: Vec<Output>,
    /// The function's topics in its own order, as indexes into `outputs`.
    pub(crate) topics: Vec<usize>,
    /// Where it sends replies on its input stream, as an index into `outputs`.
    pub(crate) reply: Option<usize>,
    /// Where it sends messages that reached the maximum number of deliveries, as an index into
    /// `outputs`.
    pub(crate) dead_letter: Option<usize>,
}

/// The monotonic clock, which the supervisor and its hosts share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The input of an instance.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Input {
    /// Its index among the members of its queue group.
    pub(crate) member: usize,
    /// The number of rings: one for each producer.
    pub(crate) rings: usize,
    /// How often a message may be delivered before it is a dead letter. None for at-most-once
    /// delivery.
    pub(crate) max_deliver: Option<u8>,
    /// Whether it copies messages out of the rings before it processes them. Where the oldest
    /// messages are dropped, messages in processing must not keep their space.
    pub(crate) copies: bool,
}

/// A topic that an instance sends to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Output {
    /// The number of queue groups that read it. Each has its own ring.
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
