//! Rings in shared memory as programs use them. The memory is a memfd, memory of `shm_open`, or a
//! mapped file. Ends poll, or wait on a futex or on eventfds.
//!
//! The ring is [`estafette_contest_common::reference_ring`] with as many slots as the case
//! requests; the reference ring itself is cut to what caches hold. A message is filled and verified
//! in place.

use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use estafette_contest_common::capacity::slots;
use estafette_contest_common::fd_passing::DescriptorChannel;
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

/// The directory that contains the names of `shm_open`.
const SHM: &str = "/dev/shm";

pub(super) struct ShmRing {
    name: &'static str,
    memory: Memory,
    sleep_on: SleepOn,
}

pub(super) const MEMFD: ShmRing = ShmRing::new("shm-memfd", Memory::Memfd, SleepOn::Futex);
pub(super) const MEMFD_EVENTFD: ShmRing = ShmRing::new("shm-memfd-eventfd", Memory::Memfd, SleepOn::Eventfd);
pub(super) const SHM_OPEN: ShmRing = ShmRing::new("shm-open", Memory::ShmOpen, SleepOn::Futex);
pub(super) const SHM_OPEN_EVENTFD: ShmRing = ShmRing::new("shm-open-eventfd", Memory::ShmOpen, SleepOn::Eventfd);
pub(super) const MMAP_FILE: ShmRing = ShmRing::new("mmap-file", Memory::File, SleepOn::Futex);
pub(super) const MMAP_FILE_EVENTFD: ShmRing = ShmRing::new("mmap-file-eventfd", Memory::File, SleepOn::Eventfd);

/// The kind of memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    Memfd,
    ShmOpen,
    /// A file in the instance's directory. The kernel writes it back to its disk like any other
    /// file.
    File,
}

/// What a blocking end sleeps on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SleepOn {
    Futex,
    Eventfd,
}

impl ShmRing {
    const fn new(name: &'static str, memory: Memory, sleep_on: SleepOn) -> ShmRing {
        ShmRing { name, memory, sleep_on }
    }
}

impl Mechanism for ShmRing {
    fn spec(&self) -> Spec {
        let memory = match self.memory {
            Memory::Memfd => "a sealed memfd",
            Memory::ShmOpen => "memory of shm_open(3)",
            Memory::File => "a file in TMPDIR, mapped shared",
        };
        let (waits, how): (&[WaitMode], _) = match self.sleep_on {
            SleepOn::Futex => (&[WaitMode::Spin, WaitMode::Block], "polled, or a futex"),
            SleepOn::Eventfd => (&[WaitMode::Block], "an eventfd for each end"),
        };
        let first = (self.memory, self.sleep_on) == (Memory::Memfd, SleepOn::Futex);
        Spec::new(&format!("process/{}", self.name))
            .kernel_copies(0)
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
        match self.sleep_on {
            SleepOn::Futex => self.open_with::<1>(ring_ends::wait(case), case, role, rendezvous),
            SleepOn::Eventfd => self.open_with::<3>(Wait::Eventfd, case, role, rendezvous),
        }
    }
}

impl ShmRing {
    /// Opens a party's ends of rings with `N` descriptors each: one for the memory, and the
    /// eventfds.
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
        let tx = |ring: [OwnedFd; N]| tx(&ring);
        let rx = |ring: [OwnedFd; N]| rx(&ring);
        DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
    }

    /// Creates memory with an empty ring. It has no name, or no longer has one.
    fn make(&self, dir: &Path, name: &str, shape: Shape, wait: Wait) -> Result<OwnedFd> {
        let file = match self.memory {
            Memory::Memfd => return Ok(create_shared(shape, wait)?),
            Memory::ShmOpen => shared_memory(dir, name)?,
            Memory::File => file(dir, name)?,
        };
        lay_out(&file, shape, wait).with_context(|| match self.memory {
            Memory::File => format!("in a file in {}: set TMPDIR to another file system", dir.display()),
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
            // SAFETY: only the descriptors of this instance's processes refer to the memory.
            // Neither these processes nor the coordinator shrink it.
            Memory::ShmOpen | Memory::File => unsafe { opening.unsealed() },
        };
        Ok(match eventfds {
            [filled, freed] => opening.sleeping_on(filled.try_clone()?, freed.try_clone()?),
            _ => opening,
        })
    }
}

/// Creates an empty file in a directory and removes its name.
fn file(dir: &Path, name: &str) -> Result<OwnedFd> {
    let path = dir.join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("making {}", path.display()))?;
    fs::remove_file(&path).with_context(|| format!("removing the name {}", path.display()))?;
    Ok(file.into())
}

/// Creates empty memory with `shm_open` and removes its name.
fn shared_memory(dir: &Path, name: &str) -> Result<OwnedFd> {
    passing::sweep(SHM);
    let name = passing::unique(dir, name)?;
    let flags = shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR;
    let memory = shm::open(&*name, flags, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("making {SHM}{name}: is there a tmpfs that can be written?"))?;
    match shm::unlink(&*name) {
        // `sweep` of another container removed the name, because it sees no process with this
        // identifier.
        Ok(()) | Err(Errno::NOENT) => Ok(memory),
        Err(error) => Err(error).with_context(|| format!("removing the name {SHM}{name}")),
    }
}
