//! Sends a file descriptor for each message.
//!
//! The sender creates a memory file, writes the message into it and passes its descriptor with
//! `SCM_RIGHTS` through a pair of UNIX sockets, together with one byte. The receiver reads the file
//! and closes it. Several subscribers get the same file. The latency of the shortest message is the
//! cost of passing a descriptor.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::fd_passing::{self, DescriptorChannel};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, retry_on_intr, write};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The highest number of descriptors in flight that is probed. More counts as unbounded.
const MAX_PROBED: u64 = 1 << 16;
/// The data sent with a descriptor. It must not be empty.
const BYTE: [u8; 1] = [0];

pub(super) struct Descriptor;

impl Mechanism for Descriptor {
    fn spec(&self) -> Spec {
        Spec::new("process/descriptor")
            .kernel_copies(2)
            .implementation("a memfd for each message: write, SCM_RIGHTS, pread, close")
            .patterns(&[
                Pattern::PingPong,
                Pattern::Stream,
                Pattern::Duplex,
                Pattern::FanIn,
                Pattern::RequestReply,
                Pattern::PubSub,
            ])
            .max_producers(None)
            .tier(Tier::Standard)
    }

    fn effective_capacity(&self, _: &Case) -> Option<u64> {
        let (ours, _theirs) = pair().ok()?;
        rustix::io::ioctl_fionbio(&ours, true).ok()?;
        Some((0..MAX_PROBED).take_while(|_| send_fd(&ours, ours.as_fd()).is_ok()).count() as u64)
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("making a pair of sockets")
}

/// Sends a descriptor.
#[inline(always)]
fn send_fd(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    match retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&BYTE)], &mut control, SendFlags::NOSIGNAL)) {
        Ok(_) => Ok(()),
        Err(Errno::TOOMANYREFS) => {
            Err(io::Error::other("this user has too many descriptors in flight: raise it with `ulimit -n`"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Receives a descriptor.
#[inline(always)]
fn recv_fd(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = BYTE;
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    // The other side has closed its socket.
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // The kernel discards a descriptor that it cannot allocate a number for.
    descriptor.ok_or_else(|| io::Error::other("no free file descriptor to receive into: raise it with `ulimit -n`"))
}

impl Transport<Raw> for Descriptor {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let len = case.payload.len();
        let each = |sockets| SendEnd { sockets, buffer: Buffer::new(len) };
        let tx = |socket| each(vec![socket]);
        // One byte longer than a message, to detect a message that is too long.
        let rx = |socket| RecvEnd { socket, buffer: Buffer::new(len + 1) };
        let forward = || pair().map(|(ours, theirs)| ([theirs], rx(ours)));
        match case.pattern {
            Pattern::PubSub => {
                return fd_passing::open_pub_sub(case, role, rendezvous, forward, |theirs| Ok(each(theirs)));
            }
            Pattern::RequestReply => {
                let reply = || pair().map(|(ours, theirs)| ([theirs], tx(ours)));
                let tx = |[forward]: [OwnedFd; 1]| Ok(tx(forward));
                let rx = |[reply]: [OwnedFd; 1]| Ok(rx(reply));
                return DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous);
            }
            _ => {}
        }
        let socket = fd_passing::of_pair(role, rendezvous, pair)?;
        let tx = tx(socket.try_clone()?);
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx(socket)) }]))
    }
}

/// The sending end.
pub(super) struct SendEnd {
    sockets: Vec<OwnedFd>,
    buffer: Buffer,
}

impl SendEnd {
    #[inline(always)]
    fn send_buffer(&self) -> io::Result<()> {
        let file = memfd_create("estafette-message", MemfdFlags::CLOEXEC)?;
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match retry_on_intr(|| write(&file, rest))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
        }
        self.sockets.iter().try_for_each(|socket| send_fd(socket, file.as_fd()))
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.send_buffer()
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    socket: OwnedFd,
    buffer: Buffer,
}

impl RecvEnd {
    /// Receives one message. Returns its length.
    #[inline(always)]
    fn recv_message(&mut self) -> io::Result<usize> {
        let file = recv_fd(&self.socket)?;
        let mut length = 0;
        // A message of the expected length is read in one call. The extra byte of the buffer shows
        // that it is not longer.
        while length < self.buffer.len() - 1 {
            match retry_on_intr(|| pread(&file, &mut self.buffer[length..], length as u64))? {
                0 => break,
                read => length += read,
            }
        }
        Ok(length)
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_message().map(|length| verifier.bytes(&self.buffer[..length]))
    }
}
