//! The message that is being sent. There is one at a time, so that it is known which one a loss
//! concerns.

/// What has become of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outbox {
    /// Nothing is being sent.
    #[default]
    Empty,
    /// A part of it waits for the server to read on.
    Queued,
    /// The connection was lost before all of it was written: it is to be sent again.
    Unwritten,
}

impl Outbox {
    /// All that waited has been written.
    pub(super) fn on_drained(&mut self) {
        if *self == Outbox::Queued {
            *self = Outbox::Empty;
        }
    }

    /// The connection was lost, and so many bytes were not written. If it was none, the message was
    /// either written whole or waits for the next connection: in neither case is it sent again.
    pub(super) fn on_lost(&mut self, unwritten: usize) {
        if *self == Outbox::Queued && unwritten > 0 {
            *self = Outbox::Unwritten;
        }
    }

    /// There is a connection again. What waited for it is written first.
    pub(super) fn on_connected(&mut self) {
        self.on_drained();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_sent_again_only_if_a_part_was_not_written() {
        let mut outbox = Outbox::Queued;
        outbox.on_lost(1);
        assert_eq!(outbox, Outbox::Unwritten);
        outbox.on_connected();
        assert_eq!(outbox, Outbox::Unwritten);
        let mut outbox = Outbox::Queued;
        outbox.on_lost(0);
        assert_eq!(outbox, Outbox::Queued);
        outbox.on_connected();
        assert_eq!(outbox, Outbox::Empty);
    }

    #[test]
    fn events_of_nothing_change_nothing() {
        let mut outbox = Outbox::Empty;
        outbox.on_lost(9);
        outbox.on_drained();
        assert_eq!(outbox, Outbox::Empty);
    }
}
