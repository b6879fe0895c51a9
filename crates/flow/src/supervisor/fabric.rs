//! The shared memory of a pipeline: a bell for each queue group, and a ring for each pair of a
//! producer and a group.
//!
//! The supervisor keeps all descriptors, so the memory outlives any host. It has no names in the
//! file system.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use estafette_ipc::group::{BellFile, Counters, Depth, Recovered, Recovery, RingControl, RingFile};

use crate::config::{Delivery, End, Pipeline, Topology};

/// The rings and bells of a topology.
pub(crate) struct Fabric {
    bells: Vec<BellFile>,
    rings: Vec<Ring>,
}

struct Ring {
    file: RingFile,
    control: RingControl,
}

impl Fabric {
    /// Creates all bells and rings.
    ///
    /// # Errors
    ///
    /// If there is not enough memory, or no file descriptor is left.
    pub(super) fn create(pipeline: &Pipeline, topology: &Topology) -> Result<Fabric> {
        let bells = topology.groups.iter().map(|_| BellFile::create()).collect::<Result<Vec<_>, _>>()?;
        let mut rings = Vec::new();
        for ring in &topology.rings {
            let group = &topology.groups[ring.group];
            let capacity = topology.policies(pipeline, group.feed).capacity;
            let file = RingFile::create(capacity, group.members.len().max(1)).context("cannot make a ring")?;
            let control = RingControl::open(&file, &bells[ring.group])?;
            rings.push(Ring { file, control });
        }
        Ok(Fabric { bells, rings })
    }

    /// The descriptors that a member of a group maps: the group's bell and each of its rings.
    pub(super) fn input(&self, topology: &Topology, group: usize) -> Vec<BorrowedFd<'_>> {
        let rings = topology.groups[group].rings.iter().map(|ring| self.rings[*ring].file.as_fd());
        std::iter::once(self.bells[group].as_fd()).chain(rings).collect()
    }

    /// The descriptors that a producer maps for one output: each ring and the bell of its readers.
    pub(super) fn output(&self, topology: &Topology, rings: &[usize]) -> Vec<BorrowedFd<'_>> {
        let pair = |ring: &usize| [self.rings[*ring].file.as_fd(), self.bells[topology.rings[*ring].group].as_fd()];
        rings.iter().flat_map(pair).collect()
    }

    /// A bell, for a member in this process.
    pub(crate) fn bell(&self, group: usize) -> &BellFile {
        &self.bells[group]
    }

    /// A ring, for a producer or a member in this process.
    pub(crate) fn ring(&self, ring: usize) -> &RingFile {
        &self.rings[ring].file
    }

    /// Closes the rings of a producer that has ended.
    pub(super) fn close_outputs(&self, topology: &Topology, producer: End) {
        for at in produced_by(topology, producer) {
            self.rings[at].control.close();
        }
    }

    /// Closes the rings of a group without readers. Senders then drop messages to this group.
    pub(super) fn close_inputs(&self, topology: &Topology, group: usize) {
        for ring in &topology.groups[group].rings {
            self.rings[*ring].control.close();
        }
    }

    /// Whether all rings of a group are closed and empty. Members may still be processing messages.
    pub(super) fn is_exhausted(&self, topology: &Topology, group: usize) -> bool {
        topology.groups[group].rings.iter().all(|ring| {
            let control = &self.rings[*ring].control;
            control.is_closed() && control.is_empty()
        })
    }

    /// Recovers the claims of a dead member, and wakes members that wait for them.
    pub(super) fn recover(&self, topology: &Topology, group: usize, member: usize, delivery: Delivery) -> Recovered {
        let recovery = match delivery {
            Delivery::AtLeastOnce => Recovery::Return,
            Delivery::AtMostOnce => Recovery::Discard,
        };
        let mut all = Recovered::default();
        for ring in &topology.groups[group].rings {
            let one = self.rings[*ring].control.recover(member, recovery);
            all.returned += one.returned;
            all.discarded += one.discarded;
        }
        all
    }

    /// Wakes all readers that a dead producer may have failed to wake.
    pub(super) fn wake_readers(&self, topology: &Topology, producer: End) {
        for at in produced_by(topology, producer) {
            self.rings[at].control.wake_all();
        }
    }

    /// The messages that wait in a ring.
    pub(super) fn depth(&self, ring: usize) -> Depth {
        self.rings[ring].control.depth()
    }

    /// The counters of a ring.
    pub(super) fn counters(&self, ring: usize) -> Counters {
        self.rings[ring].control.counters()
    }
}

/// The rings of a producer.
fn produced_by(topology: &Topology, producer: End) -> impl Iterator<Item = usize> {
    (0..).zip(&topology.rings).filter(move |(_, ring)| ring.producer == producer).map(|(at, _)| at)
}
