//! Messages that are handed to the system together: where they are small, a system call for each is most of what they cost.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::codec::Kind;
use crate::codec::websocket::mask::Keys;
use crate::connection::Connection;
use crate::datagrams::Socket;
use crate::event::{Endpoint, Outcome};
use crate::handle::Handle;
use crate::shared::{Command, Shared};

/// How many bytes are collected before they are sent.
const MOST: usize = 64 << 10;
/// How many datagrams are.
const MOST_DATAGRAMS: usize = 4096;

/// Collects messages for one endpoint, and sends them together: when some 64 KiB are there, when asked to, and at its end.
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
    /// Whole frames; of datagrams, the datagrams one after the other.
    frames: Frames,
    /// How long each datagram is.
    lengths: Vec<usize>,
    keys: Option<Keys>,
}

/// Bytes that are sent together, and room for more: it is made once, and not cleared for each message.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    pub(crate) filled: usize,
}

impl Frames {
    /// So much room behind what is there.
    #[inline]
    pub(crate) fn room(&mut self, len: usize) -> &mut [u8] {
        let end = self.filled + len;
        if end > self.bytes.len() {
            self.bytes.resize(end.max(2 * self.bytes.len()), 0);
        }
        &mut self.bytes[self.filled..end]
    }

    fn there(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Takes so much away from the beginning.
    fn drop_first(&mut self, bytes: usize) {
        self.bytes.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }
}

/// How an endpoint is reached, looked up once.
pub(crate) enum Way {
    Stream(Arc<Connection>),
    Datagrams(Arc<Socket>),
}

impl<S> Batch<S> {
    pub(crate) fn new(handle: &Handle<S>, to: Endpoint) -> Batch<S> {
        let way = handle.shared.way(to.key);
        let keys = match &way {
            Some(Way::Stream(connection)) if connection.masks() => Some(Keys::many()),
            _ => None,
        };
        Batch { shared: handle.shared.clone(), to, way, frames: Frames::default(), lengths: Vec::new(), keys }
    }

    /// Adds a message. [`Outcome::Queued`] says that it was taken; [`Outcome::Full`] that the batch is full, and could not be
    /// sent.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Outcome {
        self.push_with(message.len(), |place| place.copy_from_slice(message))
    }

    /// As [`Batch::push`], of a message that is written where it will be sent from. `write` is called if there is room, and
    /// is to write all of it: what it finds there is of earlier messages.
    #[inline]
    pub fn push_with(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome {
        if (self.len() + len > MOST && !self.is_empty()) || self.lengths.len() >= MOST_DATAGRAMS {
            // Of datagrams that the system did not send, only the one who asks is told.
            if let outcome @ (Outcome::Full | Outcome::Closed) = self.flush() {
                return outcome;
            }
        }
        match &self.way {
            Some(Way::Stream(connection)) => {
                match connection.frame(&mut self.frames, self.keys.as_mut(), Kind::Binary, len, write) {
                    Ok(outcome) => outcome,
                    Err(error) => self.broken(error),
                }
            }
            Some(Way::Datagrams(socket)) if len > socket.most() => Outcome::TooLarge,
            Some(Way::Datagrams(_)) => {
                write(self.frames.room(len));
                self.frames.filled += len;
                self.lengths.push(len);
                Outcome::Queued
            }
            None => Outcome::Closed,
        }
    }

    /// How many bytes are collected, frames included.
    pub fn len(&self) -> usize {
        self.frames.filled
    }

    /// How many bytes are collected before they are sent unasked.
    pub fn most(&self) -> usize {
        MOST
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.lengths.is_empty()
    }

    /// Sends what was collected. On [`Outcome::Full`] it stays, and `Drained` tells when to try again. Of datagrams that the
    /// system does not send, the last is told: none of them stays.
    pub fn flush(&mut self) -> Outcome {
        match &self.way {
            _ if self.is_empty() => Outcome::Sent,
            Some(Way::Stream(connection)) => match connection.send_frames(self.frames.there()) {
                Ok(Some(Outcome::Closed)) => {
                    // Nothing more will be sent there, and the connection can go.
                    self.way = None;
                    Outcome::Closed
                }
                Ok(Some(outcome)) => {
                    if outcome.taken() {
                        self.frames.filled = 0;
                    }
                    outcome
                }
                Ok(None) => {
                    self.way = self.shared.way(self.to.key);
                    self.flush()
                }
                Err(error) => self.broken(error),
            },
            Some(Way::Datagrams(socket)) => {
                let (sent, bytes, outcome) = socket.send_many(self.frames.there(), &self.lengths, self.to.remote);
                self.frames.drop_first(bytes);
                self.lengths.drain(..sent);
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
