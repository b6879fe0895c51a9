//! A pair of UNIX stream sockets, sent to and received from through io_uring: each call is an entry in a ring, submitted and
//! waited for by one system call.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;

use ::io_uring::{IoUring, Probe, opcode, squeue, types};
use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

/// The version of the crate.
pub(super) const VERSION: &str = env!("LOCKED_IO_URING");
/// The socket, among the files that a ring knows.
const SOCKET: types::Fixed = types::Fixed(0);

pub(super) struct IoUringSocket;

impl Mechanism for IoUringSocket {
    fn spec(&self) -> Spec {
        Spec::new("process/io-uring")
            .version(VERSION)
            .implementation(
                "socketpair(AF_UNIX, SOCK_STREAM), send and recv by io_uring with MSG_WAITALL: one for each message",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .tier(Tier::Suite)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = Socket::pair().ok()?;
        capacity::written(ours, case.payload.len())
    }

    fn check_available(&self) -> Result<(), String> {
        usable(&[(opcode::Send::CODE, "send"), (opcode::Recv::CODE, "recv")]).map(drop)
    }
}

/// Whether io_uring can be had, with these operations; a ring of it.
pub(super) fn usable(operations: &[(u8, &str)]) -> Result<IoUring, String> {
    let ring = IoUring::new(2).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => String::from("this kernel has no io_uring (Linux 5.1 and CONFIG_IO_URING)"),
        Some(libc::EPERM | libc::EACCES) => String::from(
            "io_uring is forbidden here: set kernel.io_uring_disabled to 0, or have the container's seccomp profile allow \
             io_uring_setup",
        ),
        Some(libc::ENOMEM) => String::from("no memory may be locked for a ring: raise it with `ulimit -l`"),
        _ => format!("io_uring cannot be set up: {error}"),
    })?;
    let mut probe = Probe::new();
    let asked = ring.submitter().register_probe(&mut probe);
    let missing = operations.iter().find(|(code, _)| asked.is_err() || !probe.is_supported(*code));
    match missing {
        Some((_, name)) => Err(format!("this kernel's io_uring has no {name}: a newer one has")),
        None => Ok(ring),
    }
}

impl Transport<Raw> for IoUringSocket {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let socket = fd_passing::of_pair(role, rendezvous, Socket::pair)?;
        let len = case.payload.len();
        // Where each end has a thread of its own, that is not the one that opens them.
        let stays = case.pattern != Pattern::Duplex;
        let (tx, rx) = (Sending(Ring::new(&socket, len, stays)?), Receiving(Ring::new(&socket, len, stays)?));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// A ring for one operation at a time, and the message that it is about.
struct Ring {
    ring: IoUring,
    buffer: Buffer,
}

impl Ring {
    /// `stays` where this thread is the one that uses it.
    fn new(socket: &OwnedFd, len: usize, stays: bool) -> Result<Ring> {
        let mut told = IoUring::builder();
        if stays {
            // One thread uses it, and it waits for each operation: nothing need be done before it does.
            told.setup_single_issuer().setup_defer_taskrun();
        }
        // Linux before 6.1 does not know to be told.
        let ring = told.build(2).or_else(|_| IoUring::new(2)).context("setting up io_uring")?;
        // The ring has a reference of its own from here on.
        ring.submitter().register_files(&[socket.as_raw_fd()]).context("giving io_uring a socket")?;
        Ok(Ring { ring, buffer: Buffer::new(len) })
    }

    /// Has an operation done on the buffer from `done` on, until all of it is.
    #[inline(always)]
    fn whole(&mut self, entry: impl Fn(*mut u8, u32) -> squeue::Entry, closed: ErrorKind) -> io::Result<()> {
        let mut done = 0;
        while done < self.buffer.len() {
            let rest = &mut self.buffer[done..];
            let entry = entry(rest.as_mut_ptr(), rest.len().try_into().unwrap_or(u32::MAX));
            match self.one(&entry)? {
                0 => return Err(closed.into()),
                more => done += more,
            }
        }
        Ok(())
    }

    /// Submits an operation on the buffer and waits for its result.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn one(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        // SAFETY: the entry is about the buffer alone, which is neither touched nor freed before the operation is over: this
        // returns then, or else `abandon` keeps it for ever.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)?;
        loop {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(self.abandon(error));
            }
            let Some(entry) = self.ring.completion().next() else { continue };
            return usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()));
        }
    }

    /// Leaves the buffer to an operation that may not be over.
    #[cold]
    fn abandon(&mut self, error: io::Error) -> io::Error {
        mem::forget(mem::replace(&mut self.buffer, Buffer::new(0)));
        error
    }
}

/// The sending end.
pub(super) struct Sending(Ring);

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(&mut self.0.buffer);
        let send = |from: *mut u8, len| {
            opcode::Send::new(SOCKET, from, len).flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build()
        };
        ready(self.0.whole(send, ErrorKind::WriteZero))
    }
}

/// The receiving end.
pub(super) struct Receiving(Ring);

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        let recv = |to, len| opcode::Recv::new(SOCKET, to, len).flags(libc::MSG_WAITALL).build();
        ready(self.0.whole(recv, ErrorKind::UnexpectedEof).map(|()| verifier.bytes(&self.0.buffer)))
    }
}
