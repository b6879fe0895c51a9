//! The ends of messages in frames, see [`super::frames`], where several may send: on one connection that they share, or on one
//! each, all of which one thread reads.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;

use anyhow::Result;
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::Wait;
use estafette_measure::{Ends, Rx, Verifier};

use super::frames::{Outlet, Reads, Receiving, Sending, Socket, Writes};
use super::merging::Merging;
use super::multi_connection;
use super::shared_sender::SharedSender;

/// What a sending end writes to.
pub(super) enum Wire {
    Own(Socket),
    Shared(SharedSender<Socket>),
}

impl Outlet for Wire {
    #[inline(always)]
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        match self {
            Wire::Own(socket) => socket.send(frames),
            Wire::Shared(joint) => joint.send(frames),
        }
    }
}

/// The receiving end.
pub(super) enum Incoming<R> {
    /// Of one connection.
    One(Receiving<R, Socket>),
    /// Of all that there are.
    Several(Box<Merging<R>>),
}

impl<R: Reads> Rx for Incoming<R> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        std::future::ready(match self {
            Incoming::One(one) => one.read_into(verifier),
            Incoming::Several(several) => several.read_into(verifier),
        })
    }
}

/// Both ends of a party on the sockets that it sends by and receives from.
pub(super) fn ends<W: Writes, R: Reads>(
    writes: W,
    reads: R,
    sockets: [OwnedFd; 2],
    case: &Case,
    role: Role,
) -> Ends<Sending<W, Wire>, Incoming<R>> {
    let [to, from] = sockets.map(|socket| Socket::new(socket, case));
    let rx = Incoming::One(Receiving::new(reads, from));
    Ends::both(role, Sending::new(writes, Wire::Own(to), case), rx)
}

/// The ends of a party where several send, on the sockets of all its connections.
pub(super) fn ends_of_several<W: Writes, R: Reads>(
    writes: impl Fn() -> W,
    reads: impl Fn() -> R,
    sockets: Vec<OwnedFd>,
    case: &Case,
    role: Role,
) -> Result<Ends<Sending<W, Wire>, Incoming<R>>> {
    let sender = |wire| Sending::new(writes(), wire, case);
    multi_connection::ends(
        case,
        role,
        sockets,
        |socket| Ok(sender(Wire::Own(Socket::new(socket, case)))),
        |socket| {
            let joint = SharedSender::new(Socket::new(socket, case));
            Ok((0..case.producers).map(|_| sender(Wire::Shared(joint.clone()))).collect())
        },
        |socket| Ok(Incoming::One(Receiving::new(reads(), Socket::new(socket, case)))),
        |sockets| Ok(Incoming::Several(Box::new(Merging::new(reads(), sockets, case.wait == Wait::Adaptive)?))),
    )
}
