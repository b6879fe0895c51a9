//! The topics that an instance sends to: for each, a ring for each queue group that reads it.

use std::sync::Arc;

use anyhow::Result;
use estafette_ipc::group::{PublishError, Publisher, record_len};

use super::stop::Stopped;
use crate::control::Overflow;
use crate::counters::{Counter, Counters};

/// What came of a message, as a function is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It was sent, or dropped and counted as its topic's overflow policy says.
    Yes,
    NoSuchTopic,
    TooLong,
}

impl Sent {
    /// The result of the batched ABI's calls.
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
    /// One for each queue group that reads the topic.
    pub(crate) groups: Vec<Publisher>,
}

/// Where an instance sends to.
pub(crate) struct Outputs {
    pub(crate) topics: Vec<Output>,
    /// Answers on the stream that feeds the function.
    pub(crate) reply: Option<Output>,
    /// Messages that could not be delivered.
    pub(crate) dead_letter: Option<Output>,
    pub(crate) counters: Arc<Counters>,
}

impl Outputs {
    /// No topic at all: what a function has while another one still sends by its connections.
    pub(crate) fn none(counters: Arc<Counters>) -> Outputs {
        Outputs { topics: Vec::new(), reply: None, dead_letter: None, counters }
    }

    /// Whether a message of so many bytes can be sent to a topic.
    pub(super) fn check(&self, topic: u32, len: usize) -> Sent {
        match self.topics.get(topic as usize) {
            None => Sent::NoSuchTopic,
            Some(output) if len > output.max_message => Sent::TooLong,
            Some(_) => Sent::Yes,
        }
    }

    /// Sends a message. Blocks while the topic is full and its policy is to block.
    ///
    /// # Errors
    ///
    /// If the instance is stopped meanwhile, or a ring is broken.
    #[inline]
    pub(super) fn send(&mut self, topic: u32, message: &[u8]) -> wasmtime::Result<Sent> {
        self.send_all(topic, std::iter::once(message))
    }

    /// Sends messages to one topic.
    ///
    /// # Errors
    ///
    /// Those of [`Outputs::send`].
    #[inline]
    pub(super) fn send_all<'m>(
        &mut self,
        topic: u32,
        messages: impl Iterator<Item = &'m [u8]> + Clone,
    ) -> wasmtime::Result<Sent> {
        match self.topics.get_mut(topic as usize) {
            None => Ok(Sent::NoSuchTopic),
            Some(output) => Ok(output.send_all(messages, &self.counters)?),
        }
    }

    /// Answers on the stream that feeds the function.
    ///
    /// # Errors
    ///
    /// Those of [`Outputs::send`].
    pub(super) fn reply(&mut self, message: &[u8]) -> wasmtime::Result<Sent> {
        match &mut self.reply {
            None => Ok(Sent::NoSuchTopic),
            Some(output) => Ok(output.send_all(std::iter::once(message), &self.counters)?),
        }
    }

    /// Passes on a message that was delivered too often, and counts it.
    ///
    /// # Errors
    ///
    /// Those of [`Outputs::send`].
    pub(crate) fn send_dead_letter(&mut self, message: &[u8]) -> Result<()> {
        self.counters.add(Counter::DeadLetters, 1);
        if let Some(output) = &mut self.dead_letter {
            let sent = output.send_all(std::iter::once(message), &self.counters)?;
            if sent == Sent::TooLong {
                tracing::warn!(bytes = message.len(), "a message is longer than its dead-letter topic allows");
            }
        }
        Ok(())
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
            PublishError::Interrupted | PublishError::Closed => SendError::Stopped,
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
    /// Sends messages to every group. Those that are too long end it.
    #[inline]
    pub(crate) fn send_all<'m>(
        &mut self,
        messages: impl Iterator<Item = &'m [u8]> + Clone,
        counters: &Counters,
    ) -> Result<Sent, SendError> {
        let (mut count, mut bytes) = (0, 0);
        for message in messages.clone() {
            if message.len() > self.max_message {
                return Ok(Sent::TooLong);
            }
            count += 1;
            bytes += message.len() as u64;
        }
        let mut dropped = 0;
        for group in &mut self.groups {
            match self.overflow {
                Overflow::Block => group.send_batch(messages.clone())?,
                Overflow::DropNew => {
                    for message in messages.clone() {
                        dropped += u64::from(!try_send(group, message)?);
                    }
                }
                Overflow::DropOldest => {
                    for message in messages.clone() {
                        dropped += send_over_oldest(group, message)?;
                    }
                }
            }
        }
        counters.add(Counter::SentMessages, count);
        counters.add(Counter::SentBytes, bytes);
        counters.add(Counter::Dropped, dropped);
        Ok(Sent::Yes)
    }
}

/// Whether there was space for the message.
fn try_send(group: &mut Publisher, message: &[u8]) -> Result<bool, SendError> {
    match group.try_send(message) {
        Ok(()) => Ok(true),
        Err(PublishError::Full) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Sends a message, and drops the oldest ones that nobody has claimed to make space for it. Where all are claimed, this
/// one is dropped. Returns how many were dropped.
fn send_over_oldest(group: &mut Publisher, message: &[u8]) -> Result<u64, SendError> {
    let mut dropped = 0;
    while !try_send(group, message)? {
        match group.discard_oldest(record_len(message.len()))? {
            0 => return Ok(dropped + 1),
            count => dropped += count,
        }
    }
    Ok(dropped)
}
