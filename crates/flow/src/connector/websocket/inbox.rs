//! The buffer of received messages, back to back.

/// Messages in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// The end of each message in `bytes`.
    ends: Vec<usize>,
}

impl Inbox {
    /// The number of buffered bytes at which reading is paused.
    const FULL: usize = 1 << 20;
    /// The memory that a message takes in addition to its bytes.
    const OVERHEAD: usize = size_of::<usize>();

    pub(super) fn push(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether reading should be paused.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() + self.ends.len() * Inbox::OVERHEAD >= Inbox::FULL
    }

    /// Removes all messages. Keeps the memory for the next ones, unless it is large.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(2 * Inbox::FULL);
        self.ends.clear();
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_order() {
        let mut inbox = Inbox::default();
        assert!(inbox.is_empty());
        for message in [&b"one"[..], b"", b"three"] {
            inbox.push(message);
        }
        assert_eq!(inbox.messages().collect::<Vec<_>>(), [&b"one"[..], b"", b"three"]);
        inbox.clear();
        assert!(inbox.is_empty() && inbox.messages().next().is_none());
    }

    #[test]
    fn empty_messages_fill_it_too() {
        let mut inbox = Inbox::default();
        for _ in 0..Inbox::FULL / Inbox::OVERHEAD {
            assert!(!inbox.is_full());
            inbox.push(b"");
        }
        assert!(inbox.is_full());
    }
}
