//! A connection whose receiver shows the verifier only a part of each message.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

/// `process/partial`.
pub(crate) struct Partial;

impl Mechanism for Partial {
    fn spec(&self) -> Spec {
        Spec::new("process/partial").patterns(&[Pattern::PingPong, Pattern::Stream])
    }
}

impl Transport<Raw> for Partial {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let socket = if role == Role::Consumer(0) {
            let (ours, theirs) = UnixStream::pair()?;
            rendezvous.publish_descriptors("socket", &[theirs.as_fd()])?;
            ours
        } else {
            let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors("socket")?;
            UnixStream::from(socket)
        };
        let message = || vec![0; case.payload.len()];
        let tx = Sending { socket: socket.try_clone()?, message: message() };
        let rx = Receiving { socket, message: message() };
        Ok(match (case.pattern, role) {
            (Pattern::PingPong, _) => Ends::both(role, tx, rx),
            (_, Role::Consumer(index)) => Ends::consumer(index, rx),
            _ => Ends::producer(0, tx),
        })
    }
}

pub(crate) struct Sending {
    socket: UnixStream,
    message: Vec<u8>,
}

impl Tx for Sending {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.message);
        self.socket.write_all(&self.message)
    }
}

pub(crate) struct Receiving {
    socket: UnixStream,
    message: Vec<u8>,
}

impl Rx for Receiving {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let half = self.message.len() / 2;
        self.socket.read_exact(&mut self.message).map(|()| verifier.bytes(&self.message[..half]))
    }
}
