//! A child on the other host, as the coordinator sees it: its packets, its socket, and how far it
//! has come.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::packet::Ended;
use super::report::is_possible;
use crate::protocol::{self, ToCoordinator};

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
    pub(super) theirs: OwnedFd,
    stage: Mutex<Stage>,
    /// Notified when the stage changes.
    pub(super) changed: Condvar,
    /// About how much memory of the coordinator its packets have taken, in bytes.
    sent: AtomicUsize,
}

/// How far a child on the other host has come.
#[derive(Debug, Default)]
pub(super) enum Stage {
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

    /// Passes a packet of the child on to the coordinator. Blocks while the coordinator does not
    /// read, until it closes its end.
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

    pub(super) fn stage(&self) -> MutexGuard<'_, Stage> {
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
