//! How much space a stream has.
//!
//! A full stream refuses messages. But servers of 2.9 compare the limit with a message without what its
//! record adds. A message that fits only by that measure is stored, and the stream's first message
//! is removed, although nobody has processed it. So hosts leave space for the records, and never let the
//! server decide. They never assume more space than is free:
//!
//! - After each batch, the stream's sequence says how many messages of other producers came in between.
//!   Each counts as the longest that a topic may have.
//! - While little is free, the first message of a batch names the stream's last sequence, and is
//!   refused if another producer's message has come since.

use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::stream::{DiscardPolicy, Info};

/// What a record has beside its message, its subject and the name of its producer: headers and fields of the
/// server's files, in bytes.
const RECORD: usize = 384;

/// The space of a stream as it is known.
#[derive(Debug)]
pub(super) struct Space {
    /// The limit in bytes. None if the stream has none that refuses messages.
    limit: Option<u64>,
    /// At most this many bytes are stored.
    bytes: u64,
    last_sequence: u64,
    /// Whether nothing has been stored since the server was asked.
    is_current: bool,
}

/// The length of a message's record, at most. Its producer's name is in three headers.
pub(super) fn record(payload: usize, subject: &str, producer: &str) -> u64 {
    (payload + subject.len() + 3 * producer.len() + RECORD) as u64
}

impl Space {
    pub(super) fn of(info: &Info) -> Space {
        let limit = u64::try_from(info.config.max_bytes).ok().filter(|limit| *limit > 0);
        let limit = limit.filter(|_| info.config.discard == DiscardPolicy::New);
        Space { limit, bytes: info.state.bytes, last_sequence: info.state.last_sequence, is_current: true }
    }

    /// How many of the first records surely fit.
    pub(super) fn fitting(&self, records: impl Iterator<Item = u64>) -> usize {
        let Some(limit) = self.limit else { return records.count() };
        let mut bytes = self.bytes;
        records
            .take_while(|record| {
                bytes = bytes.saturating_add(*record);
                bytes <= limit
            })
            .count()
    }

    /// Whether nothing has been stored since the server was asked.
    pub(super) fn is_current(&self) -> bool {
        self.is_current
    }

    /// The last sequence, if little is free, so that others' messages matter.
    pub(super) fn guard(&self) -> Option<u64> {
        self.limit.filter(|limit| limit.saturating_sub(self.bytes) < limit / 4).map(|_| self.last_sequence)
    }

    /// Records that messages with these lengths of their records were stored. Records of others in between have
    /// `longest` bytes at most.
    pub(super) fn stored(&mut self, acks: &[PublishAck], records: impl Iterator<Item = u64>, longest: u64) {
        let mut own = 0;
        for (ack, record) in acks.iter().zip(records).filter(|(ack, _)| !ack.duplicate) {
            own += 1;
            self.bytes = self.bytes.saturating_add(record);
            self.is_current &= ack.sequence <= self.last_sequence;
        }
        let last = acks.iter().map(|ack| ack.sequence).max().unwrap_or(0).max(self.last_sequence);
        let others = (last - self.last_sequence).saturating_sub(own);
        self.bytes = self.bytes.saturating_add(others.saturating_mul(longest));
        self.last_sequence = last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(bytes: u64) -> Space {
        Space { limit: Some(1000), bytes, last_sequence: 7, is_current: true }
    }

    fn acks(sequences: &[u64]) -> Vec<PublishAck> {
        let ack = |sequence| format!("{{\"stream\":\"s\",\"seq\":{sequence}}}");
        sequences.iter().map(|sequence| serde_json::from_str(&ack(sequence)).unwrap()).collect()
    }

    #[test]
    fn only_what_surely_fits_is_sent() {
        assert_eq!(space(0).fitting([400, 400, 200, 1].into_iter()), 3);
        assert_eq!(space(900).fitting([101].into_iter()), 0);
        assert_eq!(Space { limit: None, ..space(900) }.fitting([u64::MAX, 1].into_iter()), 2);
    }

    #[test]
    fn messages_of_others_count_as_the_longest() {
        let mut space = space(100);
        space.stored(&acks(&[8, 11]), [10, 20].into_iter(), 50);
        assert_eq!((space.bytes, space.last_sequence, space.is_current), (100 + 30 + 2 * 50, 11, false));
    }

    #[test]
    fn others_matter_while_little_is_free() {
        assert_eq!((space(749).guard(), space(751).guard()), (None, Some(7)));
    }
}
