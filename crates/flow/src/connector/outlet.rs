//! The output of a source, and its stop signal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use estafette_ipc::WaitMode;
#[cfg(feature = "nats")]
use estafette_ipc::group::PublishError;
use estafette_ipc::group::{Interrupt, Publisher};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::config::{End, Overflow, Pipeline, Topology};
use crate::control;
use crate::counters::{Counter, Counters};
use crate::function::{Output, SendError, Sent};
use crate::supervisor::Fabric;

/// The stop signal of a connector. It ends waits for a ring and for external input.
pub(super) struct Stop {
    interrupt: Arc<Interrupt>,
    /// Readable once the signal is set.
    event: OwnedFd,
    hooks: Mutex<Vec<Hook>>,
}

/// A function that ends another kind of wait.
type Hook = Arc<dyn Fn() + Send + Sync>;

/// The result of a wait for external input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waited {
    Readable,
    TimedOut,
    Stopped,
}

impl Stop {
    pub(super) fn new() -> io::Result<Stop> {
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Stop { interrupt: Interrupt::new(), event, hooks: Mutex::default() })
    }

    pub(super) fn set(&self) {
        self.interrupt.set();
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        let hooks = self.hooks().clone();
        hooks.iter().for_each(|hook| hook());
    }

    /// Registers a hook that is called when the signal is set, or at once if it is set already. The
    /// hook may be called twice, from any thread, and must not block.
    pub(super) fn on_set(&self, hook: impl Fn() + Send + Sync + 'static) {
        let hook: Hook = Arc::new(hook);
        self.hooks().push(Arc::clone(&hook));
        if self.is_set() {
            hook();
        }
    }

    fn hooks(&self) -> MutexGuard<'_, Vec<Hook>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_set(&self) -> bool {
        self.interrupt.is_set()
    }

    /// The interrupt for waits for a ring.
    pub(super) fn interrupt(&self) -> Arc<Interrupt> {
        Arc::clone(&self.interrupt)
    }

    /// Waits until a file descriptor is readable, the signal is set, or the timeout passes.
    pub(super) fn wait(&self, readable: Option<&dyn AsFd>, timeout: Option<Duration>) -> io::Result<Waited> {
        let mut fds = vec![PollFd::new(&self.event, PollFlags::IN)];
        fds.extend(readable.map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
        let timeout = timeout.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => Ok(Waited::TimedOut),
            Ok(_) if !fds[0].revents().is_empty() => Ok(Waited::Stopped),
            Ok(_) => Ok(Waited::Readable),
            Err(Errno::INTR) => Ok(Waited::TimedOut),
            Err(error) => Err(error.into()),
        }
    }
}

/// The topics to which a source sends each message.
pub(super) struct Outlet {
    outputs: Vec<Output>,
    counters: Arc<Counters>,
    pub(super) stop: Arc<Stop>,
}

/// What became of a message that was sent without waiting.
#[cfg(feature = "nats")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Offered {
    Sent,
    /// There is no space, or the source must stop.
    Full,
    /// It is too long, or nobody reads the topic. It is counted.
    Dropped,
    /// All readers have ended.
    Closed,
}

/// Whether a source continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Next {
    Continue,
    Stop,
}

impl Outlet {
    pub(super) fn open(
        end: End,
        pipeline: &Pipeline,
        topology: &Topology,
        fabric: &Fabric,
        stop: &Arc<Stop>,
        counters: &Arc<Counters>,
    ) -> Result<Outlet> {
        let mut outputs = Vec::new();
        let mut feeds = Vec::new();
        for output in topology.producer(end).map_or(&[][..], |producer| &producer.outputs) {
            // A ring has one publisher, so a topic that is listed twice gets the message once.
            if feeds.contains(&output.feed) {
                continue;
            }
            feeds.push(output.feed);
            let policies = topology.policies(pipeline, output.feed);
            let mut groups = Vec::new();
            for ring in &output.rings {
                let bell = fabric.bell(topology.rings[*ring].group);
                groups.push(Publisher::open(fabric.ring(*ring), bell, WaitMode::Block, stop.interrupt())?);
            }
            let overflow = overflow(policies.overflow);
            outputs.push(Output { max_message: policies.max_message, overflow, groups, ended_groups: 0 });
        }
        Ok(Outlet { outputs, counters: Arc::clone(counters), stop: Arc::clone(stop) })
    }

    /// The longest message that all of its topics accept, in bytes.
    pub(super) fn max_message(&self) -> usize {
        self.outputs.iter().map(|output| output.max_message).min().unwrap_or(usize::MAX)
    }

    /// Sends a message to each topic. Blocks while a topic is full, if its policy is to block. A
    /// message that is too long is reported and dropped.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<Next> {
        let next = self.offer(message)?;
        Ok(if self.stop.is_set() { Next::Stop } else { next })
    }

    /// As [`Outlet::send`], but the result only says whether the message was accepted. It is `Stop`
    /// if a topic was still full when the source had to stop.
    ///
    /// # Errors
    ///
    /// As [`Outlet::send`].
    pub(super) fn offer(&mut self, message: &[u8]) -> Result<Next> {
        for output in &mut self.outputs {
            match output.send(message, &self.counters) {
                Ok(Sent::TooLong) => too_long(&self.counters, message.len()),
                Ok(_) => {}
                Err(SendError::Stopped) => return Ok(Next::Stop),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Next::Continue)
    }

    /// Sends a message to its first topic, which one queue reads. Does not block: if the topic is
    /// full and its policy is to block, the result is `Full`.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    #[cfg(feature = "nats")]
    pub(super) fn try_send(&mut self, message: &[u8]) -> Result<Offered> {
        let Some(output) = self.outputs.first_mut() else { return Ok(Offered::Closed) };
        if message.len() > output.max_message {
            too_long(&self.counters, message.len());
            return Ok(Offered::Dropped);
        }
        let Some(queue) = output.groups.first_mut() else { return Ok(Offered::Closed) };
        if output.overflow != control::Overflow::Block {
            output.send(message, &self.counters)?;
            return Ok(Offered::Sent);
        }
        match queue.try_send(message) {
            Ok(()) => {
                self.counters.add(Counter::SentMessages, 1);
                self.counters.add(Counter::SentBytes, message.len() as u64);
                Ok(Offered::Sent)
            }
            Err(PublishError::Full) => Ok(Offered::Full),
            Err(PublishError::Closed) => Ok(Offered::Closed),
            Err(error) => Err(SendError::from(error).into()),
        }
    }

    /// Sends messages to its first topic, which one queue reads, as far as there is space. Does not
    /// block. Returns how many it has sent. If it returns 0, [`try_send`](Self::try_send) says why.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    #[cfg(feature = "nats")]
    pub(super) fn try_send_batch<'a>(&mut self, messages: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
        let Some(output) = self.outputs.first_mut() else { return Ok(0) };
        let Some(queue) = output.groups.first_mut() else { return Ok(0) };
        if output.overflow != control::Overflow::Block {
            return Ok(0);
        }
        let (mut tried, mut bytes, mut last) = (0, 0, 0);
        let fitting = messages.take_while(|message| message.len() <= output.max_message).inspect(|message| {
            last = message.len() as u64;
            (tried, bytes) = (tried + 1, bytes + last);
        });
        let sent = match queue.try_send_batch(fitting) {
            Err(PublishError::Closed) => 0,
            sent => sent.map_err(SendError::from)?,
        };
        // It stops at the first message that is not sent.
        let bytes = if tried > sent { bytes - last } else { bytes };
        self.counters.add(Counter::SentMessages, sent as u64);
        self.counters.add(Counter::SentBytes, bytes);
        Ok(sent)
    }

    /// Whether it has a second topic, that for dead letters.
    #[cfg(feature = "nats")]
    pub(super) fn has_dead_letters(&self) -> bool {
        self.outputs.len() > 1
    }

    /// Sends a message to its second topic, that for dead letters, if it has one. Does not block:
    /// if the topic is full and its policy is to block, the result is `Full`. `queues` is how many
    /// queues of the topic have the message, 0 at first; call it again with the same value.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    #[cfg(feature = "nats")]
    pub(super) fn try_send_dead_letter(&mut self, message: &[u8], queues: &mut usize) -> Result<Offered> {
        let Some(output) = self.outputs.get_mut(1) else {
            self.dropped(1);
            return Ok(Offered::Dropped);
        };
        if message.len() > output.max_message {
            too_long(&self.counters, message.len());
            return Ok(Offered::Dropped);
        }
        if output.overflow != control::Overflow::Block {
            output.send(message, &self.counters)?;
            return Ok(Offered::Sent);
        }
        while let Some(queue) = output.groups.get_mut(*queues) {
            match queue.try_send(message) {
                Ok(()) => {}
                Err(PublishError::Full) => return Ok(Offered::Full),
                Err(PublishError::Closed) => self.counters.add(Counter::Unread, 1),
                Err(error) => return Err(SendError::from(error).into()),
            }
            *queues += 1;
        }
        self.counters.add(Counter::SentMessages, 1);
        self.counters.add(Counter::SentBytes, message.len() as u64);
        Ok(Offered::Sent)
    }

    /// Counts messages that were lost before they could be sent.
    #[cfg(feature = "nats")]
    pub(super) fn dropped(&self, messages: u64) {
        self.counters.add(Counter::Dropped, messages);
    }

    /// Closes the outputs before the whole connector has ended: no message follows.
    pub(super) fn close(self) {
        self.outputs.into_iter().flat_map(|output| output.groups).for_each(Publisher::close);
    }

    /// Reports a message that is longer than a topic allows.
    pub(super) fn too_long(&self, len: usize) {
        too_long(&self.counters, len);
    }
}

fn too_long(counters: &Counters, len: usize) {
    counters.add(Counter::Dropped, 1);
    tracing::warn!(bytes = len, "a message is longer than the `max_message` of its topic, and is dropped");
}

pub(super) fn overflow(overflow: Overflow) -> control::Overflow {
    match overflow {
        Overflow::Block => control::Overflow::Block,
        Overflow::DropOldest => control::Overflow::DropOldest,
        Overflow::DropNew => control::Overflow::DropNew,
    }
}
