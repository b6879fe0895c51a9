//! The ends: send messages one by one or in batches, and receive messages.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use estafette_contest_common::buffer::Buffer;
use estafette_measure::{Generator, Rx, Tx, Verifier};
use estafette_net::{Batch, Endpoint, Handle, Outcome, Sender};

use super::super::frames::BATCH_BYTES;
use super::super::udp::MAX_DATAGRAM;
use super::side::SideHandle;

/// The highest number of datagrams in a batch: the system call accepts no more.
const DATAGRAMS: usize = 64;

/// The highest number of framing bytes of a message on a stream. A batch that is too small would be
/// sent by the node before this end flushes it.
const MAX_OVERHEAD: usize = 14;

/// Converts the outcome of a send: whether the message has been sent rather than queued.
fn check_outcome(outcome: Outcome) -> io::Result<bool> {
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
pub(crate) struct SendEnd {
    side: SideHandle,
    handle: Handle,
    /// Sends single messages, after the first one.
    sender: Option<Sender>,
    /// The batch of a stream, after the first message.
    batch: Option<Batch>,
    message: Buffer,
    /// The highest number of bytes in a batch; `None` without batching.
    batched: Option<usize>,
    /// Whether it continues to send while messages wait in the node, which another thread drives.
    sends_ahead: bool,
    /// Whether a message waited in the node after the last send.
    is_queued: bool,
}

impl SendEnd {
    pub(super) fn new(side: SideHandle, handle: Handle, len: usize) -> SendEnd {
        SendEnd {
            side,
            handle,
            sender: None,
            batch: None,
            message: Buffer::new(len),
            batched: None,
            sends_ahead: false,
            is_queued: false,
        }
    }

    /// Enables batching, of datagrams if `datagrams` is set.
    pub(super) fn batched(mut self, datagrams: bool) -> SendEnd {
        let max_bytes =
            if datagrams { (DATAGRAMS * self.message.len()).min(MAX_DATAGRAM) } else { BATCH_BYTES - MAX_OVERHEAD };
        self.batched = Some(max_bytes);
        self
    }

    /// Waits only when the queue is full, not for queued messages.
    pub(super) fn sending_ahead(mut self) -> SendEnd {
        self.sends_ahead = true;
        self
    }

    /// Sends to one of several peers, with a batch.
    pub(super) fn to(mut self, peer: Endpoint) -> SendEnd {
        self.batch = Some(self.handle.batch(peer));
        self
    }

    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.message);
        let sender = match &mut self.sender {
            Some(sender) => sender,
            none => none.insert(self.handle.sender(self.side.peer()?)),
        };
        loop {
            self.side.before_send();
            match check_outcome(sender.send(&self.message)) {
                Ok(sent) if sent || self.sends_ahead => {
                    self.is_queued = !sent;
                    return Ok(());
                }
                // Waits, because the peer may wait for the rest of the message.
                Ok(_) => return self.side.wait_until_drained(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.side.wait_until_drained()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds a message to the batch.
    #[inline(always)]
    fn add(&mut self, source: &mut Generator, max_bytes: usize) -> io::Result<()> {
        if self.batch.is_none() {
            self.batch = Some(self.handle.batch(self.side.peer()?));
        }
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let len = self.message.len();
        let pushed = batch.push_with(len, |message| source.fill(message));
        if !pushed.is_accepted() {
            check_outcome(pushed)?;
        }
        // The next message must fit.
        if batch.len() + len > max_bytes { self.flush_batch() } else { Ok(()) }
    }

    /// Sends the batch.
    #[inline(never)]
    fn flush_batch(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_queued) {
            return self.side.wait_until_drained();
        }
        let Some(batch) = &mut self.batch else { return Ok(()) };
        loop {
            self.side.before_send();
            match check_outcome(batch.flush()) {
                Ok(true) => return Ok(()),
                Ok(false) => return self.side.wait_until_drained(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.side.wait_until_drained()?,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        match self.batched {
            Some(max_bytes) => self.add(source, max_bytes),
            None => self.send(source),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_batch()
    }
}

impl Drop for SendEnd {
    fn drop(&mut self) {
        self.side.finished(&self.handle);
    }
}

/// The receiving end.
pub(crate) struct RecvEnd {
    side: SideHandle,
}

impl RecvEnd {
    pub(super) fn new(side: SideHandle) -> RecvEnd {
        RecvEnd { side }
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_all(verifier, 1)
    }

    #[inline(always)]
    fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        let mut left = count;
        self.side.recv_with(|message| {
            verifier.bytes(message);
            left -= 1;
            if left == 0 || verifier.ended() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }
}
