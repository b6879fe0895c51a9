//! Batches: several messages in one system call. For small messages the system call is most of the
//! cost.

use std::fmt;

use crate::event::Outcome;
use crate::frames::Frames;
#[cfg(doc)]
use crate::handle::Handle;
use crate::route::Route;
use crate::sender::Sender;

/// The length in bytes from which a message is not copied into a batch.
const UNCOPIED: usize = 16 << 10;

/// Collects messages for one endpoint and sends them together.
///
/// A batch is sent when it has collected about 64 KiB or 64 datagrams, on [`Batch::flush`], and
/// when it is dropped. [`Handle::batch`] creates one. Its messages get their place among those of
/// other senders when the batch is sent. A message of 16 KiB or more is not collected:
/// [`Batch::push`] sends it at once, behind those that were.
///
/// If the queue of the connection is full, the messages stay in the batch. What remains when the
/// batch is dropped is lost. So call [`Batch::flush`] and check its result.
///
/// ```
/// # use estafette_net::{Event, Node, Outcome};
/// # let mut node = Node::<()>::new()?;
/// # let handle = node.handle();
/// # let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
/// let endpoint = handle.connect(&handle.local_address(listener).unwrap())?;
/// let mut batch = handle.batch(endpoint);
/// for i in 0..1000_u32 {
///     assert!(batch.push(&i.to_be_bytes()).is_accepted());
/// }
/// assert!(batch.flush().is_accepted());
/// let mut seen = 0;
/// while seen < 1000 {
///     node.poll(None, |event| {
///         if let Event::Message(_, message) = event {
///             assert_eq!(*message, u32::to_be_bytes(seen));
///             seen += 1;
///         }
///     })?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Batch<S = ()> {
    sender: Sender<S>,
    frames: Frames,
    /// Whether a part of a message that was not collected may still be queued.
    may_be_queued: bool,
}

impl<S> Batch<S> {
    pub(crate) fn new(sender: Sender<S>) -> Batch<S> {
        let frames = match sender.route() {
            Some(Route::Stream(connection)) => connection.frames(),
            Some(Route::Datagrams(socket)) => Frames::datagrams(socket.max_len()),
            None => Frames::closed(),
        };
        Batch { sender, frames, may_be_queued: false }
    }

    /// Adds a message. [`Outcome::Queued`]: it was accepted. [`Outcome::Full`]: the batch is full
    /// and could not be sent.
    ///
    /// A message of 16 KiB or more is sent at once from the caller's memory, because copying it
    /// would take longer than a system call. The outcome is then that of [`Handle::send`].
    ///
    /// Any other message is copied, which allocates while the batch grows. If the batch is full,
    /// this is a [`Batch::flush`] first. The message is lost if the batch is dropped before it
    /// could be sent.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Outcome {
        if message.len() >= UNCOPIED {
            return self.send_uncopied(message);
        }
        self.push_with(message.len(), |place| place.copy_from_slice(message))
    }

    /// Sends what was collected, and then a message.
    #[inline(never)]
    fn send_uncopied(&mut self, message: &[u8]) -> Outcome {
        // A failure of earlier datagrams is reported by `flush` only.
        if let outcome @ (Outcome::Full | Outcome::Closed) = self.flush() {
            return outcome;
        }
        let outcome = self.sender.send(message);
        if self.sender.route().is_none() {
            self.frames.end();
        }
        // `Full` means that something is queued before it.
        self.may_be_queued = matches!(outcome, Outcome::Queued | Outcome::Full);
        outcome
    }

    /// As [`Batch::push`], but `write` writes the message directly into the batch, of whatever
    /// length. `write` is called only if there is space. It has to fill the whole slice, which
    /// contains bytes of earlier messages.
    #[inline(always)]
    pub fn push_with(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome {
        match self.frames.push(len, write) {
            Ok(()) => Outcome::Queued,
            Err(write) => self.push_long(len, write),
        }
    }

    /// The slow path of [`Batch::push_with`]: makes space, or rejects the message.
    #[inline(never)]
    fn push_long(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome {
        if self.sender.route().is_none() {
            return self.sender.outcome_without_route();
        }
        if len > self.frames.max_message() {
            return Outcome::TooLarge;
        }
        if self.frames.is_full_for(len) {
            // A failure of earlier datagrams is reported by `flush` only.
            if let outcome @ (Outcome::Full | Outcome::Closed) = self.flush() {
                return outcome;
            }
        }
        if let Err(error) = self.frames.reserve(len) {
            return self.sender.fail(error);
        }
        match self.frames.push_reserved(len, write) {
            Ok(()) => Outcome::Queued,
            Err(_) => Outcome::Closed,
        }
    }

    /// How many bytes are collected, including frame headers.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// How many bytes are collected before the batch is sent automatically.
    pub fn limit(&self) -> usize {
        self.frames.limit()
    }

    /// Whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Sends what was collected: one system call, or for datagrams of several lengths a few. Never
    /// waits for the peer.
    ///
    /// On [`Outcome::Full`] it stays in the batch, and `Drained` reports when to try again.
    /// Datagrams that the kernel refuses are dropped; the result is that of the last refused one.
    pub fn flush(&mut self) -> Outcome {
        match self.sender.route() {
            Some(Route::Stream(connection)) if self.is_empty() && self.may_be_queued => {
                self.may_be_queued = connection.has_queued();
                if self.may_be_queued { Outcome::Queued } else { Outcome::Sent }
            }
            _ if self.is_empty() => Outcome::Sent,
            Some(Route::Stream(connection)) => {
                let sent = connection.send_frames(self.frames.bytes(), self.frames.messages());
                let outcome = self.sender.note_result(sent);
                if self.sender.route().is_none() {
                    self.frames.end();
                } else if outcome.is_some_and(|outcome| outcome.is_accepted()) {
                    self.frames.clear();
                }
                // Another connection has replaced the first one.
                outcome.unwrap_or_else(|| self.flush())
            }
            Some(Route::Datagrams(socket)) => {
                let lengths = self.frames.lengths().unwrap_or_default();
                let to = self.sender.endpoint().remote;
                let (sent, bytes, outcome) = socket.send_many(self.frames.bytes(), lengths, to);
                self.frames.drop_first(sent, bytes);
                outcome
            }
            None => Outcome::Closed,
        }
    }
}

impl<S> Drop for Batch<S> {
    fn drop(&mut self) {
        // A caller that needs the result has called `flush` before.
        let _ = self.flush();
    }
}

impl<S> fmt::Debug for Batch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("to", &self.sender.endpoint()).field("bytes", &self.len()).finish_non_exhaustive()
    }
}
