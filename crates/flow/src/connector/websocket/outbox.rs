//! The state of the message that is being sent. There is one at a time, so it is known which
//! message a loss concerns.

/// The state of the current message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Outbox {
    /// No message is being sent.
    #[default]
    Empty,
    /// A part of it waits until the server reads more.
    Queued,
    /// The connection was lost before the whole message was written. It must be sent again.
    Unwritten,
}

impl Outbox {
    /// Everything that was queued has been written.
    pub(super) fn on_drained(&mut self) {
        if *self == Outbox::Queued {
            *self = Outbox::Empty;
        }
    }

    /// The connection was lost, and `unwritten` bytes were not written. If it is zero, the message
    /// was either written completely or is queued for the next connection. In neither case is it
    /// sent again.
    pub(super) fn on_lost(&mut self, unwritten: usize) {
        if *self == Outbox::Queued && unwritten > 0 {
            *self = Outbox::Unwritten;
        }
    }

    /// The connection is established again. Queued messages are written first.
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
    fn events_without_a_message_have_no_effect() {
        let mut outbox = Outbox::Empty;
        outbox.on_lost(9);
        outbox.on_drained();
        assert_eq!(outbox, Outbox::Empty);
    }
}
