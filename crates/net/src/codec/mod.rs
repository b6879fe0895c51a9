//! How messages lie in a stream of bytes. State machines that know neither a socket nor a clock: bytes go in, what was
//! found in them comes out, so that a pair of them is tested by handing bytes from one to the other.
//!
//! A decoder is given all bytes that are there, from the first it has not consumed. It answers with a [`Step`]: how many
//! of them it is done with, and what it found. A message that lies in the input whole is left there, and never copied.

use std::fmt;
use std::ops::Range;

pub(crate) mod length;
#[cfg(any(test, fuzzing))]
pub(crate) mod pieces;
pub(crate) mod websocket;

use self::length::LengthDecoder;
use self::websocket::WebSocketDecoder;
use crate::run::Rule;

/// What a message is, where the transport tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(clippy::exhaustive_enums, reason = "a message has no third kind, and whoever passes it on has to know both")]
pub enum Kind {
    /// Bytes.
    #[default]
    Binary,
    /// UTF-8, checked. Only WebSockets tell text from bytes.
    Text,
}

/// What a decoder made of the bytes at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// How many bytes of the input it is done with, those of a message it found included.
    pub(crate) consumed: usize,
    pub(crate) item: Item,
}

/// What a decoder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// A part of something. The next call brings at least `need` bytes, those that were not consumed included.
    Partial { need: usize },
    /// A message, at this place of the input.
    Message { at: Range<usize>, kind: Kind },
    /// A message that came in parts: [`Decoder::assembled`] has it.
    Assembled { kind: Kind },
    /// The handshake is over; `reply` is to be sent first.
    Open { reply: Vec<u8> },
    /// To be answered with a pong of the same bytes.
    Ping { at: Range<usize> },
    /// Nothing to be done.
    Pong,
    /// The peer closes, and waits for our closing frame.
    Close(websocket::Close),
}

/// Why bytes from a peer were not understood: the connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) what: Violation,
    /// What to tell the peer before the connection is closed.
    pub(crate) reply: Vec<u8>,
}

/// A rule of the protocol that a peer broke, or a limit it went over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message is longer than the node takes.
    #[error("a message of {len} bytes, where {limit} are the most that is taken")]
    TooLong {
        /// Its length as announced, or as far as it came.
        len: u64,
        /// The node's limit.
        limit: usize,
    },
    /// A message in more parts than the node takes.
    #[error("a message in more than {0} parts")]
    TooManyParts(usize),
    /// A rule of RFC 6455.
    #[error("WebSocket protocol: {0}")]
    WebSocket(&'static str),
    /// Text that is no UTF-8.
    #[error("WebSocket protocol: text that is not UTF-8")]
    NotUtf8,
    /// No WebSocket could be agreed upon.
    #[error("WebSocket handshake: {0}")]
    Handshake(String),
    /// What a transport of one's own found.
    #[error("{0}")]
    Other(String),
}

/// How the bytes that arrive at a connection are read.
pub(crate) enum Decoder {
    /// Whatever a read gave is a message.
    Raw,
    /// Every so many bytes are.
    Records(usize),
    Length(LengthDecoder),
    WebSocket(Box<WebSocketDecoder>),
}

impl Decoder {
    /// Looks at `input`, all bytes that were not consumed yet. It is changed where it lies: WebSocket payloads are unmasked.
    #[inline]
    pub(crate) fn decode(&mut self, input: &mut [u8]) -> Result<Step, Fault> {
        match self {
            Decoder::Raw if input.is_empty() => Ok(Step { consumed: 0, item: Item::Partial { need: 1 } }),
            Decoder::Raw => {
                Ok(Step { consumed: input.len(), item: Item::Message { at: 0..input.len(), kind: Kind::Binary } })
            }
            Decoder::Records(len) if input.len() < *len => Ok(Step { consumed: 0, item: Item::Partial { need: *len } }),
            Decoder::Records(len) => {
                Ok(Step { consumed: *len, item: Item::Message { at: 0..*len, kind: Kind::Binary } })
            }
            Decoder::Length(decoder) => decoder.decode(input),
            Decoder::WebSocket(decoder) => decoder.decode(input),
        }
    }

    /// How messages that lie whole behind one that was found are found without it.
    pub(crate) fn rule(&self) -> Option<Rule> {
        match self {
            Decoder::Raw => None,
            Decoder::Records(length) => Some(Rule::Records { length: *length }),
            Decoder::Length(decoder) => Some(decoder.rule()),
            Decoder::WebSocket(decoder) => Some(decoder.rule()),
        }
    }

    /// The message of the last [`Item::Assembled`].
    pub(crate) fn assembled(&mut self) -> &mut Vec<u8> {
        match self {
            Decoder::WebSocket(decoder) => decoder.assembled(),
            Decoder::Raw | Decoder::Records(_) | Decoder::Length(_) => {
                unreachable!("only WebSocket messages come in parts")
            }
        }
    }

    /// How many bytes of an unfinished message it holds itself.
    pub(crate) fn holds(&self) -> usize {
        match self {
            Decoder::WebSocket(decoder) => decoder.holds(),
            Decoder::Raw | Decoder::Records(_) | Decoder::Length(_) => 0,
        }
    }

    /// Lets go of what it holds itself.
    pub(crate) fn clear(&mut self) {
        if let Decoder::WebSocket(decoder) = self {
            *decoder.assembled() = Vec::new();
        }
    }

    /// Whether a message has begun that is not whole yet, apart from what was not consumed.
    pub(crate) fn midway(&self) -> bool {
        match self {
            Decoder::Raw | Decoder::Records(_) => false,
            Decoder::Length(decoder) => decoder.midway(),
            Decoder::WebSocket(decoder) => decoder.midway(),
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Decoder::Raw => "Raw",
            Decoder::Records(_) => "Records",
            Decoder::Length(_) => "Length",
            Decoder::WebSocket(_) => "WebSocket",
        })
    }
}

/// How the bytes that leave a connection are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Raw,
    Length,
    WebSocket(websocket::Side),
}

/// The longest header of any framing.
pub(crate) const MOST_HEADER: usize = 14;

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; MOST_HEADER],
    len: u8,
}

impl Header {
    pub(crate) const NONE: Header = Header { bytes: [0; MOST_HEADER], len: 0 };

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}
