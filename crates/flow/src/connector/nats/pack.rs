//! Several messages of a topic in one message of the server, if the topic has a `batch`.
//!
//! The payload has each message after its length, a 32-bit unsigned integer, little-endian. The
//! header [`COUNT`] has the number of messages. A message that is sent alone has neither.

use async_nats::HeaderMap;
use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// The header with the number of messages.
pub(super) const COUNT: &str = "Estafette-Batch";
/// The bytes of a length.
const LENGTH: usize = size_of::<u32>();
/// The bytes of payloads that share an allocation, which is free when all of them are sent.
const BLOCK: usize = 256 << 10;

/// Makes payloads of messages.
#[derive(Default)]
pub(super) struct Packer {
    /// The next payload, and space for those after it.
    block: BytesMut,
    /// How many messages are in it.
    count: u64,
}

/// A payload.
pub(super) struct Packed {
    /// How many messages it has.
    pub(super) count: u64,
    pub(super) payload: Bytes,
}

impl Packer {
    /// Adds a message. Returns the payload before it, if that is complete. A payload with several
    /// messages has at most `limit` bytes.
    pub(super) fn add(&mut self, message: &[u8], limit: usize) -> Option<Packed> {
        let len = LENGTH + message.len();
        let complete = if self.block.len() + len > limit { self.take() } else { None };
        if self.block.capacity() - self.block.len() < len {
            let mut block = BytesMut::with_capacity(BLOCK.max(self.block.len() + len));
            block.extend_from_slice(&self.block);
            self.block = block;
        }
        // A topic's messages have at most 2 GiB.
        self.block.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.block.extend_from_slice(message);
        self.count += 1;
        complete
    }

    /// The payload of all messages since the last one. None if there are none.
    pub(super) fn take(&mut self) -> Option<Packed> {
        let count = std::mem::take(&mut self.count);
        let mut payload = self.block.split().freeze();
        match count {
            0 => return None,
            1 => payload.advance(LENGTH),
            _ => {}
        }
        Some(Packed { count, payload })
    }
}

/// The messages of a payload that are not removed yet.
#[derive(Debug)]
pub(super) enum Unpacked {
    /// One message without its length. None after it is removed.
    One(Option<Bytes>),
    /// Messages behind their lengths. All of the lengths are correct.
    Several(Bytes),
}

/// Why a payload has no messages.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum Malformed {
    #[error("its header `{COUNT}` is no number: {0:?}")]
    Count(String),
    #[error("a length is cut off after {0} messages")]
    Cut(u64),
    #[error("message {number} has {len} bytes, and {left} are left")]
    Long { number: u64, len: usize, left: usize },
    #[error("its header `{COUNT}` says {said} messages, and it has {found}")]
    Number { said: u64, found: u64 },
}

impl Unpacked {
    /// The messages of a payload.
    ///
    /// # Errors
    ///
    /// If its header says that there are several, and the payload has not exactly that many.
    pub(super) fn new(headers: Option<&HeaderMap>, payload: Bytes) -> Result<Unpacked, Malformed> {
        let Some(said) = headers.and_then(|headers| headers.get(COUNT)) else { return Ok(Unpacked::one(payload)) };
        let said: u64 = said.as_str().parse().map_err(|_| Malformed::Count(said.to_string()))?;
        let (mut rest, mut found) = (&payload[..], 0);
        while !rest.is_empty() {
            let (length, behind) = rest.split_first_chunk().ok_or(Malformed::Cut(found))?;
            found += 1;
            let (len, left) = (u32::from_le_bytes(*length) as usize, behind.len());
            rest = behind.get(len..).ok_or(Malformed::Long { number: found, len, left })?;
        }
        if said == found { Ok(Unpacked::Several(payload)) } else { Err(Malformed::Number { said, found }) }
    }

    /// A payload that is one message.
    pub(super) fn one(payload: Bytes) -> Unpacked {
        Unpacked::One(Some(payload))
    }

    /// All messages.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let (one, several) = match self {
            Unpacked::One(message) => (message.as_deref(), &[][..]),
            Unpacked::Several(messages) => (None, &messages[..]),
        };
        let mut rest = several;
        one.into_iter().chain(std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk()?;
            let (message, next) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = next;
            Some(message)
        }))
    }

    /// The first message.
    pub(super) fn first(&self) -> Option<&[u8]> {
        match self {
            Unpacked::One(message) => message.as_deref(),
            Unpacked::Several(messages) => messages.get(LENGTH..LENGTH + first_len(messages)?),
        }
    }

    /// Removes the first message.
    pub(super) fn remove_first(&mut self) -> Option<Bytes> {
        match self {
            Unpacked::One(message) => message.take(),
            Unpacked::Several(messages) => {
                let len = first_len(messages)?;
                messages.advance(LENGTH);
                Some(messages.split_to(len))
            }
        }
    }
}

fn first_len(messages: &[u8]) -> Option<usize> {
    messages.first_chunk().map(|length| u32::from_le_bytes(*length) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(count: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(COUNT, count);
        headers
    }

    /// Packs messages with this limit.
    fn packed(limit: usize, messages: &[Vec<u8>]) -> Vec<Packed> {
        let mut packer = Packer::default();
        let mut packed: Vec<_> = messages.iter().filter_map(|message| packer.add(message, limit)).collect();
        packed.extend(packer.take());
        assert!(packer.take().is_none());
        packed
    }

    fn unpacked(Packed { count, payload }: Packed) -> Vec<Vec<u8>> {
        let headers = (count > 1).then(|| headers(&count.to_string()));
        let mut messages = Unpacked::new(headers.as_ref(), payload).unwrap();
        let listed: Vec<_> = messages.iter().map(<[u8]>::to_vec).collect();
        let mut all = Vec::new();
        while let Some(first) = messages.first().map(<[u8]>::to_vec) {
            assert_eq!(messages.remove_first().as_deref(), Some(&*first));
            all.push(first);
        }
        assert_eq!(messages.remove_first(), None);
        assert_eq!(all, listed);
        all
    }

    #[test]
    fn without_a_limit_each_message_is_alone() {
        let packed = packed(0, &[b"a".to_vec(), Vec::new(), b"ccc".to_vec()]);
        let payloads: Vec<_> = packed.iter().map(|it| (it.count, &it.payload[..])).collect();
        assert_eq!(payloads, [(1, &b"a"[..]), (1, b""), (1, b"ccc")]);
    }

    #[test]
    fn messages_share_a_payload_up_to_the_limit() {
        let packed = packed(10, &[b"a".to_vec(), b"b".to_vec(), b"c".to_vec(), vec![b'd'; 20], b"e".to_vec()]);
        let payloads: Vec<_> = packed.iter().map(|it| (it.count, &it.payload[..])).collect();
        assert_eq!(
            payloads,
            [(2, &b"\x01\0\0\0a\x01\0\0\0b"[..]), (1, b"c"), (1, &[b'd'; 20]), (1, b"e")],
            "one that is longer than the limit is alone"
        );
    }

    #[test]
    fn a_payload_that_is_not_what_its_header_says_is_an_error() {
        let error = |count: &str, payload: &'static [u8]| {
            Unpacked::new(Some(&headers(count)), Bytes::from_static(payload)).unwrap_err()
        };
        assert_eq!(error("two", b""), Malformed::Count(String::from("two")));
        assert_eq!(error("-1", b""), Malformed::Count(String::from("-1")));
        assert_eq!(error("1", b"\x01\0\0"), Malformed::Cut(0));
        assert_eq!(error("2", b"\0\0\0\0\x02\0\0\0a"), Malformed::Long { number: 2, len: 2, left: 1 });
        assert_eq!(error("1", b"\xff\xff\xff\xffa"), Malformed::Long { number: 1, len: 0xffff_ffff, left: 1 });
        assert_eq!(error("2", b"\x01\0\0\0a"), Malformed::Number { said: 2, found: 1 });
    }

    proptest! {
        #[test]
        fn packed_messages_are_unpacked(
            limit in 0usize..200,
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..50),
        ) {
            let found: Vec<_> = packed(limit, &messages).into_iter().flat_map(unpacked).collect();
            prop_assert_eq!(found, messages);
        }

        #[test]
        fn any_payload_is_an_error_or_has_as_many_messages_as_its_header_says(
            count in 0u64..6,
            payload in proptest::collection::vec(prop_oneof![Just(0), 0u8..4, any::<u8>()], 0..30),
        ) {
            if let Ok(mut messages) = Unpacked::new(Some(&headers(&count.to_string())), payload.into()) {
                let found = std::iter::from_fn(|| messages.remove_first()).count();
                prop_assert_eq!(found as u64, count);
            }
        }
    }
}
