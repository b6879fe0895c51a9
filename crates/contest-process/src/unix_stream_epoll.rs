//! A UNIX stream socket for each producer, and a consumer that waits for all of them at once: the usual server.

use std::future::{Future, ready};
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

/// How many sockets one wait tells of.
const EVENTS: usize = 64;

pub(super) struct UnixStreamEpoll;

impl Mechanism for UnixStreamEpoll {
    fn spec(&self) -> Spec {
        Spec::new("process/unix-stream-epoll")
            .implementation("a socketpair(AF_UNIX, SOCK_STREAM) for each producer, epoll_wait, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::RequestReply])
            .max_producers(None)
            .ordering(Ordering::PerProducer)
            .tier(Tier::Standard)
    }

    /// Of all sockets: a producer's buffer is its own.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = Socket::pair().ok()?;
        capacity::written(ours, case.payload.len()).map(|each| each * case.senders() as u64)
    }
}

impl Transport<Raw> for UnixStreamEpoll {
    type Tx = Writing<SocketEnd>;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let answers = case.pattern.both_ways();
        if let Role::Producer(index) = role {
            let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors(&format!("socket:{index}"))?;
            let (tx, rx) = SocketEnd::both(socket)?;
            let tx = Writing::new(tx, len);
            let rx = || Receiving::One(Reading::new(rx, len));
            return Ok(if answers { Ends::both(role, tx, rx()) } else { Ends::producer(index, tx) });
        }
        let (mut polled, mut txs) = (Polled::new()?, Vec::new());
        for index in 0..case.producers {
            let (ours, theirs) = Socket::pair()?;
            rendezvous.offer_descriptors(&format!("socket:{index}"), &[theirs.as_fd()])?;
            if answers {
                txs.push(Writing::new(SocketEnd::new(ours.try_clone()?), len));
            }
            polled.add(ours, len)?;
        }
        let rx = Receiving::Several(polled);
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

/// The receiving end.
pub(super) enum Receiving {
    /// Of a client, which hears the server alone.
    One(Reading<SocketEnd>),
    /// Of the server.
    Several(Polled),
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(match self {
            Receiving::One(one) => one.read_into(verifier),
            Receiving::Several(several) => several.read_into(verifier),
        })
    }
}

/// Sockets, of which those that have something to read are known.
pub(super) struct Polled {
    epoll: OwnedFd,
    sockets: Vec<Incoming>,
    /// How many of them have not been closed.
    left: usize,
    /// Those that the last wait told of.
    readable: Vec<usize>,
    /// How many of them have been read from.
    read: usize,
}

/// A socket and as much of its next message as has come.
struct Incoming {
    socket: Socket,
    message: Buffer,
    filled: usize,
}

impl Polled {
    fn new() -> Result<Polled> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll instance")?;
        Ok(Polled { epoll, sockets: Vec::new(), left: 0, readable: Vec::with_capacity(EVENTS), read: 0 })
    }

    fn add(&mut self, socket: Socket, len: usize) -> Result<()> {
        let data = epoll::EventData::new_u64(self.sockets.len() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).context("adding a socket to epoll")?;
        self.left += 1;
        self.sockets.push(Incoming { socket, message: Buffer::new(len), filled: 0 });
        Ok(())
    }

    /// Reads until one message is whole.
    #[inline(always)]
    fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            let Some(&next) = self.readable.get(self.read) else {
                self.wait()?;
                continue;
            };
            let from = &mut self.sockets[next];
            self.read += 1;
            match recv(&from.socket, &mut from.message[from.filled..], RecvFlags::DONTWAIT) {
                // A producer that has sent its last goes, and others go on.
                Ok((0, _)) if from.filled == 0 && self.left > 1 => {
                    self.left -= 1;
                    epoll::delete(&self.epoll, &from.socket)?;
                    continue;
                }
                Ok((0, _)) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok((read, _)) => from.filled += read,
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            }
            if from.filled == from.message.len() {
                from.filled = 0;
                verifier.bytes(&from.message);
                return Ok(());
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        self.readable.clear();
        self.read = 0;
        match epoll::wait(&self.epoll, &mut [MaybeUninit::uninit(); EVENTS], None) {
            Ok((events, _)) => self.readable.extend(events.iter().map(|event| event.data.u64() as usize)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
