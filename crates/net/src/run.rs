//! Messages that lie whole in the buffer, one behind the other: most of what a stream of small ones brings. They are found by a
//! rule that needs neither the connection nor its decoder, for a fraction of what asking those costs; whatever the rule does not
//! cover ends the run, and is looked at there.

use std::ops::Range;

use crate::codec::{length, websocket};
use crate::event::Endpoint;

/// What is left of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) from: Endpoint,
    rule: Rule,
    rest: Range<usize>,
}

/// How the next message is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Behind its length, which is not over this.
    Length { most: usize },
    /// In a WebSocket's frame of its own.
    WebSocket { masked: bool, most: usize },
    /// All have this length; the last may have less.
    Equal { length: usize },
}

impl Run {
    pub(crate) fn new(from: Endpoint, rule: Rule, rest: Range<usize>) -> Run {
        Run { from, rule, rest }
    }

    /// Where what was not told begins.
    pub(crate) fn start(&self) -> usize {
        self.rest.start
    }

    /// Where the next message lies, if it does whole.
    #[inline(always)]
    pub(crate) fn next(&mut self, buffer: &mut [u8]) -> Option<Range<usize>> {
        let base = self.rest.start;
        let input = buffer.get_mut(self.rest.clone())?;
        let at = match self.rule {
            Rule::Length { most } => length::whole(input, most)?,
            Rule::WebSocket { masked, most } => websocket::whole(input, masked, most)?,
            Rule::Equal { .. } if input.is_empty() => return None,
            Rule::Equal { length } => 0..length.min(input.len()),
        };
        self.rest.start = base + at.end;
        Some(base + at.start..base + at.end)
    }
}
