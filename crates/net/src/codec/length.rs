//! Length-prefixed messages: four bytes of length in network byte order, then the message. This is
//! the default of `LengthDelimitedCodec` of tokio-util, and two lines of code in any language. The
//! specification is docs/framing.md.

use std::ops::Range;

use super::{Fault, Header, Item, Kind, Step, Violation};
use crate::codec::Rule;

const HEADER: usize = 4;

/// The header of a message of `len` bytes.
#[inline]
pub(crate) fn header(len: u32) -> Header {
    let mut header = Header::NONE;
    header.push(&bytes(len));
    header
}

/// The bytes of that header.
#[inline(always)]
pub(crate) fn bytes(len: u32) -> [u8; HEADER] {
    len.to_be_bytes()
}

/// The range of the first message in `input`, if it is complete and within the limit.
#[inline(always)]
pub(crate) fn whole(input: &[u8], max_len: usize) -> Option<Range<usize>> {
    let len = u32::from_be_bytes(*input.first_chunk::<HEADER>()?) as usize;
    let at = HEADER..HEADER.checked_add(len)?;
    (len <= max_len && at.end <= input.len()).then_some(at)
}

/// Decodes length-prefixed messages.
#[derive(Debug)]
pub(crate) struct LengthDecoder {
    /// The longest accepted message, in bytes.
    limit: usize,
    /// The length of the current message, after its header was consumed.
    begun: Option<usize>,
}

impl LengthDecoder {
    pub(crate) fn new(limit: usize) -> LengthDecoder {
        LengthDecoder { limit, begun: None }
    }

    pub(crate) fn midway(&self) -> bool {
        self.begun.is_some()
    }

    /// How further messages of a run are found.
    pub(crate) fn rule(&self) -> Rule {
        Rule::Length { max_len: self.limit }
    }

    #[inline]
    pub(crate) fn decode(&mut self, input: &[u8]) -> Result<Step, Fault> {
        let (start, len) = match self.begun {
            Some(len) => (0, len),
            None => {
                let Some(header) = input.first_chunk::<HEADER>() else {
                    return Ok(Step { consumed: 0, item: Item::Partial { need: HEADER } });
                };
                let len = u32::from_be_bytes(*header) as usize;
                if len > self.limit {
                    let what = Violation::TooLong { len: len as u64, limit: self.limit };
                    return Err(Fault { what, reply: Vec::new() });
                }
                (HEADER, len)
            }
        };
        if input.len() - start < len {
            self.begun = Some(len);
            return Ok(Step { consumed: start, item: Item::Partial { need: len } });
        }
        self.begun = None;
        let end = start + len;
        Ok(Step { consumed: end, item: Item::Message { at: start..end, kind: Kind::Binary } })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Decoder;
    use super::super::pieces::{self, Found};
    use super::*;

    /// Decodes all messages of a stream that arrives in pieces of these sizes.
    fn read(stream: &[u8], pieces: &[usize]) -> Result<Vec<Vec<u8>>, Fault> {
        let (found, result) = pieces::read(Decoder::Length(LengthDecoder::new(1000)), stream, pieces);
        let message = |found| match found {
            Found::Message(Kind::Binary, message) => message,
            other => panic!("{other:?}"),
        };
        result.map(|()| found.into_iter().map(message).collect())
    }

    #[test]
    fn a_message_over_the_limit_is_rejected_by_its_header_alone() {
        let refused = read(&1001_u32.to_be_bytes(), &[4]).unwrap_err();
        assert_eq!(refused.what, Violation::TooLong { len: 1001, limit: 1000 });
        assert_eq!(
            read(&u32::MAX.to_be_bytes(), &[4]).unwrap_err().what.to_string().split(' ').nth(3),
            Some("4294967295")
        );
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_how_the_stream_is_cut(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
            pieces in prop::collection::vec(1_usize..50, 2000),
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                stream.extend_from_slice(header(message.len() as u32).bytes());
                stream.extend_from_slice(message);
            }
            prop_assert_eq!(read(&stream, &pieces).unwrap(), messages.clone());
            prop_assert_eq!(read(&stream, &[]).unwrap(), messages);
        }
    }
}
