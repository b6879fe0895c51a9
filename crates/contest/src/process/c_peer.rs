//! Baselines in C: the pipe and the sockets of [`super::pipe`] and [`super::unix_stream`] in the hands of a C program.
//!
//! The program is `c/peer.c`. It fills and checks the same messages and speaks the child protocol by itself, so what
//! the rows in Rust show beside these is what the instrument, and Rust, cost. They must agree within 5 %.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};
use estafette_measure::case::{Case, Role};
use estafette_measure::driver::Ctx;
use estafette_measure::entry::Entry;
use estafette_measure::protocol::Report;
use estafette_measure::spec::{Spec, Standing};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// The executable that `build.rs` made of `c/peer.c`.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/c-peer"));

/// `process/pipe`, in C.
pub(super) fn pipe() -> impl Entry {
    Peer::new("process/pipe-c", concat!("pipe(2), write and read, in C by ", env!("C_PEER_COMPILER")))
}

/// `process/unix-stream`, in C.
pub(super) fn unix_stream() -> impl Entry {
    let stands_on = concat!("socketpair(AF_UNIX, SOCK_STREAM), send and recv, in C by ", env!("C_PEER_COMPILER"));
    Peer::new("process/unix-stream-c", stands_on)
}

/// A mechanism whose ends are C programs.
struct Peer(Spec);

impl Peer {
    fn new(name: &str, stands_on: &str) -> Peer {
        Peer(Spec::new(name).stands_on(stands_on).standing(Standing::Baseline))
    }
}

impl Entry for Peer {
    fn spec(&self) -> &Spec {
        &self.0
    }

    fn supports(&self, _: &Case) -> Result<(), String> {
        Ok(())
    }

    fn roles(&self, _: &Case) -> Vec<Role> {
        vec![Role::Consumer(0), Role::Producer(0)]
    }

    fn run(&self, case: &Case, role: Role, _: &mut Ctx) -> Result<Report> {
        bail!("{role} of {} is a C program", case.mechanism)
    }

    fn present(&self) -> Result<(), String> {
        executable().map(drop).map_err(|error| format!("{error:#}"))
    }

    fn program(&self, _: &Case, _: Role) -> Result<Option<PathBuf>> {
        Ok(Some(PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), executable()?.as_raw_fd()))))
    }
}

/// The program as a file in memory that nobody can change: it is nowhere on disk, and nothing is left of it.
fn executable() -> Result<&'static OwnedFd> {
    static FILE: OnceLock<Result<OwnedFd>> = OnceLock::new();
    FILE.get_or_init(|| write_executable().context("putting the C program into memory"))
        .as_ref()
        .map_err(|error| anyhow!("{error:#}"))
}

fn write_executable() -> Result<OwnedFd> {
    let make = |flags| memfd_create("estafette-c-peer", flags);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match make(flags | MemfdFlags::EXEC) {
        // Linux before 6.3 knows no such flag: there, every such file can be executed.
        Err(Errno::INVAL) => make(flags),
        // What the sysctl vm.memfd_noexec=2 says.
        Err(Errno::ACCESS) => {
            bail!("this system forbids programs in memory; allow them with `sysctl vm.memfd_noexec=1`")
        }
        made => made,
    };
    let mut file = File::from(file?);
    file.write_all(PROGRAM)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}
