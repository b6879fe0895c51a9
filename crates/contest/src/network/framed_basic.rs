//! Messages behind their length on a TCP connection, as a tutorial writes it: the length, then the message, each by a call of
//! its own at both ends.

use std::future::{Future, ready};
use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Joins;
use estafette_measure::{Carries, Ends, Generator, Mechanism, Party, Raw, Rendezvous, Rx, Spec, Tx, Verifier};

use super::tcp::connected;
use crate::buffer::Buffer;

/// `network/framed-basic`.
pub(super) struct FramedBasic;

impl Mechanism for FramedBasic {
    fn spec(&self) -> Spec {
        Spec::new("network/framed-basic")
            .stands_on(
                "TCP on 127.0.0.1, TCP_NODELAY: a length of 4 bytes, then the message, by write_all and read_exact",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .joins(Joins::Standard)
    }
}

impl Carries<Raw> for FramedBasic {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let stream = connected(role, meet)?;
        let tx = Sending { stream: stream.try_clone()?, message: Buffer::new(case.payload.len()) };
        let rx = Receiving { stream, message: Vec::new(), most: case.payload.len() };
        Ok(Ends(vec![Party { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// The sending end.
pub(super) struct Sending {
    stream: TcpStream,
    message: Buffer,
}

impl Tx for Sending {
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        next.fill(&mut self.message);
        let length = (self.message.len() as u32).to_be_bytes();
        ready(self.stream.write_all(&length).and_then(|()| self.stream.write_all(&self.message)))
    }
}

/// The receiving end.
pub(super) struct Receiving {
    stream: TcpStream,
    message: Vec<u8>,
    /// The longest message that there is.
    most: usize,
}

impl Receiving {
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

impl Rx for Receiving {
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read().map(|()| seen.bytes(&self.message)))
    }
}
