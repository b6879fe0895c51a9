//! A pair of UNIX stream sockets, blocking, with the kernel's own buffers.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;

use anyhow::Result;
use estafette_contest_common::byte_stream::{Reading, SocketEnd, Writing};
use estafette_contest_common::handed;
use estafette_contest_common::room;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Carries, Ends, Mechanism, Party, Raw, Rendezvous, Spec};

/// `process/unix-stream`.
#[derive(Debug)]
pub struct UnixStream;

impl Mechanism for UnixStream {
    fn spec(&self) -> Spec {
        Spec::new("process/unix-stream").stands_on("socketpair(AF_UNIX, SOCK_STREAM), send and recv").patterns(&[
            Pattern::PingPong,
            Pattern::Stream,
            Pattern::Duplex,
            Pattern::PubSub,
        ])
    }

    fn room(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = Socket::pair().ok()?;
        room::written(ours, case.payload.len())
    }
}

impl Carries<Raw> for UnixStream {
    type Tx = Writing<SocketEnd>;
    type Rx = Reading<SocketEnd>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        if case.pattern == Pattern::PubSub {
            let there = || {
                Socket::pair()
                    .map(|(ours, theirs)| (theirs.into(), Reading::new(SocketEnd::new(ours), len)))
                    .map_err(Into::into)
            };
            let each = |theirs: Vec<OwnedFd>| Ok(Writing::to_each(theirs.into_iter().map(SocketEnd::new), len));
            return handed::publish(case, role, meet, there, each);
        }
        let (tx, rx) = SocketEnd::both(handed::of_pair(role, meet, Socket::pair)?)?;
        let (tx, rx) = (Writing::new(tx, len), Reading::new(rx, len));
        Ok(Ends(vec![Party { role, tx: Some(tx), rx: Some(rx) }]))
    }
}
