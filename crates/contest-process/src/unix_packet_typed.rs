//! Messages with a topic and data as sequenced packets over a pair of UNIX sockets, laid out by
//! hand or by postcard. Shows the cost without any library between the program and the kernel.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing;
use estafette_contest_common::typed::Layout;
use estafette_measure::case::{Case, PayloadKind, Role};
use estafette_measure::message::Message;
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

use super::unix_packet::{SEQPACKET, receive, send_whole};

/// Packets of a given layout.
pub(super) struct TypedPacket<L> {
    tier: Tier,
    layout: PhantomData<fn() -> L>,
}

impl<L> TypedPacket<L> {
    pub(super) fn new(tier: Tier) -> TypedPacket<L> {
        TypedPacket { tier, layout: PhantomData }
    }
}

impl<L: Layout> Mechanism for TypedPacket<L> {
    fn spec(&self) -> Spec {
        Spec::new(&format!("process/unix-seqpacket.{}", L::NAME))
            .kernel_copies(2)
            .implementation(&format!("socketpair(AF_UNIX, SOCK_SEQPACKET), {}", L::SAYS))
            .payloads(&[PayloadKind::Message])
            .ownership(L::OWNERSHIP)
            .tier(self.tier)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        SEQPACKET.check_len(L::most(case.payload.len()))
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = SEQPACKET.pair().ok()?;
        capacity::written(ours, L::most(case.payload.len()))
    }
}

impl<L: Layout> Transport<Message> for TypedPacket<L> {
    type Tx = SendEnd<L>;
    type Rx = RecvEnd<L>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let socket = fd_passing::of_pair(role, rendezvous, || SEQPACKET.pair())?;
        let most = L::most(case.payload.len());
        let tx = SendEnd { socket: socket.try_clone()?, buffer: Buffer::new(most), layout: PhantomData };
        // One byte longer than a message, to detect a message that is too long.
        let rx = RecvEnd { socket, buffer: Buffer::new(most + 1), layout: PhantomData };
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The sending end.
pub(super) struct SendEnd<L> {
    socket: OwnedFd,
    buffer: Buffer,
    layout: PhantomData<fn() -> L>,
}

impl<L: Layout> Tx for SendEnd<L> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let written = L::write(source, &mut self.buffer)?;
        send_whole(self.socket.as_fd(), &self.buffer[..written])
    }
}

/// The receiving end.
pub(super) struct RecvEnd<L> {
    socket: OwnedFd,
    buffer: Buffer,
    layout: PhantomData<fn() -> L>,
}

impl<L: Layout> Rx for RecvEnd<L> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match receive(self.socket.as_fd(), &mut self.buffer) {
            Ok(length) => L::read(&self.buffer[..length], verifier),
            Err(error) => Err(error),
        }
    }
}
