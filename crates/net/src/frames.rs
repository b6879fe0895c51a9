//! Collects whole frames that are sent together.

use std::io;

use crate::codec::websocket::mask::{self, Keys};
use crate::codec::websocket::{self, Side};
use crate::codec::{Framing, MAX_HEADER, length};

/// How many bytes are collected before they are sent.
const MAX_BYTES: usize = 64 << 10;
/// The most datagrams, and the most bytes of them, that one system call takes.
const MAX_DATAGRAMS: usize = 64;
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// Collected frames, and initialized space for more. The space is initialized once, and not for
/// each message.
pub(crate) struct Frames {
    bytes: Vec<u8>,
    collected: Collected,
    /// The end of the space that is usable without [`Frames::reserve`].
    end: usize,
    shape: Shape,
    /// The longest message, in bytes.
    max_message: usize,
}

/// How many bytes and messages are collected: the bytes are the lower 40 bits. A message adds to
/// both by one addition, since two cost some 2 ns of the 20 ns that a small message takes in a
/// batch.
#[derive(Clone, Copy)]
struct Collected(u64);

impl Collected {
    const MESSAGE: u64 = 1 << 40;

    #[inline(always)]
    fn bytes(self) -> usize {
        (self.0 & (Collected::MESSAGE - 1)) as usize
    }

    fn messages(self) -> usize {
        (self.0 / Collected::MESSAGE) as usize
    }

    #[inline(always)]
    fn add(&mut self, bytes: usize) {
        // More than 2^24 messages fit only if they are empty; then their number wraps around.
        self.0 = self.0.wrapping_add(Collected::MESSAGE + bytes as u64);
    }

    fn remove(&mut self, messages: usize, bytes: usize) {
        self.0 = self.0.wrapping_sub(messages as u64 * Collected::MESSAGE + bytes as u64);
    }
}

/// The framing of a message.
enum Shape {
    Bare,
    Length,
    /// With the masking keys of a client.
    WebSocket(Option<Keys>),
    /// With the length of each datagram.
    Datagrams(Vec<usize>),
    /// Nothing is accepted any more.
    Closed,
}

impl Frames {
    pub(crate) fn of(framing: Framing, max_message: usize) -> Frames {
        Frames::new(
            match framing {
                Framing::Raw => Shape::Bare,
                Framing::Length => Shape::Length,
                Framing::WebSocket(side) => Shape::WebSocket((side == Side::Client).then(Keys::many)),
            },
            max_message,
        )
    }

    pub(crate) fn datagrams(max_message: usize) -> Frames {
        Frames::new(Shape::Datagrams(Vec::new()), max_message)
    }

    pub(crate) fn closed() -> Frames {
        Frames::new(Shape::Closed, usize::MAX)
    }

    fn new(shape: Shape, max_message: usize) -> Frames {
        Frames { bytes: Vec::new(), collected: Collected(0), end: 0, shape, max_message }
    }

    /// Appends a message of `len` bytes, which `write` fills in, if there is space for it.
    ///
    /// # Errors
    ///
    /// Returns `write` if there is no space; [`Frames::reserve`] makes some.
    #[inline(always)]
    pub(crate) fn push<W: FnOnce(&mut [u8])>(&mut self, len: usize, write: W) -> Result<(), W> {
        self.push_within(self.end, len, write)
    }

    /// As [`Frames::push`], after [`Frames::reserve`] was called for this message. Its length is
    /// not limited.
    pub(crate) fn push_reserved<W: FnOnce(&mut [u8])>(&mut self, len: usize, write: W) -> Result<(), W> {
        self.push_within(self.bytes.len(), len, write)
    }

    #[inline(always)]
    fn push_within<W: FnOnce(&mut [u8])>(&mut self, end: usize, len: usize, write: W) -> Result<(), W> {
        let Frames { bytes, collected, shape, max_message, .. } = self;
        let Some(space) = bytes.get_mut(collected.bytes()..end).filter(|_| len <= *max_message) else {
            return Err(write);
        };
        let mut key = None;
        let head = match shape {
            Shape::Bare => 0,
            Shape::Length => {
                let Some(head) = space.first_chunk_mut() else { return Err(write) };
                *head = length::bytes(len as u32);
                head.len()
            }
            Shape::WebSocket(keys) => {
                let Some(head) = websocket::binary(space, len, keys.is_some()) else { return Err(write) };
                if let Some(keys) = keys {
                    let (Some(place), Some(next)) = (head.last_chunk_mut(), keys.try_next()) else { return Err(write) };
                    *place = next;
                    key = Some(next);
                }
                head.len()
            }
            Shape::Datagrams(lengths) if lengths.len() < MAX_DATAGRAMS => 0,
            Shape::Datagrams(_) | Shape::Closed => return Err(write),
        };
        let Some(message) = space.get_mut(head..).and_then(|space| space.get_mut(..len)) else { return Err(write) };
        // The message counts only once it is complete: if `write` panics, it is not sent.
        write(message);
        if let Some(key) = key {
            mask::apply(message, key, 0);
        }
        if let Shape::Datagrams(lengths) = shape {
            lengths.push(len);
        }
        collected.add(head + len);
        Ok(())
    }

    /// Makes space for a message of `len` bytes.
    ///
    /// # Errors
    ///
    /// If the system cannot provide random bytes for masking keys.
    pub(crate) fn reserve(&mut self, len: usize) -> io::Result<()> {
        let end = self.collected.bytes() + self.max_header() + len;
        if end > self.bytes.len() {
            self.bytes.resize(end.max((2 * self.bytes.len()).min(self.limit())), 0);
        }
        self.end = self.bytes.len().min(self.limit());
        match &mut self.shape {
            Shape::WebSocket(Some(keys)) => keys.refill(),
            _ => Ok(()),
        }
    }

    /// Whether the collected frames have to be sent before a message of `len` bytes is added.
    pub(crate) fn is_full_for(&self, len: usize) -> bool {
        let over = !self.is_empty() && self.collected.bytes() + self.max_header() + len > self.limit();
        over || self.lengths().is_some_and(|lengths| lengths.len() >= MAX_DATAGRAMS)
    }

    /// The maximum length of a frame header.
    fn max_header(&self) -> usize {
        match self.shape {
            Shape::Length | Shape::WebSocket(_) => MAX_HEADER,
            Shape::Bare | Shape::Datagrams(_) | Shape::Closed => 0,
        }
    }

    /// How many bytes are collected. A single frame may be longer.
    pub(crate) fn limit(&self) -> usize {
        if let Shape::Datagrams(_) = self.shape { MAX_DATAGRAM_BYTES } else { MAX_BYTES }
    }

    /// Accepts nothing any more.
    pub(crate) fn end(&mut self) {
        self.shape = Shape::Closed;
    }

    /// The longest message that is accepted.
    pub(crate) fn max_message(&self) -> usize {
        self.max_message
    }

    /// How many messages are collected.
    pub(crate) fn messages(&self) -> usize {
        self.collected.messages()
    }

    /// How many bytes are collected.
    pub(crate) fn len(&self) -> usize {
        self.collected.bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.collected.bytes() == 0 && self.lengths().is_none_or(<[usize]>::is_empty)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.collected.bytes()]
    }

    /// The length of each datagram, if these are datagrams.
    pub(crate) fn lengths(&self) -> Option<&[usize]> {
        match &self.shape {
            Shape::Datagrams(lengths) => Some(lengths),
            _ => None,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.drop_first(self.collected.messages(), self.collected.bytes());
    }

    /// Removes the first `messages` messages, which have `bytes` bytes.
    pub(crate) fn drop_first(&mut self, messages: usize, bytes: usize) {
        self.bytes.copy_within(bytes..self.collected.bytes(), 0);
        self.collected.remove(messages, bytes);
        if let Shape::Datagrams(lengths) = &mut self.shape {
            lengths.drain(..messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use proptest::prelude::*;

    use super::*;
    use crate::codec::websocket::{Opcode, header};

    /// Adds a message as a batch does. Returns whether it was accepted.
    fn push(frames: &mut Frames, message: &[u8]) -> bool {
        let write = |place: &mut [u8]| place.copy_from_slice(message);
        frames.push(message.len(), write).is_ok() || {
            frames.reserve(message.len()).unwrap();
            frames.push_reserved(message.len(), write).is_ok()
        }
    }

    proptest! {
        #[test]
        fn frames_equal_what_a_connection_writes_one_by_one(
            messages in prop::collection::vec((prop_oneof![0_usize..300, 65_530_usize..65_540], any::<u8>()), 1..20),
            which in 0_usize..3,
        ) {
            let framing = [Framing::Raw, Framing::Length, Framing::WebSocket(Side::Server)][which];
            let mut frames = Frames::of(framing, usize::MAX);
            let mut expected = Vec::new();
            for (len, byte) in messages {
                let message = vec![byte; len];
                prop_assert!(push(&mut frames, &message));
                match framing {
                    Framing::Raw => {}
                    Framing::Length => expected.extend(length::bytes(len as u32)),
                    Framing::WebSocket(_) => expected.extend(header(Opcode::Binary, len, None).bytes()),
                }
                expected.extend(message);
            }
            prop_assert!(frames.bytes() == expected);
        }

        #[test]
        fn a_client_masks_each_message_with_its_own_key(lengths in prop::collection::vec(0_usize..300, 1..20)) {
            let mut frames = Frames::of(Framing::WebSocket(Side::Client), usize::MAX);
            for &len in &lengths {
                prop_assert!(push(&mut frames, &vec![7; len]));
            }
            let mut rest = frames.bytes();
            for &len in &lengths {
                let around = header(Opcode::Binary, len, Some([0; 4])).bytes().len();
                let (frame, behind) = rest.split_at(around + len);
                let (head, masked) = frame.split_at(around);
                let key = *head.last_chunk().unwrap();
                prop_assert!(head == header(Opcode::Binary, len, Some(key)).bytes());
                let mut message = masked.to_vec();
                mask::apply(&mut message, key, 0);
                prop_assert_eq!(message, vec![7; len]);
                rest = behind;
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_message_whose_writer_panics_is_not_sent() {
        let mut frames = Frames::of(Framing::Length, usize::MAX);
        assert!(push(&mut frames, b"one"));
        frames.reserve(100).unwrap();
        let cut = AssertUnwindSafe(|| frames.push_reserved(100, |_| panic!("as intended")).is_ok());
        assert!(catch_unwind(cut).is_err());
        assert!(push(&mut frames, b"two"));
        assert_eq!(frames.bytes(), b"\0\0\0\x03one\0\0\0\x03two");
    }

    #[test]
    fn datagrams_are_limited_to_what_one_call_takes() {
        let mut frames = Frames::datagrams(MAX_DATAGRAM_BYTES);
        for _ in 0..MAX_DATAGRAMS {
            assert!(!frames.is_full_for(8) && push(&mut frames, &[1; 8]));
        }
        assert!(frames.is_full_for(8) && !push(&mut frames, &[1; 8]));
        frames.drop_first(60, 480);
        assert_eq!((frames.lengths(), frames.len()), (Some(&[8; 4][..]), 32));
        assert!(!frames.is_full_for(MAX_DATAGRAM_BYTES - 32) && frames.is_full_for(MAX_DATAGRAM_BYTES - 31));
    }

    #[test]
    fn messages_that_are_too_long_or_after_the_end_are_not_accepted() {
        let mut frames = Frames::of(Framing::Length, 10);
        assert!(!push(&mut frames, &[0; 11]) && push(&mut frames, &[0; 10]));
        frames.end();
        assert!(!push(&mut frames, &[]));
        assert_eq!(frames.len(), 14);
    }
}
