//! A pair of UNIX stream sockets used through io_uring. Each send or receive is an entry in a ring;
//! one system call submits it and waits for its completion.

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

/// The version of the crate `io-uring`.
pub(super) const VERSION: &str = env!("LOCKED_IO_URING");
/// The index of the socket in the ring's table of registered files.
const SOCKET: types::Fixed = types::Fixed(0);

pub(super) struct IoUringSocket;

impl Mechanism for IoUringSocket {
    fn spec(&self) -> Spec {
        Spec::new("process/io-uring")
            .kernel_copies(2)
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

/// Sets up a small io_uring and checks that it supports these operations. Returns the ring, or what
/// to do.
pub(super) fn usable(operations: &[(u8, &str)]) -> Result<IoUring, String> {
    let ring = IoUring::new(2).map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => String::from("this kernel has no io_uring (Linux 5.1 and CONFIG_IO_URING)"),
        Some(libc::EPERM | libc::EACCES) => String::from(
            "io_uring is forbidden here: set kernel.io_uring_disabled to 0, or have the container's seccomp profile allow \
             io_uring_setup",
        ),
        Some(libc::ENOMEM) => String::from("not enough lockable memory for a ring: raise it with `ulimit -l`"),
        _ => format!("io_uring cannot be set up: {error}"),
    })?;
    let mut probe = Probe::new();
    let probed = ring.submitter().register_probe(&mut probe);
    let missing = operations.iter().find(|(code, _)| probed.is_err() || !probe.is_supported(*code));
    match missing {
        Some((_, name)) => Err(format!("this kernel's io_uring has no {name}: use a newer kernel")),
        None => Ok(ring),
    }
}

impl Transport<Raw> for IoUringSocket {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let socket = fd_passing::of_pair(role, rendezvous, Socket::pair)?;
        let len = case.payload.len();
        // If each end has a thread of its own, that thread is not the one that opens the ends.
        let same_thread = case.pattern != Pattern::Duplex;
        let (tx, rx) = (SendEnd(Ring::new(&socket, len, same_thread)?), RecvEnd(Ring::new(&socket, len, same_thread)?));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// A ring for one operation at a time, and the buffer of its message.
struct Ring {
    ring: IoUring,
    buffer: Buffer,
}

impl Ring {
    /// `same_thread` means that only the current thread will use the ring.
    fn new(socket: &OwnedFd, len: usize, same_thread: bool) -> Result<Ring> {
        let mut builder = IoUring::builder();
        if same_thread {
            // One thread uses the ring and waits for each operation, so the kernel may defer
            // completion work until that wait.
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        // Linux before 6.1 does not support these flags.
        let ring = builder.build(2).or_else(|_| IoUring::new(2)).context("setting up io_uring")?;
        // From here on the ring has its own reference to the socket.
        ring.submitter().register_files(&[socket.as_raw_fd()]).context("registering a socket with io_uring")?;
        Ok(Ring { ring, buffer: Buffer::new(len) })
    }

    /// Repeats an operation until it has processed the whole buffer.
    #[inline(always)]
    fn transfer_all(&mut self, entry: impl Fn(*mut u8, u32) -> squeue::Entry, closed: ErrorKind) -> io::Result<()> {
        let mut done = 0;
        while done < self.buffer.len() {
            let rest = &mut self.buffer[done..];
            let entry = entry(rest.as_mut_ptr(), rest.len().try_into().unwrap_or(u32::MAX));
            match self.submit_one(&entry)? {
                0 => return Err(closed.into()),
                more => done += more,
            }
        }
        Ok(())
    }

    /// Submits an operation on the buffer and waits for its result.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn submit_one(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        // SAFETY: the entry refers only to the buffer, which is neither accessed nor freed before
        // the operation ends. Either this function returns after that, or `abandon` leaks the
        // buffer.
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

    /// Leaks the buffer, because the operation may still use it.
    #[cold]
    fn abandon(&mut self, error: io::Error) -> io::Error {
        mem::forget(mem::replace(&mut self.buffer, Buffer::new(0)));
        error
    }
}

/// The sending end.
pub(super) struct SendEnd(Ring);

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.0.buffer);
        let send = |from: *mut u8, len| {
            opcode::Send::new(SOCKET, from, len).flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL).build()
        };
        self.0.transfer_all(send, ErrorKind::WriteZero)
    }
}

/// The receiving end.
pub(super) struct RecvEnd(Ring);

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let recv = |to, len| opcode::Recv::new(SOCKET, to, len).flags(libc::MSG_WAITALL).build();
        self.0.transfer_all(recv, ErrorKind::UnexpectedEof).map(|()| verifier.bytes(&self.0.buffer))
    }
}
