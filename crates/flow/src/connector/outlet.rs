//! How a source sends, and learns that it is to stop.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use estafette_ipc::WaitMode;
use estafette_ipc::group::{Interrupt, Publisher};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::config::{End, Overflow, Pipeline, Topology};
use crate::control;
use crate::counters::{Counter, Counters};
use crate::function::{Output, SendError, Sent};
use crate::supervisor::Fabric;

/// Asks a connector to stop, whether it waits for a ring or for the world outside.
pub(super) struct Stop {
    interrupt: Arc<Interrupt>,
    /// Readable once it is set.
    event: OwnedFd,
    hooks: Mutex<Vec<Hook>>,
}

/// Ends a wait of another kind.
type Hook = Arc<dyn Fn() + Send + Sync>;

/// What a wait for the world outside ended with.
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

    /// Has this done when it is set: at once, if it is set already. It may be done twice, from any
    /// thread, and must not wait.
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

    /// What ends the waits for a ring.
    pub(super) fn interrupt(&self) -> Arc<Interrupt> {
        Arc::clone(&self.interrupt)
    }

    /// Waits for a time, or until a descriptor can be read.
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

/// The topics that a source sends each message to.
pub(super) struct Outlet {
    outputs: Vec<Output>,
    counters: Arc<Counters>,
    pub(super) stop: Arc<Stop>,
}

/// Whether a source goes on.
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
            // A ring has one publisher, and a topic that is named twice gets the message once.
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
            outputs.push(Output { max_message: policies.max_message, overflow: overflow(policies.overflow), groups });
        }
        Ok(Outlet { outputs, counters: Arc::clone(counters), stop: Arc::clone(stop) })
    }

    /// The longest message that all of its topics take, in bytes.
    pub(super) fn max_message(&self) -> usize {
        self.outputs.iter().map(|output| output.max_message).min().unwrap_or(usize::MAX)
    }

    /// Sends a message to each topic. Blocks while one is full and its policy is to block. A
    /// message that is too long is reported and left out.
    ///
    /// # Errors
    ///
    /// If a ring is broken.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<Next> {
        let next = self.offer(message)?;
        Ok(if self.stop.is_set() { Next::Stop } else { next })
    }

    /// As [`Outlet::send`], but says only whether the message was accepted: `Stop` if a topic was
    /// still full when the source was to stop.
    ///
    /// # Errors
    ///
    /// Those of [`Outlet::send`].
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

    /// Says that nothing more comes, before the connector as a whole has ended.
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
    tracing::warn!(bytes = len, "a message is longer than the `max_message` of its topic, and is left out");
}

pub(super) fn overflow(overflow: Overflow) -> control::Overflow {
    match overflow {
        Overflow::Block => control::Overflow::Block,
        Overflow::DropOldest => control::Overflow::DropOldest,
        Overflow::DropNew => control::Overflow::DropNew,
    }
}
