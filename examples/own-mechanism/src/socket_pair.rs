//! A pair of connected sockets between two processes. The receiver makes it and gives one of its
//! descriptors away.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

pub struct SocketPair;

impl Mechanism for SocketPair {
    fn spec(&self) -> Spec {
        // It carries bytes, blocks, and has one producer, unless it says otherwise.
        Spec::new("process/socket-pair")
            .implementation("socketpair(AF_UNIX, SOCK_STREAM), write and read")
            .patterns(&[Pattern::PingPong, Pattern::Stream])
    }
}

impl Transport<Raw> for SocketPair {
    type Tx = Sending;
    type Rx = Receiving;

    /// Each process opens its own end. What the other one needs goes through the rendezvous, under
    /// a name.
    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let socket = if role == Role::Consumer(0) {
            let (ours, theirs) = UnixStream::pair()?;
            rendezvous.publish_descriptors("socket", &[theirs.as_fd()])?;
            ours
        } else {
            // Waits until it is there. An address, or other text, goes by `publish` and `request` instead.
            let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors("socket")?;
            UnixStream::from(socket)
        };
        let message = || vec![0; case.payload.len()];
        let (tx, rx) = (Sending(socket.try_clone()?, message()), Receiving(socket, message()));
        Ok(match (case.pattern, role) {
            // Both sides of a ping-pong send and receive.
            (Pattern::PingPong, _) => Ends::both(role, tx, rx),
            (_, Role::Consumer(index)) => Ends::consumer(index, rx),
            (_, _) => Ends::producer(0, tx),
        })
    }
}

pub struct Sending(UnixStream, Vec<u8>);

impl Tx for Sending {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.1);
        self.0.write_all(&self.1)
    }
}

pub struct Receiving(UnixStream, Vec<u8>);

impl Rx for Receiving {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.0.read_exact(&mut self.1)?;
        verifier.bytes(&self.1);
        Ok(())
    }
}
