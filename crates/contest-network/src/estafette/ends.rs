//! The ends: what is sent, one by one or many together, and what is received.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use estafette_contest_common::buffer::Buffer;
use estafette_measure::{Generator, Rx, Tx, Verifier};
use estafette_net::{Batch, Endpoint, Handle, Outcome};

use super::super::frames::TOGETHER;
use super::super::udp::MAX_DATAGRAM;
use super::side::Held;

/// How many datagrams leave together at most: the system takes no more at once.
const DATAGRAMS: usize = 64;

/// The most that is around a message on a stream. What a batch has no room for it sends of its own accord, and here it is to leave
/// before that.
const AROUND: usize = 14;

/// What became of something that was to be sent, where it was taken: whether it has left.
fn taken(outcome: Outcome) -> io::Result<bool> {
    match outcome {
        Outcome::Sent => Ok(true),
        Outcome::Queued => Ok(false),
        Outcome::Full => Err(ErrorKind::WouldBlock.into()),
        Outcome::Closed => Err(ErrorKind::BrokenPipe.into()),
        Outcome::Refused(kind) => Err(kind.into()),
        other => Err(io::Error::other(format!("{other:?}"))),
    }
}

/// The sending end.
pub(crate) struct Sending {
    side: Held,
    handle: Handle,
    /// Of a stream, once it has begun.
    batch: Option<Batch>,
    message: Buffer,
    /// How many bytes wait for others at most, where messages do.
    together: Option<usize>,
    /// Whether it goes on while something waits in the node, which others drive.
    goes_on: bool,
    /// Whether something did when it sent last.
    waits: bool,
}

impl Sending {
    pub(super) fn new(side: Held, handle: Handle, len: usize) -> Sending {
        Sending { side, handle, batch: None, message: Buffer::new(len), together: None, goes_on: false, waits: false }
    }

    /// Lets messages leave together; datagrams, if they are.
    pub(super) fn together(mut self, datagrams: bool) -> Sending {
        let most = if datagrams { (DATAGRAMS * self.message.len()).min(MAX_DATAGRAM) } else { TOGETHER - AROUND };
        self.together = Some(most);
        self
    }

    /// Does not wait for what is queued before the queue is full.
    pub(super) fn going_on(mut self) -> Sending {
        self.goes_on = true;
        self
    }

    /// Sends to one of several, by a batch.
    pub(super) fn to(mut self, peer: Endpoint) -> Sending {
        self.batch = Some(self.handle.batch(peer));
        self
    }

    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.message);
        let peer = self.side.peer()?;
        loop {
            self.side.sends();
            match taken(self.handle.send(peer, &self.message)) {
                Ok(sent) if sent || self.goes_on => {
                    self.waits = !sent;
                    return Ok(());
                }
                // The peer may wait for the rest of it.
                Ok(_) => return self.side.until_drained(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.side.until_drained()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds a message to those that leave together.
    #[inline(always)]
    fn add(&mut self, source: &mut Generator, most: usize) -> io::Result<()> {
        if self.batch.is_none() {
            self.batch = Some(self.handle.batch(self.side.peer()?));
        }
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let len = self.message.len();
        let pushed = batch.push_with(len, |message| source.fill(message));
        if !pushed.taken() {
            taken(pushed)?;
        }
        // The next one has to fit.
        if batch.len() + len > most { self.leave() } else { Ok(()) }
    }

    /// Sends what was collected.
    #[inline(never)]
    fn leave(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.waits) {
            return self.side.until_drained();
        }
        let Some(batch) = &mut self.batch else { return Ok(()) };
        loop {
            self.side.sends();
            match taken(batch.flush()) {
                Ok(true) => return Ok(()),
                Ok(false) => return self.side.until_drained(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.side.until_drained()?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(match self.together {
            Some(most) => self.add(source, most),
            None => self.send(source),
        })
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.leave())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.side.finished(&self.handle);
    }
}

/// The receiving end.
pub(crate) struct Receiving {
    side: Held,
}

impl Receiving {
    pub(super) fn new(side: Held) -> Receiving {
        Receiving { side }
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.recv_all_blocking(verifier, 1))
    }

    #[inline(always)]
    fn recv_all_blocking(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        let mut left = count;
        self.side.look_at(|message| {
            verifier.bytes(message);
            left -= 1;
            if left == 0 || verifier.ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}
