//! Messages behind their length on a stream socket, TCP's or UNIX's, as a tutorial writes it: the length, then the message, each
//! by a call of its own at both ends. Several writers share the stream behind a lock. One thread asks `poll` which of several connections
//! have something, and reads a message from each that has.

use std::future::{Future, ready};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::byte_stream::SocketEnd;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::multi_connection::{self, and_several};
use super::socket::Over;

/// `network/framed-basic` or `network/unix-framed-basic`.
pub(super) struct FramedBasic {
    name: &'static str,
    implementation: &'static str,
    over: Over,
    tier: Tier,
}

pub(super) const TCP: FramedBasic = FramedBasic {
    name: "network/framed-basic",
    implementation: "TCP on 127.0.0.1, TCP_NODELAY: a length of 4 bytes, then the message, by write_all and read_exact, poll",
    over: Over::Tcp,
    tier: Tier::Suite,
};

pub(super) const UNIX: FramedBasic = FramedBasic {
    name: "network/unix-framed-basic",
    implementation: "a UNIX stream socket: a length of 4 bytes, then the message, by write_all and read_exact, poll",
    over: Over::Unix,
    tier: Tier::Standard,
};

impl Mechanism for FramedBasic {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .implementation(self.implementation)
            .patterns(&and_several(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::SameThread]))
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .tier(self.tier)
    }
}

impl Transport<Raw> for FramedBasic {
    type Tx = Sending<SocketEnd>;
    type Rx = Incoming;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        if multi_connection::send(case) {
            let sockets = self.over.several(case, role, rendezvous)?.into_iter().map(SocketEnd::new).collect();
            return ends_of_several(sockets, case, role);
        }
        let [to, from] = self.over.joined(role, rendezvous)?.map(SocketEnd::new);
        let len = case.payload.len();
        let rx = Incoming::One(Receiving::new(from, len));
        Ok(Ends::both(role, Sending::new(Stream::Own(to), len), rx))
    }
}

/// Both ends of a party, over a stream that blocks.
pub(super) fn ends<W: Write, R: Read>(to: W, from: R, case: &Case, role: Role) -> Ends<Sending<W>, Receiving<R>> {
    let len = case.payload.len();
    Ends::both(role, Sending::new(Stream::Own(to), len), Receiving::new(from, len))
}

/// The ends of a party where several send, over all its connections.
fn ends_of_several(streams: Vec<SocketEnd>, case: &Case, role: Role) -> Result<Ends<Sending<SocketEnd>, Incoming>> {
    let len = case.payload.len();
    multi_connection::ends(
        case,
        role,
        streams,
        |stream| Ok(Sending::new(Stream::Own(stream), len)),
        |stream| {
            let shared = Arc::new(Mutex::new(stream));
            Ok((0..case.producers).map(|_| Sending::new(Stream::Shared(Arc::clone(&shared)), len)).collect())
        },
        |stream| Ok(Incoming::One(Receiving::new(stream, len))),
        |streams| {
            let connections = streams.into_iter().map(|stream| Receiving::new(stream, len)).collect();
            Ok(Incoming::Several(Polled { connections, ready: Vec::new() }))
        },
    )
}

/// What a sending end writes to.
enum Stream<W> {
    Own(W),
    Shared(Arc<Mutex<W>>),
}

/// The sending end.
pub(super) struct Sending<W> {
    stream: Stream<W>,
    message: Buffer,
}

impl<W: Write> Sending<W> {
    fn new(stream: Stream<W>, len: usize) -> Sending<W> {
        Sending { stream, message: Buffer::new(len) }
    }

    fn send(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Own(stream) => write(stream, &self.message),
            Stream::Shared(stream) => write(&mut *stream.lock().unwrap_or_else(PoisonError::into_inner), &self.message),
        }
    }
}

fn write(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = (message.len() as u32).to_be_bytes();
    stream.write_all(&length)?;
    stream.write_all(message)
}

impl<W: Write + Send + 'static> Tx for Sending<W> {
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(&mut self.message);
        ready(self.send())
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
    fn new(stream: R, len: usize) -> Receiving<R> {
        Receiving { stream, message: Vec::new(), most: len }
    }

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
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read().map(|()| verifier.bytes(&self.message)))
    }
}

/// The receiving end of one connection or of all that there are.
pub(super) enum Incoming {
    One(Receiving<SocketEnd>),
    Several(Polled),
}

impl Rx for Incoming {
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(match self {
            Incoming::One(one) => one.read().map(|()| verifier.bytes(&one.message)),
            Incoming::Several(several) => several.read(verifier),
        })
    }
}

/// Connections that are read by one thread.
pub(super) struct Polled {
    connections: Vec<Receiving<SocketEnd>>,
    /// Those that have something.
    ready: Vec<usize>,
}

impl Polled {
    fn read(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            let Some(at) = self.ready.pop() else {
                self.wait()?;
                continue;
            };
            match self.connections[at].read() {
                // One that has sent its last goes; those that are still to be read lie before it.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof && self.connections.len() > 1 => {
                    self.connections.swap_remove(at);
                }
                read => return read.map(|()| verifier.bytes(&self.connections[at].message)),
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let polled = self.connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
        let mut polled: Vec<_> = polled.collect();
        match poll(&mut polled, None) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let ready = polled.iter().enumerate().filter(|(_, socket)| !socket.revents().is_empty());
        self.ready.extend(ready.map(|(at, _)| at));
        Ok(())
    }
}
