//! Rings in shared memory as programs have them: in a memory file, behind a name of `shm_open`, in a mapped file; polled, or
//! waited for with a futex or with eventfds.
//!
//! The ring is that of [`estafette_contest_common::reference_ring`], with as many slots as the case asks for, which the reference ring cuts to what
//! caches hold. A message is filled in its slot and checked there.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use estafette_contest_common::capacity::slots;
use estafette_contest_common::fd_passing;
use estafette_contest_common::reference_ring::{Consumer, Opening, Producer, Shape, Wait, create_shared, lay_out};
use estafette_contest_common::ring_ends;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Tier, Wait as WaitMode};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::shm;

use super::passing;

/// Where `shm_open` has its names.
const SHM: &str = "/dev/shm";

pub(super) struct ShmRing {
    name: &'static str,
    memory: Memory,
    sleeps_on: Sleeps,
}

pub(super) const MEMFD: ShmRing = ShmRing::new("shm-memfd", Memory::Memfd, Sleeps::Futex);
pub(super) const MEMFD_EVENTFD: ShmRing = ShmRing::new("shm-memfd-eventfd", Memory::Memfd, Sleeps::Eventfd);
pub(super) const SHM_OPEN: ShmRing = ShmRing::new("shm-open", Memory::ShmOpen, Sleeps::Futex);
pub(super) const SHM_OPEN_EVENTFD: ShmRing = ShmRing::new("shm-open-eventfd", Memory::ShmOpen, Sleeps::Eventfd);
pub(super) const MMAP_FILE: ShmRing = ShmRing::new("mmap-file", Memory::File, Sleeps::Futex);
pub(super) const MMAP_FILE_EVENTFD: ShmRing = ShmRing::new("mmap-file-eventfd", Memory::File, Sleeps::Eventfd);

/// What the memory belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Memfd,
    ShmOpen,
    /// A file in the instance's directory, which the kernel writes back to its disk as it does any other.
    File,
}

/// What an end that blocks sleeps on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleeps {
    Futex,
    Eventfd,
}

impl ShmRing {
    const fn new(name: &'static str, memory: Memory, sleeps_on: Sleeps) -> ShmRing {
        ShmRing { name, memory, sleeps_on }
    }
}

impl Mechanism for ShmRing {
    fn spec(&self) -> Spec {
        let memory = match self.memory {
            Memory::Memfd => "a sealed memfd",
            Memory::ShmOpen => "memory of shm_open(3)",
            Memory::File => "a file in TMPDIR, mapped shared",
        };
        let (waits, how): (&[WaitMode], _) = match self.sleeps_on {
            Sleeps::Futex => (&[WaitMode::Spin, WaitMode::Block], "polled, or a futex"),
            Sleeps::Eventfd => (&[WaitMode::Block], "an eventfd for each end"),
        };
        let first = (self.memory, self.sleeps_on) == (Memory::Memfd, Sleeps::Futex);
        Spec::new(&format!("process/{}", self.name))
            .version(env!("CARGO_PKG_VERSION"))
            .implementation(&format!("a ring of slots in {memory}; {how}"))
            .waits(waits)
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .ownership(Ownership::Loaned)
            .tier(if first { Tier::Overview } else { Tier::Standard })
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(shape(case).ok()?.slots() as u64)
    }
}

fn shape(case: &Case) -> Result<Shape> {
    Ok(Shape::new(case.payload.len(), slots(case))?)
}

impl Transport<Raw> for ShmRing {
    type Tx = Producer;
    type Rx = Consumer;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Producer, Consumer>> {
        match self.sleeps_on {
            Sleeps::Futex => self.open_with::<1>(ring_ends::wait(case), case, role, rendezvous),
            Sleeps::Eventfd => self.open_with::<3>(Wait::Eventfd, case, role, rendezvous),
        }
    }
}

impl ShmRing {
    /// Opens a party's ends of rings that have so many descriptors each: the memory's, and those that are slept on.
    fn open_with<const N: usize>(
        &self,
        wait: Wait,
        case: &Case,
        role: Role,
        rendezvous: &mut Rendezvous,
    ) -> Result<Ends<Producer, Consumer>> {
        let shape = shape(case)?;
        let dir = rendezvous.dir().to_owned();
        let make = |name: &str| -> Result<[OwnedFd; N]> {
            let mut descriptors = vec![self.make(&dir, name, shape, wait)?];
            while descriptors.len() < N {
                descriptors.push(eventfd(0, EventfdFlags::CLOEXEC).context("making an eventfd")?);
            }
            Ok(descriptors.try_into().expect("as many as were made"))
        };
        let tx = |ring: &[OwnedFd; N]| Ok(self.opening(ring, shape, wait)?.producer()?);
        let rx = |ring: &[OwnedFd; N]| Ok(self.opening(ring, shape, wait)?.consumer()?);
        let forward = || make("forward").and_then(|ring| rx(&ring).map(|rx| (ring, rx)));
        let reply = || make("reply").and_then(|ring| tx(&ring).map(|tx| (ring, tx)));
        fd_passing::open_several(case, role, rendezvous, forward, reply, |forward| tx(&forward), |reply| rx(&reply))
    }

    /// The memory with an empty ring in it. It has no name, or none any more.
    fn make(&self, dir: &Path, name: &str, shape: Shape, wait: Wait) -> Result<OwnedFd> {
        let file = match self.memory {
            Memory::Memfd => return Ok(create_shared(shape, wait)?),
            Memory::ShmOpen => shared_memory(dir, name)?,
            Memory::File => file(dir, name)?,
        };
        lay_out(&file, shape, wait).with_context(|| match self.memory {
            Memory::File => format!("in a file in {}: another TMPDIR may have what is missing", dir.display()),
            _ => format!("in {SHM}"),
        })?;
        Ok(file)
    }

    #[allow(unsafe_code)]
    fn opening<'a>(&self, ring: &'a [OwnedFd], shape: Shape, wait: Wait) -> Result<Opening<'a>> {
        let (memory, eventfds) = ring.split_first().context("a ring without memory")?;
        let opening = Opening::new(memory.as_fd(), shape, wait);
        let opening = match self.memory {
            Memory::Memfd => opening,
            // SAFETY: nothing leads to the memory but the descriptors of this instance's processes, and neither they nor the
            // coordinator make it shorter.
            Memory::ShmOpen | Memory::File => unsafe { opening.unsealed() },
        };
        Ok(match eventfds {
            [filled, freed] => opening.sleeping_on(filled.try_clone()?, freed.try_clone()?),
            _ => opening,
        })
    }
}

/// An empty file in a directory, without its name.
fn file(dir: &Path, name: &str) -> Result<OwnedFd> {
    let path = dir.join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("making {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("taking away the name {}", path.display()))?;
    Ok(file.into())
}

/// Empty memory of `shm_open`, without its name.
fn shared_memory(dir: &Path, name: &str) -> Result<OwnedFd> {
    passing::sweep(SHM);
    let name = passing::unique(dir, name)?;
    let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
    let memory = shm::open(&*name, flags, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("making {SHM}{name}: is there a tmpfs that can be written?"))?;
    match shm::unlink(&*name) {
        // Swept by one that sees no process of this number, from another container.
        Ok(()) | Err(Errno::NOENT) => Ok(memory),
        Err(error) => Err(error).with_context(|| format!("taking away the name {SHM}{name}")),
    }
}
