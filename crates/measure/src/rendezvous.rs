//! How the children of an instance find each other: offers and wants by name, and the barrier before the window.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::protocol::{self, Offer, ToChild, ToCoordinator};
use crate::shared_memory;
use crate::usage::Usage;

/// A child's connection to the coordinator, through which it meets the others.
#[derive(Debug)]
pub struct Rendezvous {
    socket: OwnedFd,
    dir: PathBuf,
    /// What this child had spent when the barrier opened.
    spent_before: Usage,
}

impl Rendezvous {
    pub(crate) fn new(socket: OwnedFd, dir: PathBuf) -> Rendezvous {
        Rendezvous { socket, dir, spent_before: Usage::default() }
    }

    /// A directory that belongs to this instance alone. It and all that is in it is gone when the instance has ended,
    /// however it ended.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Says what names this instance gives to shared memory (`shm_open`), which has them outside of its directory: a pattern
    /// such as `library-17-*`. What it matches is gone when the instance has ended, however it ended, but for what some
    /// process holds a lock on (`flock`). To be said before the first is made.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn shared_memory(&self, pattern: &str) -> Result<()> {
        shared_memory::note(&self.dir, pattern).context("noting the names of shared memory")
    }

    /// Offers an address, or anything that is text, to the other children under `name`.
    ///
    /// # Errors
    /// When the coordinator has gone.
    pub fn publish(&mut self, name: &str, value: &str) -> Result<()> {
        self.send_offer(name, value, &[])
    }

    /// Offers descriptors under `name`. Each child that wants them gets its own duplicates.
    ///
    /// # Errors
    /// When the coordinator has gone, or for more than [`protocol::MAX_DESCRIPTORS`].
    pub fn offer_descriptors(&mut self, name: &str, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        self.send_offer(name, "", descriptors)
    }

    fn send_offer(&mut self, name: &str, value: &str, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        let publish = Offer { name: name.to_owned(), value: value.to_owned() };
        protocol::send(&self.socket, &ToCoordinator::Offer(publish), descriptors)
            .with_context(|| format!("offering `{name}`"))
    }

    /// Waits for what another child offers under `name`: its text.
    ///
    /// # Errors
    /// When the coordinator has gone. It ends the instance where nobody offers in time.
    pub fn request(&mut self, name: &str) -> Result<String> {
        Ok(self.receive_offer(name)?.0)
    }

    /// Waits for the descriptors that another child offers under `name`: exactly `N`.
    ///
    /// # Errors
    /// When the coordinator has gone, or the offer has another number of descriptors.
    pub fn request_descriptors<const N: usize>(&mut self, name: &str) -> Result<[OwnedFd; N]> {
        let (_, descriptors) = self.receive_offer(name)?;
        descriptors
            .try_into()
            .map_err(|had: Vec<_>| anyhow::anyhow!("`{name}` came with {} descriptors, not {N}", had.len()))
    }

    fn receive_offer(&mut self, name: &str) -> Result<(String, Vec<OwnedFd>)> {
        let request = ToCoordinator::Want { name: name.to_owned() };
        protocol::send(&self.socket, &request, &[]).with_context(|| format!("asking for `{name}`"))?;
        match protocol::receive(&self.socket)? {
            Some((ToChild::Offer(publish), descriptors)) if publish.name == name => Ok((publish.value, descriptors)),
            Some((other, _)) => bail!("waiting for `{name}`, the coordinator said {other:?}"),
            None => bail!("waiting for `{name}`, the coordinator went away"),
        }
    }

    /// The barrier: says that this child's ends are open and waits until those of all children are. Returns the common
    /// start in `CLOCK_MONOTONIC` nanoseconds. For mechanisms that play a broker; the drivers call it for the others.
    ///
    /// # Errors
    /// When the coordinator has gone.
    pub fn ready(&mut self) -> Result<u64> {
        protocol::send(&self.socket, &ToCoordinator::Ready {}, &[])?;
        match protocol::receive(&self.socket)? {
            Some((ToChild::Go { start_ns }, _)) => {
                self.spent_before = Usage::now();
                Ok(start_ns)
            }
            Some((other, _)) => bail!("waiting at the barrier, the coordinator said {other:?}"),
            None => bail!("waiting at the barrier, the coordinator went away"),
        }
    }

    /// Waits until every party has reported: for a broker that does not see the end of their messages.
    ///
    /// # Errors
    /// When the coordinator has gone.
    pub fn over(&mut self) -> Result<()> {
        match protocol::receive(&self.socket)? {
            Some((ToChild::Over {}, _)) => Ok(()),
            Some((other, _)) => bail!("waiting for the parties' end, the coordinator said {other:?}"),
            None => bail!("waiting for the parties' end, the coordinator went away"),
        }
    }

    /// What this child has spent since the barrier opened.
    pub(crate) fn spent(&self) -> Usage {
        Usage::now().since(&self.spent_before)
    }
}
