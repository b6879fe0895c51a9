//! A pair of UNIX sockets that preserve message boundaries, blocking, with the kernel's default
//! buffers: datagrams, which a UNIX socket neither loses nor reorders, and sequenced packets.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::io::Errno;
use rustix::net::sockopt::socket_send_buffer_size;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// The part of a socket's send buffer that the kernel uses itself, in bytes.
const OVERHEAD: usize = 32;

/// `process/unix-dgram` or `process/unix-seqpacket`.
pub(super) struct UnixPacket {
    name: &'static str,
    kind: SocketType,
    tier: Tier,
}

pub(super) const DATAGRAM: UnixPacket = UnixPacket { name: "dgram", kind: SocketType::DGRAM, tier: Tier::Standard };
pub(super) const SEQPACKET: UnixPacket =
    UnixPacket { name: "seqpacket", kind: SocketType::SEQPACKET, tier: Tier::Suite };

impl Mechanism for UnixPacket {
    fn spec(&self) -> Spec {
        let kind = self.name.to_uppercase();
        Spec::new(&format!("process/unix-{}", self.name))
            .implementation(&format!("socketpair(AF_UNIX, SOCK_{kind}), send and recv"))
            .patterns(&[
                Pattern::PingPong,
                Pattern::Stream,
                Pattern::Duplex,
                Pattern::FanIn,
                Pattern::RequestReply,
                Pattern::PubSub,
            ])
            .max_producers(None)
            .tier(self.tier)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        self.check_len(case.payload.len())
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = self.pair().ok()?;
        capacity::written(ours, case.payload.len())
    }
}

impl UnixPacket {
    pub(super) fn pair(&self) -> Result<(OwnedFd, OwnedFd)> {
        socketpair(AddressFamily::UNIX, self.kind, SocketFlags::CLOEXEC, None).context("making a pair of sockets")
    }

    /// Checks that the kernel accepts packets of `len` bytes.
    pub(super) fn check_len(&self, len: usize) -> Result<(), String> {
        let buffer = self.pair().and_then(|(ours, _)| Ok(socket_send_buffer_size(ours)?));
        match buffer.map(|buffer| buffer.saturating_sub(OVERHEAD)) {
            Ok(most) if len > most => Err(format!(
                "a message of {len} bytes is longer than this system's maximum of {most}: raise net.core.wmem_default"
            )),
            _ => Ok(()),
        }
    }
}

impl Transport<Raw> for UnixPacket {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let len = case.payload.len();
        let each = |sockets| SendEnd { sockets, buffer: Buffer::new(len) };
        let tx = |socket| each(vec![socket]);
        // One byte longer than a message, to detect a message that is too long.
        let rx = |socket| RecvEnd { socket, buffer: Buffer::new(len + 1) };
        let forward = || self.pair().map(|(ours, theirs)| (theirs, rx(ours)));
        match case.pattern {
            Pattern::PubSub => {
                return fd_passing::open_pub_sub(case, role, rendezvous, forward, |theirs| Ok(each(theirs)));
            }
            Pattern::RequestReply => {
                let reply = || self.pair().map(|(ours, theirs)| (theirs, tx(ours)));
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
        let socket = fd_passing::of_pair(role, rendezvous, || self.pair())?;
        let tx = tx(socket.try_clone()?);
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx(socket)) }]))
    }
}

/// The sending end.
pub(super) struct SendEnd {
    sockets: Vec<OwnedFd>,
    buffer: Buffer,
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.sockets.iter().try_for_each(|socket| send_whole(socket.as_fd(), &self.buffer))
    }
}

/// Sends a packet. The kernel accepts it whole or not at all.
#[inline(always)]
pub(super) fn send_whole(socket: BorrowedFd<'_>, packet: &[u8]) -> io::Result<()> {
    match rustix::io::retry_on_intr(|| send(socket, packet, SendFlags::NOSIGNAL)) {
        Ok(written) if written == packet.len() => Ok(()),
        Ok(_) => Err(ErrorKind::WriteZero.into()),
        Err(error) => Err(error.into()),
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    socket: OwnedFd,
    buffer: Buffer,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        receive(self.socket.as_fd(), &mut self.buffer).map(|length| verifier.bytes(&self.buffer[..length]))
    }
}

/// Receives a packet. Returns its length.
#[inline(always)]
pub(super) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let received = loop {
        match recv(socket, &mut *buffer, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            received => break received,
        }
    };
    match received {
        // The other side has closed its socket. No message is empty.
        Ok((0, _)) => Err(ErrorKind::UnexpectedEof.into()),
        Ok((length, _)) => Ok(length),
        Err(error) => Err(error.into()),
    }
}
