//! Message framing in a byte stream.
//!
//! The decoders are sans-IO state machines without a socket or a clock: bytes go in, decoded items
//! come out. So a pair of them is tested by passing bytes from one to the other.
//!
//! A decoder gets all bytes that it has not consumed yet. It returns a [`Step`]: how many of them
//! it consumed, and what it found. A complete message stays in the input and is not copied.

use std::fmt;
use std::ops::Range;

pub(crate) mod length;
#[cfg(any(test, fuzzing))]
pub(crate) mod pieces;
mod rule;
pub(crate) mod websocket;

use self::length::LengthDecoder;
pub(crate) use self::rule::Rule;
use self::websocket::WebSocketDecoder;
use crate::deflate::Agreed;
use crate::upgrade::HandshakeError;

/// The type of a message, where the protocol has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(clippy::exhaustive_enums, reason = "a message has no third kind, and code that forwards it has to know both")]
pub enum Kind {
    /// Arbitrary bytes.
    #[default]
    Binary,
    /// Valid UTF-8. Only WebSocket distinguishes text from binary messages.
    Text,
}

/// The result of one decoding step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// How many input bytes were consumed, including those of a found message.
    pub(crate) consumed: usize,
    pub(crate) item: Item,
}

/// What a decoder found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    /// An incomplete item. The next call needs at least `need` bytes, including those not consumed.
    Partial { need: usize },
    /// A message, in this range of the input.
    Message { at: Range<usize>, kind: Kind },
    /// A fragmented message: [`Decoder::assembled`] has it.
    Assembled { kind: Kind },
    /// The handshake is over; send `reply` first.
    Open { reply: Vec<u8>, agreed: Agreement },
    /// A ping: reply with a pong of the same bytes.
    Ping { at: Range<usize> },
    /// A pong: nothing to do.
    Pong,
    /// The peer closes, and waits for our closing frame.
    Close(websocket::Close),
}

/// What both sides of a WebSocket agreed upon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Agreement {
    pub(crate) subprotocol: Option<Box<str>>,
    pub(crate) deflate: Option<Agreed>,
}

/// A violation that ends the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) what: Violation,
    /// What to send to the peer before closing.
    pub(crate) reply: Vec<u8>,
}

/// A protocol rule that a peer broke, or a limit that it exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message exceeds the length limit.
    #[error("a message of {len} bytes exceeds the limit of {limit} bytes: Limits::message{}", other_protocol(*len))]
    TooLong {
        /// Its announced length, or the length received so far.
        len: u64,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A message in more fragments than the limit.
    #[error("a message in more than {0} fragments: Limits::parts")]
    TooManyParts(usize),
    /// A rule of RFC 6455 was broken.
    #[error("WebSocket protocol: {0}")]
    WebSocket(&'static str),
    /// A text message that is not valid UTF-8.
    #[error("WebSocket protocol: text that is not UTF-8")]
    NotUtf8,
    /// A compressed message that is not valid DEFLATE.
    #[error("WebSocket protocol: invalid compressed data")]
    Compression,
    /// The WebSocket handshake failed, or the server refused it.
    #[error("WebSocket handshake: {0}")]
    Handshake(Box<HandshakeError>),
    /// A violation found by a custom transport.
    #[error("{0}")]
    Other(String),
}

/// What the peer may speak if the length of a message is text of another protocol.
fn other_protocol(len: u64) -> &'static str {
    match u32::try_from(len).map(u32::to_be_bytes).as_ref() {
        Ok(b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" | b"PRI " | b"HTTP") => "; the peer may speak HTTP",
        Ok([0x16, 3, ..]) => "; the peer may speak TLS",
        _ => "",
    }
}

/// Decodes the bytes that arrive at a connection.
pub(crate) enum Decoder {
    /// Whatever a read returned is a message.
    Raw,
    /// Records of this many bytes.
    Records(usize),
    Length(LengthDecoder),
    WebSocket(Box<WebSocketDecoder>),
}

impl Decoder {
    /// Decodes the start of `input`, which contains all unconsumed bytes. WebSocket payloads are
    /// unmasked in place.
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

    /// How to find further complete messages of a run without the decoder.
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

    /// How many bytes of an incomplete message the decoder buffers itself.
    pub(crate) fn holds(&self) -> usize {
        match self {
            Decoder::WebSocket(decoder) => decoder.holds(),
            Decoder::Raw | Decoder::Records(_) | Decoder::Length(_) => 0,
        }
    }

    /// Frees what the decoder buffers itself.
    pub(crate) fn clear(&mut self) {
        if let Decoder::WebSocket(decoder) = self {
            *decoder.assembled() = Vec::new();
        }
    }

    /// Whether an incomplete message has begun, apart from unconsumed bytes.
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

/// How outgoing messages are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Raw,
    Length,
    WebSocket(websocket::Side),
}

/// The longest header of any framing, in bytes.
pub(crate) const MAX_HEADER: usize = 14;

/// A frame header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    bytes: [u8; MAX_HEADER],
    len: u8,
}

impl Header {
    pub(crate) const NONE: Header = Header { bytes: [0; MAX_HEADER], len: 0 };

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Replaces the first byte.
    fn set_first(&mut self, byte: u8) {
        self.bytes[0] = byte;
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }
}
