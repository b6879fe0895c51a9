//! A pair of UNIX sockets that preserve message boundaries, blocking, with the kernel's default
//! buffers: datagrams, which a UNIX socket neither loses nor reorders, and sequenced packets.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::packets::{self, PacketRx, PacketSocket, PacketTx};
use estafette_contest_common::{capacity, fd_passing};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};
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
            .kernel_copies(2)
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
    type Tx = PacketTx<Socket>;
    type Rx = PacketRx<Socket>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        if matches!(case.pattern, Pattern::PubSub | Pattern::RequestReply) {
            return packets::open(case, role, rendezvous, |_| self.pair());
        }
        // One pair for both directions.
        let len = case.payload.len();
        let socket = fd_passing::of_pair(role, rendezvous, || self.pair())?;
        let tx = PacketTx::new(Socket(socket.try_clone()?), len);
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(PacketRx::new(Socket(socket), len)) }]))
    }
}

/// An open socket.
pub(super) struct Socket(OwnedFd);

impl From<OwnedFd> for Socket {
    fn from(descriptor: OwnedFd) -> Socket {
        Socket(descriptor)
    }
}

impl PacketSocket for Socket {
    #[inline(always)]
    fn send_packet(&mut self, packet: &[u8]) -> io::Result<()> {
        send_whole(self.0.as_fd(), packet)
    }

    #[inline(always)]
    fn recv_packet(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(self.0.as_fd(), buffer)
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
