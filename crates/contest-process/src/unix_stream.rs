//! A pair of UNIX stream sockets, blocking, with the kernel's own buffers.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Socket;

use anyhow::Result;
use estafette_contest_common::byte_stream::{Reading, SocketEnd, Writing};
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Mechanism, PartyEnds, Raw, Rendezvous, Spec, Transport};

/// `process/unix-stream`.
#[derive(Debug)]
pub struct UnixStream;

impl Mechanism for UnixStream {
    fn spec(&self) -> Spec {
        Spec::new("process/unix-stream")
            .kernel_copies(2)
            .implementation("socketpair(AF_UNIX, SOCK_STREAM), send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex, Pattern::PubSub])
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let (ours, _theirs) = Socket::pair().ok()?;
        capacity::written(ours, case.payload.len())
    }
}

impl Transport<Raw> for UnixStream {
    type Tx = Writing<SocketEnd>;
    type Rx = Reading<SocketEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        if case.pattern == Pattern::PubSub {
            let forward = || {
                Socket::pair()
                    .map(|(ours, theirs)| ([theirs.into()], Reading::new(SocketEnd::new(ours), len)))
                    .map_err(Into::into)
            };
            let each = |theirs: Vec<OwnedFd>| Ok(Writing::to_each(theirs.into_iter().map(SocketEnd::new), len));
            return fd_passing::open_pub_sub(case, role, rendezvous, forward, each);
        }
        let (tx, rx) = SocketEnd::both(fd_passing::of_pair(role, rendezvous, Socket::pair)?)?;
        let (tx, rx) = (Writing::new(tx, len), Reading::new(rx, len));
        Ok(Ends(vec![PartyEnds { role, tx: Some(tx), rx: Some(rx) }]))
    }
}
