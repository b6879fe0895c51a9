//! Messages behind their length on a stream socket, TCP's or UNIX's, as a tutorial writes it: the length, then the message, each
//! by a call of its own at both ends.

use std::future::{Future, ready};
use std::io::{self, Read, Write};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Joins;
use estafette_measure::{Carries, Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Tx, Verifier};

use super::socket::Over;
use crate::buffer::Buffer;
use crate::byte_stream::SocketEnd;

/// `network/framed-basic` or `network/unix-framed-basic`.
pub(super) struct FramedBasic {
    name: &'static str,
    stands_on: &'static str,
    over: Over,
    joins: Joins,
}

pub(super) const TCP: FramedBasic = FramedBasic {
    name: "network/framed-basic",
    stands_on: "TCP on 127.0.0.1, TCP_NODELAY: a length of 4 bytes, then the message, by write_all and read_exact",
    over: Over::Tcp,
    joins: Joins::Suite,
};

pub(super) const UNIX: FramedBasic = FramedBasic {
    name: "network/unix-framed-basic",
    stands_on: "a UNIX stream socket: a length of 4 bytes, then the message, by write_all and read_exact",
    over: Over::Unix,
    joins: Joins::Standard,
};

impl Mechanism for FramedBasic {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .stands_on(self.stands_on)
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::OneThread])
            .joins(self.joins)
    }
}

impl Carries<Raw> for FramedBasic {
    type Tx = Sending<SocketEnd>;
    type Rx = Receiving<SocketEnd>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let [to, from] = self.over.joined(role, meet)?.map(SocketEnd::new);
        Ok(ends(to, from, case, role))
    }
}

/// Both ends of a party, over a stream that blocks.
pub(super) fn ends<W, R>(to: W, from: R, case: &Case, role: Role) -> Ends<Sending<W>, Receiving<R>> {
    let len = case.payload.len();
    let tx = Sending { stream: to, message: Buffer::new(len) };
    let rx = Receiving { stream: from, message: Vec::new(), most: len };
    Ends::both(role, tx, rx)
}

/// The sending end.
pub(super) struct Sending<W> {
    stream: W,
    message: Buffer,
}

impl<W: Write + Send + 'static> Tx for Sending<W> {
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        next.fill(&mut self.message);
        let length = (self.message.len() as u32).to_be_bytes();
        ready(self.stream.write_all(&length).and_then(|()| self.stream.write_all(&self.message)))
    }
}

/// The receiving end.
pub(super) struct Receiving<R> {
    stream: R,
    message: Vec<u8>,
    /// The longest message that there is.
    most: usize,
}

impl<R: Read> Receiving<R> {
    fn read(&mut self) -> io::Result<()> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > self.most {
            return Err(io::Error::other(format!("a message of {length} bytes")));
        }
        self.message.resize(length, 0);
        self.stream.read_exact(&mut self.message)
    }
}

impl<R: Read + Send + 'static> Rx for Receiving<R> {
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read().map(|()| seen.bytes(&self.message)))
    }
}
