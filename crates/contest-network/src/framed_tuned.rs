//! Length-prefixed messages on a TCP or UNIX stream socket, optimised for speed; see
//! [`super::frames`].

use std::io;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Spec, Transport, Verifier};

use super::frames::{FrameReader, FrameWriter, SendEnd};
use super::multi_connection::{self, with_multi_sender};
use super::socket::SocketKind;
use super::tuned::{Incoming, Wire, ends, multi_sender_ends};

/// The size of the length before a message, in bytes.
const LENGTH: usize = 4;

/// `network/framed-tuned` or `network/unix-framed-tuned`.
pub(super) struct FramedTuned {
    name: &'static str,
    implementation: &'static str,
    kind: SocketKind,
    tier: Tier,
}

pub(super) const TCP: FramedTuned = FramedTuned {
    name: "network/framed-tuned",
    implementation: "TCP, TCP_NODELAY: a length of 4 bytes and the message, many by one send and one recv; epoll",
    kind: SocketKind::Tcp,
    tier: Tier::StandardAllCells,
};

pub(super) const UNIX: FramedTuned = FramedTuned {
    name: "network/unix-framed-tuned",
    implementation: "a UNIX stream socket: a length of 4 bytes and the message, many by one send and one recv; epoll",
    kind: SocketKind::Unix,
    tier: Tier::Standard,
};

impl Mechanism for FramedTuned {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .implementation(self.implementation)
            .patterns(&with_multi_sender(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread]))
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .waits(&[Wait::Block, Wait::Adaptive])
            .between_hosts(self.kind == SocketKind::Tcp)
            .tier(self.tier)
    }
}

impl Transport<Raw> for FramedTuned {
    type Tx = SendEnd<Lengths, Wire>;
    type Rx = Incoming<Lengths>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let lengths = Lengths { len: case.payload.len() };
        if multi_connection::has_multiple_senders(case) {
            return multi_sender_ends(
                || lengths,
                || lengths,
                self.kind.connect_all(case, role, rendezvous)?,
                case,
                role,
            );
        }
        let sockets = self.kind.connect_pair(role, rendezvous)?;
        Ok(ends(lengths, lengths, sockets, case, role))
    }
}

/// A length of 4 bytes in big-endian order, then the message.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) len: usize,
}

impl FrameWriter for Lengths {
    #[inline(always)]
    fn frame(&self) -> usize {
        LENGTH + self.len
    }

    #[inline(always)]
    fn write(&mut self, place: &mut [u8], source: &mut Generator) -> io::Result<()> {
        let (length, message) = place.split_at_mut(LENGTH);
        length.copy_from_slice(&(self.len as u32).to_be_bytes());
        source.fill(message);
        Ok(())
    }
}

impl FrameReader for Lengths {
    #[inline(always)]
    fn frame(&self) -> usize {
        LENGTH + self.len
    }

    #[inline(always)]
    fn read(&mut self, buffered: &mut [u8], verifier: &mut Verifier) -> io::Result<Option<usize>> {
        let Some((length, rest)) = buffered.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.len {
            return Err(io::Error::other(format!("a message of {length} bytes")));
        }
        Ok(rest.get(..length).map(|message| {
            verifier.bytes(message);
            LENGTH + length
        }))
    }
}
