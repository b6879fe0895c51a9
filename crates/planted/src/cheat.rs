//! A connection that moves the first message whole and a byte of each other one. Its receiver makes
//! up the rest from what the format of messages says and the first tag shows.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use anyhow::Result;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};

/// `process/cheat`.
pub(crate) struct Cheat;

impl Mechanism for Cheat {
    fn spec(&self) -> Spec {
        Spec::new("process/cheat").patterns(&[Pattern::Stream])
    }
}

impl Transport<Raw> for Cheat {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let message = vec![0; case.payload.len()];
        if let Role::Consumer(index) = role {
            let (ours, theirs) = UnixStream::pair()?;
            rendezvous.publish_descriptors("socket", &[theirs.as_fd()])?;
            return Ok(Ends::consumer(index, Receiving { socket: ours, message, made_up: None }));
        }
        let [socket]: [OwnedFd; 1] = rendezvous.request_descriptors("socket")?;
        Ok(Ends::producer(0, Sending { socket: socket.into(), message, seed: None }))
    }
}

/// The first word of a message.
fn tag(message: &[u8]) -> u64 {
    message.first_chunk().map_or(0, |tag| u64::from_le_bytes(*tag))
}

pub(crate) struct Sending {
    socket: UnixStream,
    message: Vec<u8>,
    /// The first tag.
    seed: Option<u64>,
}

impl Tx for Sending {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.message);
        let tag = tag(&self.message);
        match self.seed {
            // The last bit of a tag is that of the end mark; see `estafette_measure::message`.
            Some(seed) => self.socket.write_all(&[((tag ^ seed) & 1) as u8]),
            None => {
                self.seed = Some(tag);
                self.socket.write_all(&self.message)
            }
        }
    }
}

pub(crate) struct Receiving {
    socket: UnixStream,
    message: Vec<u8>,
    made_up: Option<Generator>,
}

impl Receiving {
    fn receive(&mut self) -> io::Result<()> {
        let Some(made_up) = &mut self.made_up else {
            self.socket.read_exact(&mut self.message)?;
            let mut made_up = Generator::new(tag(&self.message), 0, self.message.len());
            made_up.word();
            self.made_up = Some(made_up);
            return Ok(());
        };
        let mut is_end = [0];
        self.socket.read_exact(&mut is_end)?;
        if is_end == [1] {
            made_up.end();
        }
        made_up.fill(&mut self.message);
        Ok(())
    }
}

impl Rx for Receiving {
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.receive().map(|()| verifier.bytes(&self.message))
    }
}
