//! Whether an entry of a node is to be read.

/// Whether an entry of a node is to be read: its place in the queue of turns, and the user's pause.
///
/// An entry that is paused while it is queued keeps its place, because it may be resumed before its
/// turn. Otherwise each resume would queue it once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReadState {
    /// There is nothing to read, as far as is known.
    #[default]
    Waiting,
    /// It is queued to be read.
    Queued,
    /// The user paused reading.
    Paused,
    /// The user paused reading, and it is queued.
    PausedQueued,
}

impl ReadState {
    /// Queues the entry. Returns whether it was not queued before.
    pub(crate) fn queue(&mut self) -> bool {
        let before = *self;
        *self = match before {
            ReadState::Waiting | ReadState::Queued => ReadState::Queued,
            ReadState::Paused | ReadState::PausedQueued => ReadState::PausedQueued,
        };
        before != *self
    }

    /// The entry's turn begins: it is not queued any more.
    pub(crate) fn begin_turn(&mut self) {
        *self = if self.is_paused() { ReadState::Paused } else { ReadState::Waiting };
    }

    /// Pauses (`true`) or resumes (`false`).
    pub(crate) fn set_paused(&mut self, pauses: bool) {
        *self = match (pauses, self.is_queued()) {
            (false, false) => ReadState::Waiting,
            (false, true) => ReadState::Queued,
            (true, false) => ReadState::Paused,
            (true, true) => ReadState::PausedQueued,
        };
    }

    pub(crate) fn is_queued(self) -> bool {
        matches!(self, ReadState::Queued | ReadState::PausedQueued)
    }

    pub(crate) fn is_paused(self) -> bool {
        matches!(self, ReadState::Paused | ReadState::PausedQueued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_queued_once_however_often_it_is_paused_and_resumed() {
        let mut state = ReadState::default();
        assert!(state.queue() && !state.queue());
        for _ in 0..3 {
            state.set_paused(true);
            assert!(state.is_paused() && state.is_queued() && !state.queue());
            state.set_paused(false);
            assert!(!state.is_paused() && !state.queue());
        }
        state.begin_turn();
        assert_eq!(state, ReadState::Waiting);
    }

    #[test]
    fn a_pause_outlasts_a_turn() {
        let mut state = ReadState::Queued;
        state.set_paused(true);
        state.begin_turn();
        assert_eq!(state, ReadState::Paused);
        // A connection that ends is read even if it is paused.
        assert!(state.queue() && !state.queue());
        assert_eq!(state, ReadState::PausedQueued);
        state.begin_turn();
        state.set_paused(false);
        assert_eq!(state, ReadState::Waiting);
    }
}
