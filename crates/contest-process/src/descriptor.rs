//! A descriptor for each message: the sender makes a memory file, writes the message into it and passes it through a pair of
//! UNIX sockets, beside one byte; the receiver reads it and closes it. Several subscribers get the same file. What it costs
//! to hand over a file, or a socket, is the time of the shortest message.

use std::future::{Future, ready};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::fd_passing;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, retry_on_intr, write};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// More than this many descriptors under way are no limit.
const MOST: u64 = 1 << 16;
/// What is sent beside a descriptor: something must be.
const BYTE: [u8; 1] = [0];

pub(super) struct Descriptor;

impl Mechanism for Descriptor {
    fn spec(&self) -> Spec {
        Spec::new("process/descriptor")
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
        Some((0..MOST).take_while(|_| pass(&ours, ours.as_fd()).is_ok()).count() as u64)
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("making a pair of sockets")
}

/// Sends a descriptor.
#[inline(always)]
fn pass(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    match retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&BYTE)], &mut beside, SendFlags::NOSIGNAL)) {
        Ok(_) => Ok(()),
        Err(Errno::TOOMANYREFS) => {
            Err(io::Error::other("this user has too many descriptors under way: raise it with `ulimit -n`"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Receives a descriptor.
#[inline(always)]
fn take(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = BYTE;
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut beside, RecvFlags::CMSG_CLOEXEC))?;
    // The other side has gone.
    if received.bytes == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let descriptor = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    // The kernel drops what it has no number for.
    descriptor.ok_or_else(|| io::Error::other("no descriptor is left to receive one with: raise it with `ulimit -n`"))
}

impl Transport<Raw> for Descriptor {
    type Tx = Passing;
    type Rx = Taking;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Passing, Taking>> {
        let len = case.payload.len();
        let each = |sockets| Passing { sockets, buffer: Buffer::new(len) };
        let tx = |socket| each(vec![socket]);
        // One byte more than a message has, so that a longer one does not pass for a right one.
        let rx = |socket| Taking { socket, buffer: Buffer::new(len + 1) };
        let forward = || pair().map(|(ours, theirs)| (theirs, rx(ours)));
        match case.pattern {
            Pattern::PubSub => {
                return fd_passing::open_pub_sub(case, role, rendezvous, forward, |theirs| Ok(each(theirs)));
            }
            Pattern::RequestReply => {
                let reply = || pair().map(|(ours, theirs)| (theirs, tx(ours)));
                return fd_passing::open(
                    case,
                    role,
                    rendezvous,
                    forward,
                    reply,
                    |forward| Ok(tx(forward)),
                    |reply| Ok(rx(reply)),
                );
            }
            _ => {}
        }
        let socket = fd_passing::of_pair(role, rendezvous, pair)?;
        let tx = tx(socket.try_clone()?);
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx(socket)) }]))
    }
}

/// The sending end.
pub(super) struct Passing {
    sockets: Vec<OwnedFd>,
    buffer: Buffer,
}

impl Passing {
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
        self.sockets.iter().try_for_each(|socket| pass(socket, file.as_fd()))
    }
}

impl Tx for Passing {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(&mut self.buffer);
        ready(self.send_buffer())
    }
}

/// The receiving end.
pub(super) struct Taking {
    socket: OwnedFd,
    buffer: Buffer,
}

impl Taking {
    /// Returns the message's length.
    #[inline(always)]
    fn receive(&mut self) -> io::Result<usize> {
        let file = take(&self.socket)?;
        let mut length = 0;
        // A message that is as long as it should be is read at once, and the place left over says that it ends there.
        while length < self.buffer.len() - 1 {
            match retry_on_intr(|| pread(&file, &mut self.buffer[length..], length as u64))? {
                0 => break,
                read => length += read,
            }
        }
        Ok(length)
    }
}

impl Rx for Taking {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive().map(|length| verifier.bytes(&self.buffer[..length])))
    }
}
