//! A UNIX stream socket for each producer. The consumer waits for all of them with epoll, like a
//! typical server.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::byte_stream::{Reading, SocketEnd, Writing};
use estafette_contest_common::capacity;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ordering, Tier};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Verifier};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// The number of events that one `epoll_wait` returns at most.
const EVENTS: usize = 64;

pub(super) struct UnixStreamEpoll;

impl Mechanism for UnixStreamEpoll {
    fn spec(&self) -> Spec {
        Spec::new("process/unix-stream-epoll")
            .kernel_copies(2)
            .implementation("a socketpair(AF_UNIX, SOCK_STREAM) for each producer, epoll_wait, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply])
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .tier(Tier::Standard)
    }

    /// The sum of all sockets: each producer has its own buffer.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = Socket::pair().ok()?;
        capacity::written(ours, case.payload.len()).map(|each| each * case.streams() as u64)
    }
}

impl Transport<Raw> for UnixStreamEpoll {
    type Tx = Writing<SocketEnd>;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let has_reply = case.pattern.is_bidirectional();
        if let Role::Producer(index) = role {
            let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("socket:{index}"))?;
            let (tx, rx) = SocketEnd::both(socket)?;
            let tx = Writing::new(tx, len);
            let rx = || RecvEnd::One(Reading::new(rx, len));
            return Ok(if has_reply { Ends::both(role, tx, rx()) } else { Ends::producer(index, tx) });
        }
        let (mut polled, mut txs) = (Polled::new()?, Vec::new());
        for index in 0..case.producers {
            let (ours, theirs) = Socket::pair()?;
            rendezvous.publish_descriptors(&format!("socket:{index}"), &[theirs.as_fd()])?;
            if has_reply {
                txs.push(Writing::new(SocketEnd::new(ours.try_clone()?), len));
            }
            polled.add(ours, len)?;
        }
        let rx = RecvEnd::Many(polled);
        Ok(match case.pattern {
            Pattern::PingPong => {
                let tx = txs.pop().context("an end to answer on")?;
                Ends::both(role, tx, rx)
            }
            Pattern::RequestReply => Ends::server(rx, txs),
            _ => Ends::consumer(0, rx),
        })
    }
}

/// The receiving end of a client or of the server.
pub(super) enum RecvEnd {
    /// A client's end, which receives only from the server.
    One(Reading<SocketEnd>),
    /// The server's end.
    Many(Polled),
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self {
            RecvEnd::One(one) => one.read_into(verifier),
            RecvEnd::Many(several) => several.read_into(verifier),
        }
    }
}

/// Sockets that are polled with epoll.
pub(super) struct Polled {
    epoll: OwnedFd,
    sockets: Vec<Incoming>,
    /// The number of sockets that are not closed.
    open: usize,
    /// The sockets that the last wait reported as readable.
    readable: Vec<usize>,
    /// The number of readable sockets that have been read since.
    read_count: usize,
}

/// A socket and the received part of its next message.
struct Incoming {
    socket: Socket,
    message: Buffer,
    filled: usize,
}

impl Polled {
    fn new() -> Result<Polled> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll instance")?;
        Ok(Polled { epoll, sockets: Vec::new(), open: 0, readable: Vec::with_capacity(EVENTS), read_count: 0 })
    }

    fn add(&mut self, socket: Socket, len: usize) -> Result<()> {
        let data = epoll::EventData::new_u64(self.sockets.len() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).context("adding a socket to epoll")?;
        self.open += 1;
        self.sockets.push(Incoming { socket, message: Buffer::new(len), filled: 0 });
        Ok(())
    }

    /// Reads from readable sockets until one message is complete.
    #[inline(always)]
    fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            let Some(&next) = self.readable.get(self.read_count) else {
                self.wait()?;
                continue;
            };
            let socket = &mut self.sockets[next];
            self.read_count += 1;
            match recv(&socket.socket, &mut socket.message[socket.filled..], RecvFlags::DONTWAIT) {
                // A producer that has sent its last message closes its socket; the others continue.
                Ok((0, _)) if socket.filled == 0 && self.open > 1 => {
                    self.open -= 1;
                    epoll::delete(&self.epoll, &socket.socket)?;
                    continue;
                }
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((read_count, _)) => socket.filled += read_count,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            }
            if socket.filled == socket.message.len() {
                socket.filled = 0;
                verifier.bytes(&socket.message);
                return Ok(());
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.readable.clear();
        self.read_count = 0;
        match epoll::wait(&self.epoll, &mut [MaybeUninit::uninit(); EVENTS], None) {
            Ok((events, _)) => self.readable.extend(events.iter().map(|event| event.data.u64() as usize)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
