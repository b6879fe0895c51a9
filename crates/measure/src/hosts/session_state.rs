//! What the threads of a session of the coordinator share: the way to the peer, the children there,
//! and why the session has ended.

use std::collections::HashMap;
use std::io::Write;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::frame;
use super::packet::{FromPeer, ToPeer};
use super::remote_child::Child;

/// How often a wait looks whether the user has interrupted or the session has ended.
pub(super) const LOOK: Duration = Duration::from_millis(20);
/// The maximum length of the reason why the peer ended a session, in characters.
const MAX_REASON: usize = 1024;

/// What the threads of a session share.
pub(super) struct SessionState {
    writer: Mutex<Box<dyn Write + Send>>,
    children: Mutex<HashMap<u64, Arc<Child>>>,
    /// Why the session has ended.
    pub(super) lost: OnceLock<String>,
    /// How long the peer may take to answer a request, or to confirm the start or the end of a
    /// child.
    answer_timeout: Duration,
}

impl SessionState {
    /// The state of a session that has begun.
    pub(super) fn new(writer: Box<dyn Write + Send>, answer_timeout: Duration) -> SessionState {
        SessionState { writer: Mutex::new(writer), children: Mutex::default(), lost: OnceLock::new(), answer_timeout }
    }

    pub(super) fn children(&self) -> MutexGuard<'_, HashMap<u64, Arc<Child>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a packet to the peer.
    ///
    /// # Errors
    /// When the session has ended.
    pub(super) fn send(&self, packet: &ToPeer) -> Result<()> {
        let sent = frame::write(&mut *self.writer.lock().unwrap_or_else(PoisonError::into_inner), packet);
        sent.map_err(|error| {
            self.lose(format!("{error:#}"));
            self.ended()
        })
    }

    /// Until when the peer may answer what it is asked now.
    pub(super) fn answer_deadline(&self) -> Instant {
        Instant::now() + self.answer_timeout
    }

    /// Ends the session, because the peer did not answer something in time.
    pub(super) fn unanswered(&self, what: &str) {
        let seconds = self.answer_timeout.as_secs();
        self.lose(format!(
            "the peer did not answer {what} within {seconds} s: check the network, and whether that host is overloaded"
        ));
    }

    /// The error of what needs a session that has ended.
    pub(super) fn ended(&self) -> anyhow::Error {
        let why = self.lost.get().map_or("", String::as_str);
        anyhow::anyhow!("the session with the other host has ended: {why}")
    }

    /// Notes that the session has ended, and closes the sockets of its children.
    pub(super) fn lose(&self, why: String) {
        let _ = self.lost.set(why);
        self.children().values().for_each(|child| child.close());
    }

    /// Handles a packet of the peer.
    ///
    /// # Errors
    /// When the peer breaks the protocol, with the reason.
    pub(super) fn dispatch(&self, packet: FromPeer, answers: &SyncSender<FromPeer>) -> Result<(), String> {
        match packet {
            FromPeer::Child { id, packet } => {
                let child = self.children().get(&id).cloned();
                // Nobody waits for the packets of a child that this side has ended.
                if let Some(child) = child {
                    child.deliver(packet);
                }
            }
            FromPeer::Began { id } => {
                if let Some(child) = self.children().get(&id) {
                    child.begin();
                }
            }
            FromPeer::Ended { id, ended } => {
                if let Some(child) = self.children().remove(&id) {
                    child.end(ended);
                }
            }
            FromPeer::Probe {} => {}
            FromPeer::Refused { reason } => {
                return Err(format!("the peer ended it: {}", reason.chars().take(MAX_REASON).collect::<String>()));
            }
            // An answer that nobody waits for is one too many.
            answer => answers.try_send(answer).map_err(|_| String::from("the peer answered what it was not asked"))?,
        }
        Ok(())
    }
}

/// Handles a packet of a peer in a session with one child, number 7.
#[cfg(test)]
pub(super) fn dispatch_in_test(packet: FromPeer) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (_ours, theirs) = pair.expect("a socket pair");
    let shared = SessionState::new(Box::new(std::io::sink()), Duration::ZERO);
    shared.children().insert(7, Arc::new(Child::new(7, theirs)));
    let _ = shared.dispatch(packet, &std::sync::mpsc::sync_channel(1).0);
}
