//! Messages that are handed to the system together: where they are small, a system call for each is most of what they cost.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::connection::Connection;
use crate::datagrams::Socket;
use crate::event::{Endpoint, Outcome};
use crate::frames::Frames;
use crate::handle::Handle;
use crate::shared::{Command, Shared};

/// Collects messages for one endpoint, and sends them together: when some 64 KiB are there, or 64 datagrams, when asked to, and at
/// its end.
///
/// Made by [`Handle::batch`]. A message has its place among those of other senders when the batch is sent. What cannot be
/// sent as too much waits already stays in the batch; what is still there when the batch ends is lost, so
/// [`Batch::flush`] first and look at what it says.
///
/// ```
/// # use estafette_net::{Event, Node, Outcome};
/// # let mut node = Node::<()>::new()?;
/// # let handle = node.handle();
/// # let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
/// let endpoint = handle.connect(&handle.local_address(listener).unwrap())?;
/// let mut batch = handle.batch(endpoint);
/// for i in 0..1000_u32 {
///     assert!(batch.push(&i.to_be_bytes()).taken());
/// }
/// assert!(batch.flush().taken());
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
    shared: Arc<Shared<S>>,
    to: Endpoint,
    way: Option<Way>,
    frames: Frames,
}

/// How an endpoint is reached, looked up once.
pub(crate) enum Way {
    Stream(Arc<Connection>),
    Datagrams(Arc<Socket>),
}

impl<S> Batch<S> {
    pub(crate) fn new(handle: &Handle<S>, to: Endpoint) -> Batch<S> {
        let way = handle.shared.way(to.key);
        let frames = match &way {
            Some(Way::Stream(connection)) => connection.frames(),
            Some(Way::Datagrams(socket)) => Frames::datagrams(socket.most()),
            None => Frames::gone(),
        };
        Batch { shared: handle.shared.clone(), to, way, frames }
    }

    /// Adds a message. [`Outcome::Queued`] says that it was taken; [`Outcome::Full`] that the batch is full, and could not be
    /// sent.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Outcome {
        self.push_with(message.len(), |place| place.copy_from_slice(message))
    }

    /// As [`Batch::push`], of a message that is written where it will be sent from. `write` is called if there is room, and
    /// is to write all of it: what it finds there is of earlier messages.
    #[inline(always)]
    pub fn push_with(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome {
        match self.frames.put(len, write) {
            Ok(()) => Outcome::Queued,
            Err(write) => self.push_long(len, write),
        }
    }

    /// As [`Batch::push_with`], where room has to be made, or nothing is taken.
    #[inline(never)]
    fn push_long(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome {
        if self.way.is_none() {
            return Outcome::Closed;
        }
        if len > self.frames.most() {
            return Outcome::TooLarge;
        }
        if self.frames.is_full_for(len) {
            // Of datagrams that the system did not send, only the one who asks is told.
            if let outcome @ (Outcome::Full | Outcome::Closed) = self.flush() {
                return outcome;
            }
        }
        if let Err(error) = self.frames.make_room(len) {
            return self.broken(error);
        }
        match self.frames.put_long(len, write) {
            Ok(()) => Outcome::Queued,
            Err(_) => Outcome::Closed,
        }
    }

    /// How many bytes are collected, frames included.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// How many bytes are collected before they are sent unasked.
    pub fn most(&self) -> usize {
        self.frames.limit()
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Sends what was collected. On [`Outcome::Full`] it stays, and `Drained` tells when to try again. Of datagrams that the
    /// system does not send, the last is told: none of them stays.
    pub fn flush(&mut self) -> Outcome {
        match &self.way {
            _ if self.is_empty() => Outcome::Sent,
            Some(Way::Stream(connection)) => match connection.send_frames(self.frames.bytes()) {
                Ok(Some(Outcome::Closed)) => {
                    // Nothing more will be sent there, and the connection can go.
                    self.way = None;
                    self.frames.end();
                    Outcome::Closed
                }
                Ok(Some(outcome)) => {
                    if outcome.taken() {
                        self.frames.clear();
                    }
                    outcome
                }
                Ok(None) => {
                    self.way = self.shared.way(self.to.key);
                    if self.way.is_none() {
                        self.frames.end();
                    }
                    self.flush()
                }
                Err(error) => self.broken(error),
            },
            Some(Way::Datagrams(socket)) => {
                let lengths = self.frames.lengths().unwrap_or_default();
                let (sent, bytes, outcome) = socket.send_many(self.frames.bytes(), lengths, self.to.remote);
                self.frames.drop_first(sent, bytes);
                outcome
            }
            None => Outcome::Closed,
        }
    }

    #[cold]
    fn broken(&mut self, error: io::Error) -> Outcome {
        let Some(Way::Stream(connection)) = &self.way else { return Outcome::Closed };
        let refusal = connection.refusal();
        self.shared.command(Command::Broken(self.to.key, connection.clone(), error));
        refusal
    }
}

impl<S> Drop for Batch<S> {
    fn drop(&mut self) {
        // Whoever wants to know has flushed it.
        let _ = self.flush();
    }
}

impl<S> fmt::Debug for Batch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("to", &self.to).field("bytes", &self.len()).finish_non_exhaustive()
    }
}
