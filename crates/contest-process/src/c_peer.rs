//! C baselines: for each family of kernel mechanisms, one row implemented by a C program.
//!
//! The programs are `c/peer.c`, compiled with one of the headers in `c/way`. They fill and verify
//! the same messages, and they implement the child protocol themselves. The difference between a
//! Rust row and its C row is the cost of the instrument and of Rust. The two must agree within 5 %.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};
use estafette_measure::Mechanism;
use estafette_measure::case::{Case, Role};
use estafette_measure::driver::Ctx;
use estafette_measure::entry::{Entry, Program, bytes};
use estafette_measure::protocol::Report;
use estafette_measure::spec::{Spec, Standing};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

use super::eventfd::Eventfd;
use super::pipe::Pipe;
use super::posix_mq::PosixMq;
use super::shm_mutex::ShmMutex;
use super::unix_stream::UnixStream;

/// The executable that `build.rs` compiled for a way to pass messages.
macro_rules! program {
    ($way:literal) => {
        include_bytes!(concat!(env!("OUT_DIR"), "/c-peer-", $way))
    };
}

/// `process/pipe`, in C.
pub(super) fn pipe() -> impl Entry {
    Peer::of(bytes(Pipe), program!("pipe"))
}

/// `process/unix-stream`, in C.
pub(super) fn unix_stream() -> impl Entry {
    Peer::of(bytes(UnixStream), program!("unix_stream"))
}

/// `process/posix-mq`, in C.
pub(super) fn posix_mq() -> impl Entry {
    Peer::of(bytes(PosixMq), program!("posix_mq"))
}

/// `process/shm-mutex`, in C.
pub(super) fn shm_mutex() -> impl Entry {
    Peer::of(bytes(ShmMutex), program!("shm_mutex"))
}

/// `process/eventfd`, in C.
pub(super) fn eventfd() -> impl Entry {
    Peer::of(bytes(Eventfd), program!("eventfd"))
}

/// A mechanism whose ends are C programs.
struct Peer<R> {
    spec: Spec,
    /// The Rust row that passes messages the same way.
    row: R,
    program: &'static [u8],
    /// The program in a memory file, created on first use.
    file: OnceLock<Result<OwnedFd>>,
}

impl<R: Entry> Peer<R> {
    fn of(row: R, program: &'static [u8]) -> Peer<R> {
        let mut spec = Spec::new(&format!("{}-c", row.spec().name))
            .implementation(&format!("{}, in C by {}", row.spec().implementation, env!("C_PEER_COMPILER")))
            .payloads(&row.spec().payloads)
            .standing(Standing::Baseline);
        spec.kernel_copies = row.spec().kernel_copies;
        Peer { spec, row, program, file: OnceLock::new() }
    }

    /// Returns the program as a sealed memory file. It is not on disk and leaves nothing behind.
    fn executable(&self) -> Result<&OwnedFd> {
        self.file
            .get_or_init(|| write_executable(self.program).context("putting the C program into memory"))
            .as_ref()
            .map_err(|error| anyhow!("{error:#}"))
    }
}

impl<R: Entry> Mechanism for Peer<R> {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        self.row.supports(case)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        self.row.mechanism().effective_capacity(case)
    }

    fn check_available(&self) -> Result<(), String> {
        self.row.mechanism().check_available()?;
        self.executable().map(drop).map_err(|error| format!("{error:#}"))
    }
}

impl<R: Entry> Entry for Peer<R> {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn mechanism(&self) -> &dyn Mechanism {
        self
    }

    fn run(&self, case: &Case, role: Role, _: &mut Ctx) -> Result<Report> {
        bail!("{role} of {} is a C program", case.mechanism)
    }

    fn program(&self, _: &Case, _: Role) -> Result<Option<Program>> {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.executable()?.as_raw_fd());
        Ok(Some(Program::new(path, [])))
    }
}

fn write_executable(program: &[u8]) -> Result<OwnedFd> {
    let make = |flags| memfd_create("estafette-c-peer", flags);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match make(flags | MemfdFlags::EXEC) {
        // Linux before 6.3 does not know this flag; all memory files are executable there.
        Err(Errno::INVAL) => make(flags),
        // The result of the sysctl vm.memfd_noexec=2.
        Err(Errno::ACCESS) => {
            bail!("this system forbids executing memory files; allow them with `sysctl vm.memfd_noexec=1`")
        }
        made => made,
    };
    let mut file = File::from(file?);
    file.write_all(program)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}
