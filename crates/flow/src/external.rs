//! Ends of a pipeline that the embedding program uses itself, or passes to another process.
//!
//! A source of the kind [`SourceKind::External`] and a sink of the kind [`SinkKind::External`] have
//! no thread in the supervisor. [`Supervisor::external_source`] and [`Supervisor::external_sink`]
//! return an [`ExternalEnd`]: file descriptors, and a text that describes them. Both can be sent to
//! another process. There, or in this process, they become a [`Sender`] or a [`Receiver`].
//!
//! Each end can be taken once. It ends when its [`Sender`] or [`Receiver`] is dropped. A sink also
//! ends when all of its producers have ended and it has received everything. [`Remote::end`] ends
//! both. A sender then gets [`PublishError::Closed`], and messages that it sends in the meantime
//! may be lost. A receiver keeps what it has claimed, and receives the remaining messages.
//!
//! If the process of an end dies, the end has failed, and the pipeline reports it. The messages
//! that a dead receiver had claimed return to its queue, or are lost and counted, depending on the
//! topic's `delivery`. Other readers of the queue continue. If there are none, the pipeline stops.
//! The supervisor detects a death when the last copy of the end's descriptors is closed. A program
//! that sends them to another process must therefore drop its own [`ExternalEnd`].
//!
//! [`SourceKind::External`]: crate::config::SourceKind::External
//! [`SinkKind::External`]: crate::config::SinkKind::External
//! [`Supervisor::external_source`]: crate::Supervisor::external_source
//! [`Supervisor::external_sink`]: crate::Supervisor::external_sink
//! [`Remote::end`]: crate::Remote::end

mod lease;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, Result};
use estafette_ipc::WaitMode;
use estafette_ipc::group::{Claim, ClaimError, Interrupt, Member, PublishError, Publisher};
use serde::{Deserialize, Serialize};

use crate::control::{Input, Output as OutputPlan, Overflow};
use crate::counters::Counters;
use crate::function::{Output, SendError, Sent};
use crate::host::Descriptors;

pub(crate) use self::lease::{Holder, Lease, LeaseWatch};

/// Describes the descriptors of an end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) input: Option<Input>,
    pub(crate) outputs: Vec<OutputPlan>,
}

/// An end that is not open yet.
#[derive(Debug)]
pub struct ExternalEnd {
    plan: Plan,
    /// The lease, then the bells and rings.
    descriptors: Vec<OwnedFd>,
}

impl ExternalEnd {
    pub(crate) fn new(plan: Plan, lease: Lease, rings: Vec<OwnedFd>) -> ExternalEnd {
        let descriptors = std::iter::once(lease.into()).chain(rings).collect();
        ExternalEnd { plan, descriptors }
    }

    /// The description of its descriptors: a text for [`ExternalEnd::from_parts`].
    ///
    /// # Errors
    ///
    /// If the description cannot be encoded, which does not happen.
    pub fn description(&self) -> Result<String> {
        Ok(serde_json::to_string(&self.plan)?)
    }

    /// The file descriptors, in order.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }

    /// Makes an end from a description and descriptors that another process has sent.
    ///
    /// # Errors
    ///
    /// If the text is not a description. The descriptors are checked when the end is opened.
    pub fn from_parts(description: &str, descriptors: Vec<OwnedFd>) -> Result<ExternalEnd> {
        let plan = serde_json::from_str(description).context("this does not describe an end of a pipeline")?;
        Ok(ExternalEnd { plan, descriptors })
    }

    /// Opens the end of a source. `wait` is how it waits while a topic is full.
    ///
    /// # Errors
    ///
    /// If the descriptors do not match the description, or cannot be mapped.
    pub fn sender(self, wait: WaitMode) -> Result<Sender> {
        let (mut descriptors, interrupt) = (Descriptors::new(self.descriptors), Interrupt::new());
        let lease = descriptors.next()?.into();
        let outputs = self.plan.outputs.iter().map(|output| descriptors.output(output, wait, &interrupt));
        let outputs = outputs.collect::<Result<Vec<_>>>()?;
        Ok(Sender { outputs, counters: Counters::create()?.0, scratch: Vec::new(), lease, _interrupt: interrupt })
    }

    /// Opens the end of a sink. `wait` is how it waits for messages.
    ///
    /// # Errors
    ///
    /// If it is the end of a source, or the descriptors do not match the description or cannot be
    /// mapped.
    pub fn receiver(self, wait: WaitMode) -> Result<Receiver> {
        let input = self.plan.input.context("this end only sends")?;
        let (mut descriptors, interrupt) = (Descriptors::new(self.descriptors), Interrupt::new());
        let lease = descriptors.next()?.into();
        let member = descriptors.member(&input, wait, &interrupt)?;
        Ok(Receiver { member, lease, _interrupt: interrupt })
    }
}

/// The sending end of a source. Blocks while a topic is full, if the topic's policy is to block.
/// Dropping it ends the source: no message follows. If it is dropped by a panic, the source has
/// failed.
pub struct Sender {
    outputs: Vec<Output>,
    counters: Counters,
    /// The buffer for messages that are sent to several groups.
    scratch: Vec<u8>,
    lease: Lease,
    _interrupt: Arc<Interrupt>,
}

impl Sender {
    /// Sends a message to each of the source's topics.
    ///
    /// # Errors
    ///
    /// [`PublishError::TooLong`] if the message exceeds the `max_message` of a topic; it is then
    /// sent to none. [`PublishError::Closed`] if no topic has a reader any more, or the pipeline is
    /// ending. The latter is reported no later than when a topic has no space left.
    pub fn send(&mut self, message: &[u8]) -> Result<(), PublishError> {
        let max = self.outputs.iter().map(|output| output.max_message).min().unwrap_or(usize::MAX);
        if message.len() > max {
            return Err(PublishError::TooLong { len: message.len(), max });
        }
        for output in &mut self.outputs {
            send(output, &self.counters, message)?;
        }
        match self.outputs.iter().all(|output| output.groups.is_empty()) {
            true => Err(PublishError::Closed),
            false => Ok(()),
        }
    }

    /// Sends a message of `len` bytes that `fill` writes. If it goes into one ring only, it is
    /// written there in place, without a copy. The bytes that `fill` gets have unspecified content.
    ///
    /// # Errors
    ///
    /// As [`Sender::send`].
    #[inline]
    pub fn send_with(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), PublishError> {
        if let [output] = &mut self.outputs[..]
            && let [publisher] = &mut output.groups[..]
            && output.overflow == Overflow::Block
            && len <= output.max_message
        {
            let mut loan = publisher.reserve(len)?;
            fill(&mut loan);
            loan.send();
            return Ok(());
        }
        let mut message = std::mem::take(&mut self.scratch);
        message.resize(len, 0);
        fill(&mut message);
        let sent = self.send(&message);
        self.scratch = message;
        sent
    }

    /// Ends the source, as dropping the sender does.
    pub fn close(self) {}
}

impl Drop for Sender {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let outputs = std::mem::take(&mut self.outputs);
            outputs.into_iter().flat_map(|output| output.groups).for_each(Publisher::close);
            self.lease.close();
        }
    }
}

fn send(output: &mut Output, counters: &Counters, message: &[u8]) -> Result<(), PublishError> {
    match output.send(message, counters) {
        Ok(Sent::TooLong) => Err(PublishError::TooLong { len: message.len(), max: output.max_message }),
        Ok(_) => Ok(()),
        Err(SendError::Stopped) => Err(PublishError::Interrupted),
        Err(SendError::Broken(error)) => Err(error),
    }
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("topics", &self.outputs.len()).finish_non_exhaustive()
    }
}

/// The receiving end of a sink. Dropping it ends the sink: messages that it has not acknowledged
/// are treated as if its process had died. If it is dropped by a panic, the sink has failed.
#[derive(Debug)]
pub struct Receiver {
    member: Member,
    lease: Lease,
    _interrupt: Arc<Interrupt>,
}

impl Receiver {
    /// Claims messages: all that are available, up to these limits, but at least one. Waits until
    /// there is one. [Acknowledge](Claim::ack) the claim when the messages are processed.
    ///
    /// # Errors
    ///
    /// [`ClaimError::Closed`] once all producers have ended and everything was received.
    #[inline]
    pub fn claim(&mut self, max_bytes: usize, max_messages: usize) -> Result<Claim<'_>, ClaimError> {
        self.member.claim(max_bytes, max_messages)
    }

    /// Claims messages as [`claim`](Self::claim) does, but does not wait. It can be called while an
    /// earlier claim is to be [acknowledged later](Claim::ack_later).
    ///
    /// # Errors
    ///
    /// As [`claim`](Self::claim).
    #[inline]
    pub fn try_claim(&mut self, max_bytes: usize, max_messages: usize) -> Result<Option<Claim<'_>>, ClaimError> {
        self.member.try_claim(max_bytes, max_messages)
    }

    /// Acknowledges the oldest claim that was to be [acknowledged later](Claim::ack_later). Returns
    /// `false` if there is none.
    #[inline]
    pub fn ack_oldest(&mut self) -> bool {
        self.member.ack_oldest()
    }

    /// Calls `on_message` with each message, until all producers have ended. Messages are
    /// acknowledged in batches, after `on_message` has returned.
    ///
    /// # Errors
    ///
    /// If a producer broke the protocol of its ring.
    pub fn for_each(&mut self, mut on_message: impl FnMut(&[u8])) -> Result<(), ClaimError> {
        loop {
            match self.claim(BATCH.0, BATCH.1) {
                Ok(claim) => {
                    claim.messages().for_each(|message| on_message(&message));
                    claim.ack();
                }
                Err(ClaimError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the sink, as dropping the receiver does.
    pub fn close(self) {}
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // The member is still mapped, but not used any more.
        if !std::thread::panicking() {
            self.lease.close();
        }
    }
}

/// The maximum bytes and messages of a batch.
const BATCH: (usize, usize) = (256 << 10, 4096);
