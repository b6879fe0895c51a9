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
    bytes: Vec<u8>,
    /// How long each datagram is.
    lengths: Vec<usize>,
    keys: Option<Keys>,
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
            Some(Way::Stream(connection)) if connection.masks() => Some(Keys::new()),
            _ => None,
        };
        Batch { shared: handle.shared.clone(), to, way, bytes: Vec::new(), lengths: Vec::new(), keys }
    }

    /// Adds a message. [`Outcome::Queued`] says that it was taken; [`Outcome::Full`] that the batch is full, and could not be
    /// sent.
    #[inline]
    pub fn push(&mut self, message: &[u8]) -> Outcome {
        self.append(message.len(), |bytes| bytes.extend_from_slice(message))
    }

    /// As [`Batch::push`], of a message that is written where it will be sent from. `write` is called if there is room.
    #[inline]
    pub fn push_with(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> Outcome {
        self.append(len, |bytes| {
            let at = bytes.len();
            bytes.resize(at + len, 0);
            write(&mut bytes[at..]);
        })
    }

    /// Adds a message, whose `len` bytes `append` adds.
    #[inline]
    fn append(&mut self, len: usize, append: impl FnOnce(&mut Vec<u8>)) -> Outcome {
        if self.bytes.len() + len > MOST && !self.is_empty() {
            let outcome = self.flush();
            if !outcome.taken() {
                return outcome;
            }
        }
        match &self.way {
            Some(Way::Stream(connection)) => {
                match connection.frame(&mut self.bytes, self.keys.as_mut(), Kind::Binary, len, append) {
                    Ok(outcome) => outcome,
                    Err(error) => self.broken(error),
                }
            }
            Some(Way::Datagrams(socket)) if len > socket.most() => Outcome::TooLarge,
            Some(Way::Datagrams(_)) => {
                append(&mut self.bytes);
                self.lengths.push(len);
                Outcome::Queued
            }
            None => Outcome::Closed,
        }
    }

    /// How many bytes are collected, frames included.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How many bytes are collected before they are sent unasked.
    pub fn most(&self) -> usize {
        MOST
    }

    /// Whether nothing is left to send.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.lengths.is_empty()
    }

    /// Sends what was collected. On [`Outcome::Full`] it stays, and `Drained` tells when to try again.
    pub fn flush(&mut self) -> Outcome {
        match &self.way {
            _ if self.is_empty() => Outcome::Sent,
            Some(Way::Stream(connection)) => match connection.send_frames(&self.bytes) {
                Ok(Some(outcome)) => {
                    if outcome.taken() {
                        self.bytes.clear();
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
                let (sent, bytes, outcome) = socket.send_many(&self.bytes, &self.lengths, self.to.remote);
                self.bytes.drain(..bytes);
                self.lengths.drain(..sent);
                outcome
            }
            None => Outcome::Closed,
        }
    }

    #[cold]
    fn broken(&mut self, error: io::Error) -> Outcome {
        self.shared.command(Command::Broken(self.to.key, error));
        match &self.way {
            Some(Way::Stream(connection)) => connection.refusal(),
            _ => Outcome::Closed,
        }
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
        f.debug_struct("Batch").field("to", &self.to).field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
