//! What is being decoded of the shared buffer, and the state of the current turn.

use std::ops::Range;

/// The bytes of the shared buffer that are being decoded, and the state of the current turn.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(super) start: usize,
    pub(super) end: usize,
    /// How many bytes may still be read in this turn.
    pub(super) budget: usize,
    /// How many bytes were there at its start, and were read since.
    pub(super) taken: usize,
    /// How many pings were received in this turn.
    pub(super) pings: u32,
    /// Whether the link may have more to read.
    pub(super) more: bool,
    /// Whether the current message is read into the connection's own memory.
    pub(super) long: bool,
}

impl Window {
    /// An empty window with this read budget.
    pub(crate) fn of(budget: usize) -> Window {
        Window { budget, ..Window::default() }
    }

    pub(crate) fn spend(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes);
        self.taken = self.taken.saturating_add(bytes);
    }

    /// The range behind the last message in the shared buffer.
    pub(crate) fn rest(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Continues behind a run of messages.
    pub(crate) fn continue_at(&mut self, start: usize) {
        self.start = start;
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.budget == 0
    }
}
