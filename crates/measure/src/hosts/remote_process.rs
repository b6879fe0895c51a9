//! The coordinator's handle to the process of a child on the other host: forwards its packets, waits
//! for it, and ends it.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anyhow::Result;

use super::HostLoad;
use super::packet::{Ended, ToPeer};
use super::remote_child::{Child, Stage};
use super::session_state::{LOOK, SessionState};
use crate::protocol::{self, ToChild, ToCoordinator};

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
    /// When the session ends before that. The session ends if the other host does not confirm it in
    /// time.
    pub(crate) fn wait_until_begun(&self) -> Result<()> {
        if !self.wait(self.shared.answer_deadline(), |stage| !matches!(stage, Stage::Opening)) {
            self.shared.unanswered("the start of a child");
            return Err(self.shared.ended());
        }
        Ok(())
    }

    /// Waits for a stage, or for the session to be lost, until `deadline`. Returns whether the
    /// stage is reached.
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

    /// Ends it, and waits until the other host has confirmed that. If it does not in time, the
    /// session ends: the child may still run there, beside what is measured next.
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
