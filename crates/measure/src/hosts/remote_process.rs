//! A child on the other host, as the coordinator sees it: its packets, its socket and its process.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;

use super::HostLoad;
use super::packet::{Ended, ToPeer};
use super::remote::{LOOK, SessionState};
use super::report::is_possible;
use crate::protocol::{self, ToChild, ToCoordinator};

/// About how much memory of the coordinator a packet of a child takes besides its text, in bytes.
const PACKET_SIZE: usize = 256;
/// The maximum memory of the coordinator that the packets of a child take, in bytes.
const MAX_SENT: usize = 4 << 20;
/// The maximum length of an error and of the last lines of a child, in characters.
const MAX_STDERR: usize = 4 * 1024;

/// More processes than a child can leave running. The numbers of several children are added.
const MAX_STRAYS: usize = 1 << 22;

/// A child on the other host.
pub(super) struct Child {
    pub(super) id: u64,
    /// The far end of the coordinator's socket.
    theirs: OwnedFd,
    stage: Mutex<Stage>,
    changed: Condvar,
    /// About how much memory of the coordinator its packets have taken, in bytes.
    sent: AtomicUsize,
}

/// How far a child on the other host has come.
#[derive(Debug, Default)]
enum Stage {
    /// It has not got `go`.
    #[default]
    Opening,
    Began,
    Ended(Ended),
}

impl Child {
    /// The child with this number, and the far end of the coordinator's socket to it.
    pub(super) fn new(id: u64, theirs: OwnedFd) -> Child {
        Child { id, theirs, stage: Mutex::default(), changed: Condvar::new(), sent: AtomicUsize::new(0) }
    }

    /// Passes a packet of the child on to the coordinator. Blocks while the coordinator does not read,
    /// until it closes its end.
    pub(super) fn deliver(&self, packet: ToCoordinator) {
        let size = PACKET_SIZE + publication_size(&packet);
        let failed = |error: &str| ToCoordinator::Failed { error: error.to_owned() };
        let packet = match packet {
            // The coordinator keeps what is published and requested.
            _ if self.sent.fetch_add(size, Ordering::Relaxed) > MAX_SENT => failed("published or requested too much"),
            // An address in the memory of a process on the other host.
            ToCoordinator::Ready { .. } => ToCoordinator::Ready { exchange: None },
            ToCoordinator::Report(report) if !is_possible(&report) => {
                failed("the other host reported numbers that are not possible")
            }
            ToCoordinator::Failed { error } => {
                ToCoordinator::Failed { error: error.chars().take(MAX_STDERR).collect() }
            }
            packet => packet,
        };
        // An error means that the coordinator has closed its end.
        let _ = protocol::send(&self.theirs, &packet, &[]);
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self) {
        let mut stage = self.stage();
        if matches!(*stage, Stage::Opening) {
            *stage = Stage::Began;
        }
        self.changed.notify_all();
    }

    pub(super) fn end(&self, mut ended: Ended) {
        ended.stderr = ended.stderr.chars().take(MAX_STDERR).collect();
        ended.strays = ended.strays.min(MAX_STRAYS);
        ended.load = Some(ended.load).filter(|load| load.is_possible()).unwrap_or_default();
        *self.stage() = Stage::Ended(ended);
        self.changed.notify_all();
        self.close();
    }

    /// Closes the socket in both directions. What is in it can still be read.
    pub(super) fn close(&self) {
        let _ = rustix::net::shutdown(&self.theirs, rustix::net::Shutdown::Both);
    }
}

/// The length of the text that a packet publishes or requests, in bytes.
fn publication_size(packet: &ToCoordinator) -> usize {
    match packet {
        ToCoordinator::Publish(publication) => publication.name.len() + publication.value.len(),
        ToCoordinator::Request { name } => name.len(),
        _ => 0,
    }
}

/// Sends the packets for a child to the other host, until the coordinator closes its end.
pub(super) fn forward(child: &Child, shared: &SessionState) {
    loop {
        let sent = match protocol::receive::<ToChild>(&child.theirs) {
            Ok(Some((packet, descriptors))) if descriptors.is_empty() => {
                let begins = matches!(packet, ToChild::Go { .. });
                let sent = shared.send(&ToPeer::Child { id: child.id, packet });
                if begins { sent.and_then(|()| shared.send(&ToPeer::Probe {})) } else { sent }
            }
            Ok(Some(_)) => {
                let error = String::from(
                    "a descriptor was published for it, and descriptors do not cross to another host: publish an address",
                );
                child.deliver(ToCoordinator::Failed { error });
                return;
            }
            Ok(None) | Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The process of a child on the other host. It is ended when this is dropped.
pub(crate) struct RemoteProcess {
    child: Arc<Child>,
    shared: Arc<SessionState>,
}

impl fmt::Debug for RemoteProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteProcess").field(&self.child.id).finish()
    }
}

impl RemoteProcess {
    pub(super) fn new(child: Arc<Child>, shared: Arc<SessionState>) -> RemoteProcess {
        RemoteProcess { child, shared }
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.end().map(|ended| ExitStatus::from_raw(ended.status))
    }

    /// Waits for it to end, or for the session to be lost, until `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<ExitStatus> {
        self.wait(deadline, |stage| matches!(stage, Stage::Ended(_)));
        self.ended()
    }

    /// Waits until it has got `go`, or has ended.
    ///
    /// # Errors
    /// When the session ends before that. The session ends if the other host does not confirm it in time.
    pub(crate) fn wait_until_begun(&self) -> Result<()> {
        if !self.wait(self.shared.answer_deadline(), |stage| !matches!(stage, Stage::Opening)) {
            self.shared.unanswered("the start of a child");
            return Err(self.shared.ended());
        }
        Ok(())
    }

    /// Waits for a stage, or for the session to be lost, until `deadline`. Returns whether the stage is reached.
    fn wait(&self, deadline: Instant, is_reached: impl Fn(&Stage) -> bool) -> bool {
        let mut stage = self.child.stage();
        while !is_reached(&stage) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.lost.get().is_some() {
                return false;
            }
            stage = self.child.changed.wait_timeout(stage, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends it, and waits until the other host has confirmed that. If it does not in time, the session ends: the child
    /// may still run there, beside what is measured next.
    pub(crate) fn kill(&self) {
        if self.ended().is_some() || self.shared.send(&ToPeer::Kill { id: self.child.id }).is_err() {
            return;
        }
        // Nobody reads its packets any more. The session's reader must not wait for that.
        self.child.close();
        if !self.wait(self.shared.answer_deadline(), |stage| matches!(stage, Stage::Ended(_))) {
            self.shared.unanswered("the end of a child");
        }
    }

    /// The last lines that it wrote to stderr. They are known when it has ended, so this ends it.
    pub(crate) fn stderr(&self) -> String {
        self.kill();
        self.end().map(|ended| ended.stderr).unwrap_or_default()
    }

    /// The number of processes that it left running on the other host.
    pub(crate) fn strays(&self) -> usize {
        self.end().map_or(0, |ended| ended.strays)
    }

    /// Why the session has ended, if that happened before the process did.
    pub(crate) fn lost(&self) -> Option<&str> {
        if self.ended().is_some() { None } else { self.shared.lost.get().map(String::as_str) }
    }

    /// How busy its host was while it ran. `None` as long as it runs.
    pub(crate) fn load(&self) -> Option<HostLoad> {
        self.end().map(|ended| ended.load)
    }

    fn end(&self) -> Option<Ended> {
        match &*self.child.stage() {
            Stage::Ended(ended) => Some(ended.clone()),
            Stage::Opening | Stage::Began => None,
        }
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        self.kill();
        self.shared.children().remove(&self.child.id);
        self.child.close();
    }
}
