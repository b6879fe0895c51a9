//! A connection whose writers do not lock: each writes a message in two calls, so that messages are
//! interleaved.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

/// The mechanism `network/mix`.
pub(crate) struct Mixing;

impl Mechanism for Mixing {
    fn spec(&self) -> Spec {
        Spec::new("network/mix").patterns(&[Pattern::Writers]).max_producers(None)
    }
}

impl Transport<Raw> for Mixing {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        if let Role::Consumer(index) = role {
            let (ours, theirs) = UnixStream::pair()?;
            rendezvous.publish_descriptors("socket", &[theirs.as_fd()])?;
            return Ok(Ends::consumer(index, Receiving { socket: ours, message: vec![0; case.payload.len()] }));
        }
        let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors("socket")?;
        let socket = UnixStream::from(socket);
        let halfway = Arc::new(Barrier::new(case.producers));
        let sender = |_| {
            let message = vec![0; case.payload.len()];
            Ok(Sending { socket: socket.try_clone()?, message, halfway: Some(Arc::clone(&halfway)) })
        };
        Ok(Ends::many((0..case.producers).map(sender).collect::<Result<Vec<_>>>()?, []))
    }
}

pub(crate) struct Sending {
    socket: UnixStream,
    message: Vec<u8>,
    /// Where all writers wait in the middle of their first message.
    halfway: Option<Arc<Barrier>>,
}

impl Tx for Sending {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.message);
        let (first, second) = self.message.split_at(self.message.len() / 2);
        let written = self.socket.write_all(first);
        if let Some(halfway) = self.halfway.take() {
            halfway.wait();
        }
        written.and_then(|()| self.socket.write_all(second))
    }
}

pub(crate) struct Receiving {
    socket: UnixStream,
    message: Vec<u8>,
}

impl Rx for Receiving {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.socket.read_exact(&mut self.message).map(|()| verifier.bytes(&self.message))
    }
}
