//! Messages behind their length on a stream socket, TCP's or UNIX's, as fast as that can be written: see [`super::frames`].

use std::io;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Joins, Ordering, Wait};
use estafette_measure::{Carries, Ends, Generator, Mechanism, Raw, Rendezvous, Spec, Verifier};

use super::frames::{Reads, Sending, Writes};
use super::several::{self, and_several};
use super::socket::Over;
use super::tuned::{Incoming, Wire, ends, ends_of_several};

/// The length before a message.
const LENGTH: usize = 4;

/// `network/framed-tuned` or `network/unix-framed-tuned`.
pub(super) struct FramedTuned {
    name: &'static str,
    stands_on: &'static str,
    over: Over,
    joins: Joins,
}

pub(super) const TCP: FramedTuned = FramedTuned {
    name: "network/framed-tuned",
    stands_on: "TCP on 127.0.0.1, TCP_NODELAY: a length of 4 bytes and the message, many by one send and one recv; epoll",
    over: Over::Tcp,
    joins: Joins::Throughout,
};

pub(super) const UNIX: FramedTuned = FramedTuned {
    name: "network/unix-framed-tuned",
    stands_on: "a UNIX stream socket: a length of 4 bytes and the message, many by one send and one recv; epoll",
    over: Over::Unix,
    joins: Joins::Standard,
};

impl Mechanism for FramedTuned {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .stands_on(self.stands_on)
            .patterns(&and_several(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::OneThread]))
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .waits(&[Wait::Block, Wait::Adaptive])
            .joins(self.joins)
    }
}

impl Carries<Raw> for FramedTuned {
    type Tx = Sending<Lengths, Wire>;
    type Rx = Incoming<Lengths>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let lengths = Lengths { len: case.payload.len() };
        if several::send(case) {
            return ends_of_several(|| lengths, || lengths, self.over.several(case, role, meet)?, case, role);
        }
        let sockets = self.over.joined(role, meet)?;
        Ok(ends(lengths, lengths, sockets, case, role))
    }
}

/// A length of 4 bytes, the most significant first, then the message.
#[derive(Clone, Copy)]
pub(super) struct Lengths {
    pub(super) len: usize,
}

impl Writes for Lengths {
    #[inline(always)]
    fn frame(&self) -> usize {
        LENGTH + self.len
    }

    #[inline(always)]
    fn write(&mut self, place: &mut [u8], next: &mut Generator) -> io::Result<()> {
        let (length, message) = place.split_at_mut(LENGTH);
        length.copy_from_slice(&(self.len as u32).to_be_bytes());
        next.fill(message);
        Ok(())
    }
}

impl Reads for Lengths {
    #[inline(always)]
    fn frame(&self) -> usize {
        LENGTH + self.len
    }

    #[inline(always)]
    fn read(&mut self, there: &mut [u8], seen: &mut Verifier) -> io::Result<Option<usize>> {
        let Some((length, rest)) = there.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > self.len {
            return Err(io::Error::other(format!("a message of {length} bytes")));
        }
        Ok(rest.get(..length).map(|message| {
            seen.bytes(message);
            LENGTH + length
        }))
    }
}
