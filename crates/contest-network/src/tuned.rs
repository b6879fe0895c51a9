//! The ends of framed messages (see [`super::frames`]) in patterns with several senders: on one
//! connection that they share, or on one connection each, which one thread reads.

use std::io;
use std::os::fd::OwnedFd;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::Wait;
use estafette_measure::{Ends, Rx, Verifier};

use super::frames::{FrameReader, FrameSink, FrameWriter, RecvEnd, SendEnd, Socket};
use super::merging::EpollRecvEnd;
use super::multi_connection;
use super::shared_sender::SharedSender;

/// What a sending end writes to.
pub(super) enum Wire {
    Own(Socket),
    Shared(SharedSender<Socket>),
}

impl FrameSink for Wire {
    #[inline(always)]
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        match self {
            Wire::Own(socket) => socket.send(frames),
            Wire::Shared(shared) => shared.send(frames),
        }
    }
}

/// The receiving end.
pub(super) enum Incoming<R> {
    /// The end of one connection.
    One(RecvEnd<R, Socket>),
    /// The end of all connections.
    Many(Box<EpollRecvEnd<R>>),
}

impl<R: FrameReader> Rx for Incoming<R> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        match self {
            Incoming::One(one) => one.read_into(verifier),
            Incoming::Many(several) => several.read_into(verifier),
        }
    }
}

/// Creates both ends of a party. The sockets are the one to send to and the one to receive from.
pub(super) fn ends<W: FrameWriter, R: FrameReader>(
    writes: W,
    reads: R,
    sockets: [OwnedFd; 2],
    case: &Case,
    role: Role,
) -> Ends<SendEnd<W, Wire>, Incoming<R>> {
    let [to, from] = sockets.map(|socket| Socket::new(socket, case));
    let rx = Incoming::One(RecvEnd::new(reads, from));
    Ends::both(role, SendEnd::new(writes, Wire::Own(to), case), rx)
}

/// Creates the ends of a party with several senders, on the sockets of all its connections.
pub(super) fn multi_sender_ends<W: FrameWriter, R: FrameReader>(
    writes: impl Fn() -> W,
    reads: impl Fn() -> R,
    sockets: Vec<OwnedFd>,
    case: &Case,
    role: Role,
) -> Result<Ends<SendEnd<W, Wire>, Incoming<R>>> {
    let sender = |wire| SendEnd::new(writes(), wire, case);
    multi_connection::ends(
        case,
        role,
        sockets,
        |socket| Ok(sender(Wire::Own(Socket::new(socket, case)))),
        |socket| {
            let shared = SharedSender::new(Socket::new(socket, case));
            Ok((0..case.producers).map(|_| sender(Wire::Shared(shared.clone()))).collect())
        },
        |socket| Ok(Incoming::One(RecvEnd::new(reads(), Socket::new(socket, case)))),
        |sockets| Ok(Incoming::Many(Box::new(EpollRecvEnd::new(reads(), sockets, case.wait == Wait::Adaptive)?))),
    )
}
