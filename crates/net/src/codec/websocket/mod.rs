//! WebSocket frames: RFC 6455, sections 5 and 7, and compressed messages: RFC 7692.

mod close;
mod handshake;
pub(crate) mod mask;
mod utf8;

pub use self::close::{Close, CloseError};
#[cfg(any(test, fuzzing))]
pub(crate) use self::handshake::Expected;
pub(crate) use self::handshake::{Awaited, Opening};
pub(crate) use self::utf8::Utf8;

use std::ops::Range;

use super::{Fault, Header, Item, Kind, Step, Violation};
use crate::codec::Rule;
use crate::deflate::{DecompressError, Decompressor};

/// Which end of a WebSocket this is. A client masks what it sends; a server must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// The opcode of a frame: section 5.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn of(bits: u8) -> Option<Opcode> {
        Some(match bits {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            _ => return None,
        })
    }

    fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Opcode {
        match kind {
            Kind::Text => Opcode::Text,
            Kind::Binary => Opcode::Binary,
        }
    }
}

/// The header of a control frame or of an unfragmented message.
#[inline]
pub(crate) fn header(opcode: Opcode, len: usize, key: Option<[u8; 4]>) -> Header {
    let mut header = Header::NONE;
    let masked = if key.is_some() { 0x80 } else { 0 };
    let first = 0x80 | opcode as u8;
    match len {
        0..=125 => header.push(&[first, masked | len as u8]),
        126..=0xffff => {
            let [high, low] = (len as u16).to_be_bytes();
            header.push(&[first, masked | 126, high, low]);
        }
        _ => {
            header.push(&[first, masked | 127]);
            header.push(&(len as u64).to_be_bytes());
        }
    }
    if let Some(key) = key {
        header.push(&key);
    }
    header
}

/// As [`header`], of a compressed message.
pub(crate) fn compressed_header(opcode: Opcode, len: usize, key: Option<[u8; 4]>) -> Header {
    let mut header = header(opcode, len, key);
    header.set_first(0x80 | COMPRESSED | opcode as u8);
    header
}

/// Writes the header of an unfragmented binary message of `len` bytes to the start of `buffer`, and
/// returns it. If `masked`, its last four bytes are left for the masking key.
#[inline(always)]
pub(crate) fn binary(buffer: &mut [u8], len: usize, masked: bool) -> Option<&mut [u8]> {
    let (key, mask) = if masked { (4, 0x80) } else { (0, 0) };
    // The header lengths are constants here, so the compiler copies few bytes directly.
    let (second, head) = match len {
        0..=125 => (len as u8, buffer.get_mut(..2 + key)?),
        126..=0xffff => {
            let head = buffer.get_mut(..4 + key)?;
            head[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            (126, head)
        }
        _ => {
            let head = buffer.get_mut(..10 + key)?;
            head[2..10].copy_from_slice(&(len as u64).to_be_bytes());
            (127, head)
        }
    };
    head[..2].copy_from_slice(&[BINARY, mask | second]);
    Some(head)
}

/// A complete control frame.
pub(crate) fn control(opcode: Opcode, payload: &[u8], key: Option<[u8; 4]>) -> Vec<u8> {
    debug_assert!(opcode.is_control() && payload.len() <= MAX_CONTROL);
    let header = header(opcode, payload.len(), key);
    let mut frame = [header.bytes(), payload].concat();
    if let Some(key) = key {
        mask::apply(&mut frame[header.bytes().len()..], key, 0);
    }
    frame
}

/// The first byte of an unfragmented binary message.
const BINARY: u8 = 0x82;
/// The bit of the first byte that marks a compressed message: RSV1.
const COMPRESSED: u8 = 0x40;
/// The longest payload of a control frame.
const MAX_CONTROL: usize = 125;

/// Returns the range of the first message in `input`, unmasked, if it is an unfragmented binary
/// message that is complete and valid. Otherwise returns `None`, and the decoder has to look.
#[inline]
pub(crate) fn whole(input: &mut [u8], masked: bool, max_len: usize) -> Option<Range<usize>> {
    let mask = u8::from(masked) << 7;
    let (start, len) = match *input.first_chunk::<4>()? {
        [BINARY, second, ..] if second ^ mask < 126 => (2, usize::from(second ^ mask)),
        [BINARY, second, high, low] if second ^ mask == 126 => (4, usize::from(u16::from_be_bytes([high, low]))),
        _ => return None,
    };
    // Longer messages and non-minimal length encodings are left to the decoder.
    if (start == 4 && len < 126) || len > max_len {
        return None;
    }
    if !masked {
        return (start + len <= input.len()).then_some(start..start + len);
    }
    let (key, rest) = input[start..].split_first_chunk_mut::<4>()?;
    mask::apply(rest.get_mut(..len)?, *key, 0);
    Some(start + 4..start + 4 + len)
}

/// A decoded frame header.
#[derive(Debug)]
struct Frame {
    opcode: Opcode,
    last: bool,
    key: Option<[u8; 4]>,
    len: usize,
    /// How many payload bytes were unmasked and checked.
    done: usize,
}

/// A fragmented or compressed message that is not complete.
#[derive(Debug)]
struct Parts {
    kind: Kind,
    count: usize,
    compression: Compression,
}

/// Whether a message is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    Uncompressed,
    /// Compressed, and how many bytes its frames announced so far.
    Compressed {
        len: u64,
    },
}

/// Decodes the handshake of a peer, then its messages and control frames.
#[derive(Debug)]
pub(crate) struct WebSocketDecoder {
    side: Side,
    /// The longest accepted message in bytes, and the most frames it may have.
    limit: usize,
    max_parts: usize,
    opening: Option<Opening>,
    /// The frame whose header was consumed and whose payload was not.
    frame: Option<Frame>,
    parts: Option<Parts>,
    assembled: Vec<u8>,
    utf8: Utf8,
    /// Set if the handshake agreed upon compression.
    decompressor: Option<Box<Decompressor>>,
    closed: bool,
}

impl WebSocketDecoder {
    pub(crate) fn new(side: Side, opening: Opening, limit: usize, max_parts: usize) -> WebSocketDecoder {
        WebSocketDecoder {
            side,
            limit,
            max_parts,
            opening: Some(opening),
            frame: None,
            parts: None,
            assembled: Vec::new(),
            utf8: Utf8::default(),
            decompressor: None,
            closed: false,
        }
    }

    /// A decoder after a handshake that agreed upon compression.
    #[cfg(all(feature = "deflate", any(test, fuzzing)))]
    pub(crate) fn compressed(side: Side, limit: usize, max_parts: usize) -> WebSocketDecoder {
        let offer = ["permessage-deflate"].into_iter();
        let (agreed, _) = crate::deflate::Deflate::default().accept(offer).expect("it is acceptable");
        WebSocketDecoder {
            opening: None,
            decompressor: Some(Box::new(agreed.decompressor())),
            ..WebSocketDecoder::new(side, Opening::Answer(Box::default()), limit, max_parts)
        }
    }

    /// Skips the handshake.
    #[cfg(test)]
    pub(crate) fn skip_opening(&mut self) {
        self.opening = None;
    }

    pub(crate) fn assembled(&mut self) -> &mut Vec<u8> {
        &mut self.assembled
    }

    pub(crate) fn holds(&self) -> usize {
        if self.parts.is_some() { self.assembled.len() } else { 0 }
    }

    pub(crate) fn rule(&self) -> Rule {
        Rule::WebSocket { masked: self.side == Side::Server, max_len: self.limit }
    }

    pub(crate) fn midway(&self) -> bool {
        self.frame.is_some() || self.parts.is_some()
    }

    /// As [`Decoder::decode`](super::Decoder::decode).
    pub(crate) fn decode(&mut self, input: &mut [u8]) -> Result<Step, Fault> {
        if self.closed {
            // Section 5.5.1: data after a closing frame is ignored.
            return Ok(Step { consumed: input.len(), item: Item::Partial { need: 1 } });
        }
        if let Some(opening) = &self.opening {
            let step = opening.read(input)?;
            if let Item::Open { agreed, .. } = &step.item {
                self.decompressor = agreed.deflate.as_ref().map(|deflate| Box::new(deflate.decompressor()));
                self.opening = None;
            }
            return Ok(step);
        }
        let start = if self.frame.is_some() {
            0
        } else {
            match self.header(input).map_err(Violation::closing)? {
                Ok((frame, len)) => {
                    self.frame = Some(frame);
                    len
                }
                Err(need) => return Ok(Step { consumed: 0, item: Item::Partial { need } }),
            }
        };
        let mut step = self.payload(&mut input[start..]).map_err(Violation::closing)?;
        step.consumed += start;
        if let Item::Message { at, .. } | Item::Ping { at } = &mut step.item {
            *at = at.start + start..at.end + start;
        }
        Ok(step)
    }

    /// Decodes a frame header. Returns it with its length, or `Err` with the number of bytes
    /// needed.
    fn header(&mut self, input: &[u8]) -> Result<Result<(Frame, usize), usize>, Violation> {
        let &[first, second, ..] = input else { return Ok(Err(2)) };
        let compressed = first & COMPRESSED != 0;
        if first & 0x30 != 0 || (compressed && self.decompressor.is_none()) {
            return wrong("a reserved bit is set, and no extension was agreed upon");
        }
        let Some(opcode) = Opcode::of(first & 0x0f) else { return wrong("an undefined opcode") };
        let last = first & 0x80 != 0;
        let masked = second & 0x80 != 0;
        let short = second & 0x7f;
        self.check_opcode(opcode, last, short)?;
        if compressed && (opcode.is_control() || opcode == Opcode::Continuation) {
            return wrong("a compressed control frame or continuation");
        }
        self.check_masking(masked)?;
        let size = match short {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        let whole = size + if masked { 4 } else { 0 };
        if input.len() < whole {
            return Ok(Err(whole));
        }
        let len = payload_len(short, input)?;
        self.check_message_len(opcode, compressed, len)?;
        let key = masked.then(|| [input[size], input[size + 1], input[size + 2], input[size + 3]]);
        self.count_fragment(opcode, last, compressed.then_some(len))?;
        Ok(Ok((Frame { opcode, last, key, len: len as usize, done: 0 }, whole)))
    }

    /// Checks whether a frame of this type may come now. `short` is the length in its second byte.
    #[inline]
    fn check_opcode(&self, opcode: Opcode, last: bool, short: u8) -> Result<(), Violation> {
        if opcode.is_control() {
            if !last {
                return wrong("a fragmented control frame");
            }
            if usize::from(short) > MAX_CONTROL {
                return wrong("a control frame of more than 125 bytes");
            }
        } else if (opcode == Opcode::Continuation) != self.parts.is_some() {
            return wrong(match opcode {
                Opcode::Continuation => "a continuation where nothing was begun",
                _ => "a new message before the last one ended",
            });
        }
        Ok(())
    }

    #[inline]
    fn check_masking(&self, masked: bool) -> Result<(), Violation> {
        match (self.side, masked) {
            (Side::Server, false) => wrong("a client must mask its frames"),
            (Side::Client, true) => wrong("a server must not mask its frames"),
            _ => Ok(()),
        }
    }

    /// Checks the length of a message with this frame. For a continuation, the fragments received
    /// so far count too.
    #[inline]
    fn check_message_len(&mut self, opcode: Opcode, compressed: bool, len: u64) -> Result<(), Violation> {
        if compressed {
            return self.check_compressed_len(len);
        }
        if let (Opcode::Continuation, Some(Parts { compression: Compression::Compressed { len: all }, .. })) =
            (opcode, &mut self.parts)
        {
            *all = all.saturating_add(len);
            let all = *all;
            return self.check_compressed_len(all);
        }
        let before = if opcode == Opcode::Continuation { self.assembled.len() } else { 0 };
        let total = len.saturating_add(before as u64);
        if total > self.limit as u64 && !opcode.is_control() {
            return Err(Violation::TooLong { len: total, limit: self.limit });
        }
        Ok(())
    }

    /// Checks how many bytes the frames of a compressed message have. It may have few more than
    /// without compression; the decompressor checks how long the message really is.
    fn check_compressed_len(&self, len: u64) -> Result<(), Violation> {
        let limit = self.limit as u64;
        if len > limit.saturating_add(limit / 64).saturating_add(64) {
            return Err(Violation::TooLong { len, limit: self.limit });
        }
        Ok(())
    }

    /// Begins a fragmented or compressed message, or counts its next fragment. `compressed` is the
    /// length of the first frame of a compressed message.
    #[inline]
    fn count_fragment(&mut self, opcode: Opcode, last: bool, compressed: Option<u64>) -> Result<(), Violation> {
        match (opcode, &mut self.parts) {
            (Opcode::Continuation, Some(parts)) => {
                parts.count += 1;
                if parts.count > self.max_parts {
                    return Err(Violation::TooManyParts(self.max_parts));
                }
            }
            (Opcode::Text | Opcode::Binary, parts) if !last || compressed.is_some() => {
                let kind = if opcode == Opcode::Text { Kind::Text } else { Kind::Binary };
                let compression = compressed.map_or(Compression::Uncompressed, |len| Compression::Compressed { len });
                *parts = Some(Parts { kind, count: 1, compression });
                self.assembled.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Decodes as much of a frame's payload as is there.
    fn payload(&mut self, input: &mut [u8]) -> Result<Step, Violation> {
        let frame = self.frame.as_mut().expect("a header was read");
        let available = input.len().min(frame.len);
        let fresh = &mut input[frame.done..available];
        if let Some(key) = frame.key {
            mask::apply(fresh, key, frame.done);
        }
        let in_parts = self.parts.is_some() && !frame.opcode.is_control();
        if in_parts && self.is_compressed() {
            return self.compressed_payload(&input[..available]);
        }
        let frame = self.frame.as_mut().expect("a header was read");
        let text = match &self.parts {
            Some(parts) if in_parts => parts.kind == Kind::Text,
            _ => frame.opcode == Opcode::Text,
        };
        if text {
            self.utf8.feed(fresh).map_err(|_| Violation::NotUtf8)?;
        }
        frame.done = available;
        if in_parts {
            // A fragment is moved from the input to the message, so it is stored once.
            self.assembled.extend_from_slice(&input[..available]);
            frame.advance(available);
            if frame.len > 0 {
                return Ok(Step { consumed: available, item: Item::Partial { need: 1 } });
            }
        } else if available < frame.len {
            return Ok(Step { consumed: 0, item: Item::Partial { need: frame.len } });
        }
        let frame = self.frame.take().expect("it is there");
        let item = match frame.opcode {
            Opcode::Ping => Item::Ping { at: 0..available },
            Opcode::Pong => Item::Pong,
            Opcode::Close => {
                self.closed = true;
                Item::Close(Close::parse(&input[..available]).map_err(|bad| match bad {
                    close::Bad::Code => Violation::WebSocket("a closing code that may not be sent"),
                    close::Bad::Reason => Violation::NotUtf8,
                })?)
            }
            _ if !frame.last => Item::Partial { need: 1 },
            opcode => {
                if text {
                    self.utf8.finish().map_err(|_| Violation::NotUtf8)?;
                }
                match self.parts.take() {
                    Some(Parts { kind, .. }) => Item::Assembled { kind },
                    None if opcode == Opcode::Text => Item::Message { at: 0..available, kind: Kind::Text },
                    None => Item::Message { at: 0..available, kind: Kind::Binary },
                }
            }
        };
        Ok(Step { consumed: available, item })
    }

    /// Whether the current message is compressed.
    fn is_compressed(&self) -> bool {
        matches!(self.parts, Some(Parts { compression: Compression::Compressed { .. }, .. }))
    }

    /// Decompresses what is there of a frame's payload, and appends it to the message.
    fn compressed_payload(&mut self, input: &[u8]) -> Result<Step, Violation> {
        let decompressor = self.decompressor.as_mut().expect("a compressed frame is accepted only with it");
        let (frame, parts) = (self.frame.as_mut().expect("a header was read"), self.parts.as_ref());
        let (limit, before) = (self.limit, self.assembled.len());
        decompressor.decompress(input, &mut self.assembled, limit).map_err(|error| not_decompressed(error, limit))?;
        frame.advance(input.len());
        let ends = frame.len == 0 && frame.last;
        if ends {
            decompressor.finish(&mut self.assembled, limit).map_err(|error| not_decompressed(error, limit))?;
        }
        let kind = parts.map_or(Kind::Binary, |parts| parts.kind);
        if kind == Kind::Text {
            self.utf8.feed(&self.assembled[before..]).map_err(|_| Violation::NotUtf8)?;
        }
        if frame.len == 0 {
            self.frame = None;
        }
        if !ends {
            return Ok(Step { consumed: input.len(), item: Item::Partial { need: 1 } });
        }
        self.parts = None;
        if kind == Kind::Text {
            self.utf8.finish().map_err(|_| Violation::NotUtf8)?;
        }
        Ok(Step { consumed: input.len(), item: Item::Assembled { kind } })
    }
}

impl Frame {
    /// Continues behind bytes of a fragment that were moved to its message.
    fn advance(&mut self, bytes: usize) {
        self.len -= bytes;
        self.done = 0;
        if let Some(key) = &mut self.key {
            key.rotate_left(bytes % 4);
        }
    }
}

/// The violation of a message that cannot be decompressed.
fn not_decompressed(error: DecompressError, limit: usize) -> Violation {
    match error {
        DecompressError::TooLong => Violation::TooLong { len: (limit as u64).saturating_add(1), limit },
        DecompressError::Invalid => Violation::Compression,
    }
}

/// Returns the length of a frame's payload. `short` is the length in the second byte of the header,
/// which `input` begins with.
#[inline]
fn payload_len(short: u8, input: &[u8]) -> Result<u64, Violation> {
    let len = match short {
        126 => u64::from(u16::from_be_bytes([input[2], input[3]])),
        127 => u64::from_be_bytes(input[2..10].try_into().expect("eight bytes")),
        short => u64::from(short),
    };
    if (short == 126 && len < 126) || (short == 127 && len <= 0xffff) {
        return wrong("a length that is not minimally encoded");
    }
    if len > i64::MAX as u64 {
        return wrong("a length of more than 63 bits");
    }
    Ok(len)
}

/// Reports a violation of RFC 6455.
fn wrong<T>(what: &'static str) -> Result<T, Violation> {
    Err(Violation::WebSocket(what))
}

impl Violation {
    /// The closing code that reports this violation: section 7.4.1.
    pub(crate) fn code(&self) -> u16 {
        match self {
            Violation::TooLong { .. } | Violation::TooManyParts(_) => 1009,
            Violation::NotUtf8 | Violation::Compression => 1007,
            _ => 1002,
        }
    }

    fn closing(self) -> Fault {
        let close = Close { code: Some(self.code()), reason: String::new() };
        Fault { what: self, reply: close.payload() }
    }
}

#[cfg(test)]
mod tests;
