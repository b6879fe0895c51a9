//! Runs of complete messages in the buffer, the usual case for a stream of small messages.
//!
//! A rule finds the next message without the connection and its decoder, at a fraction of their
//! cost. Whatever the rule does not cover ends the run and is left to the decoder.

use std::mem;
use std::ops::Range;

use crate::codec::{Rule, length, websocket};
use crate::endpoint::Endpoint;

/// The rest of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) from: Endpoint,
    rule: Rule,
    rest: Range<usize>,
    /// How many messages it may deliver until [`Run::extend`], and how many of them are left.
    allowed: u32,
    left: u32,
    /// How many of the delivered ones were counted: [`Run::take_uncounted`].
    counted: u32,
}

impl Run {
    /// A run of at most `allowed` messages until [`Run::extend`].
    pub(crate) fn new(from: Endpoint, rule: Rule, rest: Range<usize>, allowed: u32) -> Run {
        Run { from, rule, rest, allowed, left: allowed, counted: 0 }
    }

    /// How many messages were delivered since it began, or since the last [`Run::extend`].
    pub(crate) fn delivered(&self) -> u32 {
        self.allowed - self.left
    }

    /// Whether all allowed messages were delivered.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// Allows further messages. The delivered ones must have been counted.
    pub(crate) fn extend(&mut self, allowed: u32) {
        debug_assert_eq!(self.counted, self.delivered());
        (self.allowed, self.left, self.counted) = (allowed, allowed, 0);
    }

    /// The start of what was not delivered.
    pub(crate) fn start(&self) -> usize {
        self.rest.start
    }

    /// How many messages were delivered since the last call.
    pub(crate) fn take_uncounted(&mut self) -> u32 {
        let delivered = self.delivered();
        delivered - mem::replace(&mut self.counted, delivered)
    }

    /// Returns the range of the next message, if it is complete and not one too many.
    #[inline(always)]
    pub(crate) fn next(&mut self, buffer: &mut [u8]) -> Option<Range<usize>> {
        let left = self.left.checked_sub(1)?;
        let base = self.rest.start;
        let input = buffer.get_mut(self.rest.clone())?;
        let at = match self.rule {
            Rule::Length { max_len } => length::whole(input, max_len)?,
            Rule::WebSocket { masked, max_len } => websocket::whole(input, masked, max_len)?,
            Rule::Records { length } if input.len() < length => return None,
            Rule::Records { length } => 0..length,
            Rule::Equal { .. } if input.is_empty() => return None,
            Rule::Equal { length } => 0..length.min(input.len()),
        };
        self.rest.start = base + at.end;
        self.left = left;
        Some(base + at.start..base + at.end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::websocket::{Opening, Side};
    use crate::codec::{Decoder, Item, Kind};
    use crate::limits::Limits;
    use crate::scheme::Scheme;
    use crate::slab::Slab;

    /// A frame, or random bytes that are likely to start like one.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        let first = prop_oneof![Just(0x82_u8), Just(0), any::<u8>()];
        let second = prop_oneof![0_u8..4, 0x80_u8..0x84, Just(126), Just(254), Just(127), any::<u8>()];
        let rest = prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..300);
        (first, second, rest).prop_map(|(first, second, rest)| [vec![first, second], rest].concat())
    }

    /// What a decoder finds after its handshake.
    fn found(scheme: Scheme, side: Side, limits: &Limits, input: &mut [u8]) -> Option<(usize, Item)> {
        let mut decoder = scheme.decoder(side, || Opening::requested(Default::default()), limits);
        if let Decoder::WebSocket(decoder) = &mut decoder {
            decoder.skip_opening();
        }
        decoder.decode(input).ok().map(|step| (step.consumed, step.item))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn the_decoder_finds_what_a_rule_finds(input in input(), which in 0..3, max_len in 0_usize..400) {
            let limits = Limits { message: max_len, ..Limits::default() };
            let (scheme, side, rule) = match which {
                0 => (Scheme::Length, Side::Server, Rule::Length { max_len }),
                1 => (Scheme::WebSocket, Side::Server, Rule::WebSocket { masked: true, max_len }),
                _ => (Scheme::WebSocket, Side::Client, Rule::WebSocket { masked: false, max_len }),
            };
            let key = Slab::new().insert_with(|_| ());
            let (mut ours, mut theirs) = (input.clone(), input);
            let mut run = Run::new(Endpoint::new(key), rule, 0..ours.len(), 1);
            let whole = run.next(&mut ours);
            let found = found(scheme, side, &limits, &mut theirs);
            match whole {
                Some(at) => {
                    prop_assert_eq!(found, Some((run.start(), Item::Message { at: at.clone(), kind: Kind::Binary })));
                    prop_assert_eq!(&ours[at.clone()], &theirs[at]);
                }
                // The rule misses no complete binary message.
                None => {
                    let message = matches!(found, Some((_, Item::Message { kind: Kind::Binary, .. })));
                    prop_assert!(!message || long(&ours));
                }
            }
        }
    }

    /// Whether a WebSocket frame has an eight-byte length, which the rule leaves to the decoder.
    fn long(frame: &[u8]) -> bool {
        frame[1] & 0x7f == 127 || frame.len() < 4
    }
}
