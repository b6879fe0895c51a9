//! How the children of an instance find each other: they publish and request addresses and
//! descriptors by name, and wait at the barrier before the window.

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::protocol::{self, Publication, ToChild, ToCoordinator};
use crate::shared_memory;
use crate::usage::Usage;

/// A child's connection to the coordinator. Through it the children exchange addresses and
/// descriptors.
#[derive(Debug)]
pub struct Rendezvous {
    socket: OwnedFd,
    dir: PathBuf,
    address: IpAddr,
    /// The processor time and context switches of this child when the barrier opened.
    spent_before: Usage,
}

impl Rendezvous {
    pub(crate) fn new(socket: OwnedFd, dir: PathBuf, address: IpAddr) -> Rendezvous {
        Rendezvous { socket, dir, address, spent_before: Usage::default() }
    }

    /// The private directory of this instance. The coordinator removes it with all contents when
    /// the instance ends, even after a crash.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The address at which this child listens: 127.0.0.1, or its host's address if the ends are on
    /// two hosts. Publish the port with it.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Registers the names of this instance's shared memory objects (`shm_open`), which are outside
    /// its directory, as a pattern such as `library-17-*`.
    ///
    /// When the instance ends, even after a crash, the coordinator removes all objects that match,
    /// except those that a process has locked (`flock`). Call this before the first object is
    /// created.
    ///
    /// # Errors
    /// When the pattern cannot be saved.
    pub fn shared_memory(&self, pattern: &str) -> Result<()> {
        shared_memory::note(&self.dir, pattern).context("noting the names of shared memory")
    }

    /// Publishes an address, or any other text, to the other children under `name`. The instance
    /// fails if the name is published already.
    ///
    /// # Errors
    /// When the coordinator has ended.
    pub fn publish(&mut self, name: &str, value: &str) -> Result<()> {
        self.send_publication(name, value, &[])
    }

    /// Publishes descriptors under `name`. Each child that requests them gets its own duplicates.
    ///
    /// # Errors
    /// When the coordinator has ended, or for more than [`protocol::MAX_DESCRIPTORS`].
    pub fn publish_descriptors(&mut self, name: &str, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_publication(name, "", descriptors)
    }

    fn send_publication(&mut self, name: &str, value: &str, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let publication = Publication { name: name.to_owned(), value: value.to_owned() };
        protocol::send(&self.socket, &ToCoordinator::Publish(publication), descriptors)
            .with_context(|| format!("publishing `{name}`"))
    }

    /// Blocks until another child publishes a text under `name`, and returns it. If none does
    /// in time, the coordinator ends the instance.
    ///
    /// # Errors
    /// When the coordinator has ended.
    pub fn request(&mut self, name: &str) -> Result<String> {
        Ok(self.receive_published(name)?.0)
    }

    /// Blocks until another child publishes exactly `N` descriptors under `name`, and returns them.
    ///
    /// # Errors
    /// When the coordinator has ended, or when another number of descriptors was published.
    pub fn request_descriptors<const N: usize>(&mut self, name: &str) -> Result<[OwnedFd; N]> {
        let (_, descriptors) = self.receive_published(name)?;
        descriptors
            .try_into()
            .map_err(|received: Vec<_>| anyhow::anyhow!("`{name}` came with {} descriptors, not {N}", received.len()))
    }

    fn receive_published(&mut self, name: &str) -> Result<(String, Vec<OwnedFd>)> {
        let request = ToCoordinator::Request { name: name.to_owned() };
        protocol::send(&self.socket, &request, &[]).with_context(|| format!("requesting `{name}`"))?;
        match protocol::receive(&self.socket)? {
            Some((ToChild::Published(publication), descriptors)) if publication.name == name => {
                Ok((publication.value, descriptors))
            }
            Some((other, _)) => bail!("waiting for `{name}`: the coordinator sent {other:?}"),
            None => bail!("waiting for `{name}`: the coordinator has ended"),
        }
    }

    /// The barrier: reports that this child's ends are open, and blocks until those of all children
    /// are. Returns the common start time in `CLOCK_MONOTONIC` nanoseconds.
    ///
    /// Mechanisms that play a broker or a pipeline call it. For others the driver does.
    ///
    /// # Errors
    /// When the coordinator has ended.
    pub fn wait_at_barrier(&mut self) -> Result<u64> {
        self.wait_at_barrier_with(None)
    }

    /// As [`Rendezvous::wait_at_barrier`]. `exchange` is the address where the child notes the step
    /// of its current round trip, if it notes any.
    pub(crate) fn wait_at_barrier_with(&mut self, exchange: Option<u64>) -> Result<u64> {
        protocol::send(&self.socket, &ToCoordinator::Ready { exchange }, &[])?;
        match protocol::receive(&self.socket)? {
            Some((ToChild::Go { start_ns }, _)) => {
                self.spent_before = Usage::now();
                Ok(start_ns)
            }
            Some((other, _)) => bail!("waiting at the barrier: the coordinator sent {other:?}"),
            None => bail!("waiting at the barrier: the coordinator has ended"),
        }
    }

    /// Blocks until every party has reported. For a broker that does not see the end of the
    /// messages itself.
    ///
    /// # Errors
    /// When the coordinator has ended.
    pub fn wait_until_all_reported(&mut self) -> Result<()> {
        match protocol::receive(&self.socket)? {
            Some((ToChild::AllReported {}, _)) => Ok(()),
            Some((other, _)) => bail!("waiting until all parties have reported: the coordinator sent {other:?}"),
            None => bail!("waiting until all parties have reported: the coordinator has ended"),
        }
    }

    /// The processor time and context switches of this child since the barrier opened.
    pub(crate) fn spent(&self) -> Usage {
        Usage::now().since(&self.spent_before)
    }
}
