//! The topics that an instance sends to. Each has one ring for each queue group that reads it.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::Arc;

use estafette_ipc::group::{PublishError, Publisher};

use super::stop::Stopped;
use crate::control::Overflow;
use crate::counters::{Counter, Counters};

/// The result of a send, as the function gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It was sent, or dropped and counted by its topic's overflow policy.
    Yes,
    NoSuchTopic,
    TooLong,
}

impl Sent {
    /// The result code of the batched ABI.
    pub(super) fn code(self) -> u32 {
        match self {
            Sent::Yes => 0,
            Sent::NoSuchTopic => 1,
            Sent::TooLong => 2,
        }
    }
}

/// A topic to send to.
pub(crate) struct Output {
    /// The longest message, in bytes.
    pub(crate) max_message: usize,
    pub(crate) overflow: Overflow,
    /// One publisher for each queue group that reads the topic.
    pub(crate) groups: Vec<Publisher>,
    /// The number of queue groups whose readers have all ended.
    pub(crate) ended_groups: u64,
}

/// All outputs of an instance.
pub(crate) struct Outputs {
    /// All feeds that it sends to.
    pub(crate) all: Vec<Output>,
    /// The function's topics, as indexes into `all`.
    pub(crate) topics: Vec<usize>,
    /// Where it sends replies on its input stream, as an index into `all`.
    pub(crate) reply: Option<usize>,
    /// Where it sends messages that reached the maximum number of deliveries, as an index into
    /// `all`.
    pub(crate) dead_letter: Option<usize>,
    pub(crate) counters: Arc<Counters>,
    /// Whether a message that was too long has been reported.
    pub(crate) has_reported: Cell<bool>,
}

impl Outputs {
    /// Empty outputs. They replace the real ones in the store while those are in use.
    pub(crate) fn none(counters: Arc<Counters>) -> Outputs {
        Outputs {
            all: Vec::new(),
            topics: Vec::new(),
            reply: None,
            dead_letter: None,
            counters,
            has_reported: Cell::new(false),
        }
    }

    /// Checks whether a message of `len` bytes can be sent to a topic.
    pub(super) fn check(&self, topic: u32, len: usize) -> Sent {
        match self.topics.get(topic as usize).and_then(|at| self.all.get(*at)) {
            None => Sent::NoSuchTopic,
            Some(output) => self.reported(output.check(len), len, output.max_message),
        }
    }

    /// Sends a message. Blocks while the topic is full, if its policy is to block.
    ///
    /// # Errors
    ///
    /// If the instance is stopped during the wait, or a ring is broken.
    #[inline]
    pub(super) fn send(&mut self, topic: u32, message: &[u8]) -> wasmtime::Result<Sent> {
        let output = self.topics.get(topic as usize).copied();
        Ok(self.send_to(output, message)?)
    }

    /// Sends messages to one topic. The caller has checked each with [`Outputs::check`], and must
    /// call [`Outputs::count`], as it knows their number and size.
    ///
    /// # Errors
    ///
    /// As [`Outputs::send`].
    #[inline]
    pub(super) fn send_checked<'m>(
        &mut self,
        topic: u32,
        messages: impl Iterator<Item = &'m [u8]> + Clone,
    ) -> wasmtime::Result<()> {
        let output = self.topics.get(topic as usize).and_then(|at| self.all.get_mut(*at));
        output.map_or(Ok(()), |output| Ok(output.publish(messages, &self.counters)?))
    }

    /// Counts sent messages.
    #[inline]
    pub(super) fn count(&self, messages: u64, bytes: u64) {
        count(&self.counters, messages, bytes);
    }

    /// Sends a reply on the function's input stream.
    ///
    /// # Errors
    ///
    /// As [`Outputs::send`].
    pub(super) fn reply(&mut self, message: &[u8]) -> wasmtime::Result<Sent> {
        Ok(self.send_to(self.reply, message)?)
    }

    /// Sends a message to the dead-letter topic, and counts it.
    ///
    /// # Errors
    ///
    /// As [`Outputs::send`].
    pub(crate) fn send_dead_letter(&mut self, message: &[u8]) -> Result<(), SendError> {
        self.counters.add(Counter::DeadLetters, 1);
        if self.send_to(self.dead_letter, message)? == Sent::TooLong {
            // The supervisor copies the host's stderr to its log.
            let _ =
                writeln!(io::stderr(), "a message of {} bytes is too long for its dead-letter topic", message.len());
        }
        Ok(())
    }

    #[inline]
    fn send_to(&mut self, output: Option<usize>, message: &[u8]) -> Result<Sent, SendError> {
        match output.and_then(|at| self.all.get_mut(at)) {
            None => Ok(Sent::NoSuchTopic),
            Some(output) => {
                let (sent, max) = (output.send(message, &self.counters)?, output.max_message);
                Ok(self.reported(sent, message.len(), max))
            }
        }
    }

    /// Reports the first message that is too long. A function may trap then without a reason.
    #[inline]
    fn reported(&self, sent: Sent, len: usize, max: usize) -> Sent {
        if sent == Sent::TooLong && !self.has_reported.replace(true) {
            // The supervisor copies the host's stderr to its log.
            let _ = writeln!(
                io::stderr(),
                "it sent a message of {len} bytes, which is longer than the `max_message` of {max} bytes of its topic"
            );
        }
        sent
    }
}

/// Why a message could not be sent.
#[derive(Debug)]
pub(crate) enum SendError {
    Stopped,
    Broken(PublishError),
}

impl From<PublishError> for SendError {
    fn from(error: PublishError) -> SendError {
        match error {
            PublishError::Interrupted => SendError::Stopped,
            error => SendError::Broken(error),
        }
    }
}

impl From<SendError> for wasmtime::Error {
    fn from(error: SendError) -> wasmtime::Error {
        match error {
            SendError::Stopped => wasmtime::Error::new(Stopped),
            SendError::Broken(error) => wasmtime::Error::msg(format!("the ring of a topic is broken: {error}")),
        }
    }
}

impl From<SendError> for anyhow::Error {
    fn from(error: SendError) -> anyhow::Error {
        match error {
            SendError::Stopped => anyhow::Error::new(Stopped),
            SendError::Broken(error) => anyhow::anyhow!("the ring of a topic is broken: {error}"),
        }
    }
}

impl Output {
    /// Sends a message to every group, unless it is too long.
    #[inline]
    pub(crate) fn send(&mut self, message: &[u8], counters: &Counters) -> Result<Sent, SendError> {
        let checked = self.check(message.len());
        if checked == Sent::Yes {
            self.publish(std::iter::once(message), counters)?;
            count(counters, 1, message.len() as u64);
        }
        Ok(checked)
    }

    #[inline]
    fn check(&self, len: usize) -> Sent {
        if len > self.max_message { Sent::TooLong } else { Sent::Yes }
    }

    /// Sends messages to every group. The caller has checked their lengths.
    #[inline]
    fn publish<'m>(
        &mut self,
        messages: impl Iterator<Item = &'m [u8]> + Clone,
        counters: &Counters,
    ) -> Result<(), SendError> {
        if self.ended_groups > 0 {
            counters.add(Counter::Unread, self.ended_groups * messages.clone().count() as u64);
        }
        let mut dropped = 0;
        let overflow = self.overflow;
        let mut error = None;
        let mut ended = 0;
        self.groups.retain_mut(|group| match send_to_group(group, overflow, messages.clone()) {
            Ok(count) => {
                dropped += count;
                true
            }
            // All readers of the group have ended.
            Err(PublishError::Closed) => {
                ended += 1;
                false
            }
            Err(failed) => {
                error = Some(failed);
                true
            }
        });
        self.ended_groups += ended;
        if let Some(error) = error {
            return Err(error.into());
        }
        counters.add(Counter::Dropped, dropped);
        Ok(())
    }
}

#[inline]
fn count(counters: &Counters, messages: u64, bytes: u64) {
    counters.add(Counter::SentMessages, messages);
    counters.add(Counter::SentBytes, bytes);
}

/// Sends messages to one group. Returns the number of dropped messages.
#[inline]
fn send_to_group<'m>(
    group: &mut Publisher,
    overflow: Overflow,
    messages: impl Iterator<Item = &'m [u8]>,
) -> Result<u64, PublishError> {
    let mut dropped = 0;
    match overflow {
        Overflow::Block => group.send_batch(messages)?,
        Overflow::DropNew => {
            for message in messages {
                dropped += u64::from(!group.send_or_drop(message)?);
            }
        }
        Overflow::DropOldest => {
            for message in messages {
                let one = group.send_dropping_oldest(message)?;
                dropped += one.older + u64::from(one.this);
            }
        }
    }
    Ok(dropped)
}
