//! Collects the messages that a function sends while it handles a batch, to send them in one call
//! of the host.

use std::ops::Range;

use crate::abi::{self, BatchHandler};
use crate::messages::Messages;
use crate::{Outgoing, SendError};

/// The maximum number of bytes that are copied before they are sent: a fraction of a core's cache.
const ARENA: usize = 64 * 1024;
/// Longer messages are sent at once, which costs less than a copy.
const MAX_COPY: usize = ARENA / 4;
/// The maximum number of messages that are collected before they are sent.
const MAX_GATHERED: usize = 1024;

/// The output topics of a function, passed to the handler with each message.
///
/// Messages are collected and sent together, in order, no later than at the end of the batch.
pub struct Outputs<'a> {
    /// The received batch. A message that lies in it need not be copied.
    batch: &'a [u8],
    gathered: &'a mut Gathered,
}

/// Messages that are not sent yet.
#[derive(Default)]
struct Gathered {
    list: Vec<(u32, Place)>,
    /// Copies of messages, back to back.
    arena: Vec<u8>,
}

/// The location of a collected message.
enum Place {
    Batch(Range<usize>),
    Arena(Range<usize>),
}

impl Outputs<'_> {
    /// Sends a message to the output topic with this index: 0 is the first of `output.topics`.
    ///
    /// A message that is a part of the received batch is not copied by this call.
    ///
    /// # Panics
    /// If the host refuses the message; see [`try_send`](Self::try_send). The panic may occur in a
    /// later call or at the end of the batch.
    #[inline]
    pub fn send(&mut self, topic: u32, data: &[u8]) {
        if let Some(range) = range_within(self.batch, data) {
            self.gather(topic, Place::Batch(range));
        } else if data.len() > MAX_COPY {
            self.flush();
            refuse(crate::send(topic, data));
        } else {
            if self.gathered.arena.len() + data.len() > ARENA {
                self.flush();
            }
            let start = self.gathered.arena.len();
            self.gathered.arena.extend_from_slice(data);
            self.gather(topic, Place::Arena(start..start + data.len()));
        }
    }

    /// Sends a message at once, after all earlier messages.
    ///
    /// # Errors
    /// If the topic does not exist or the message is too long for it.
    ///
    /// # Panics
    /// If the host refuses a message of an earlier [`send`](Self::send).
    pub fn try_send(&mut self, topic: u32, data: &[u8]) -> Result<(), SendError> {
        self.flush();
        crate::send(topic, data)
    }

    /// Sends a reply on the function's input stream, at once.
    ///
    /// # Panics
    /// If the host refuses the reply; see [`reply`](crate::reply).
    pub fn reply(&mut self, data: &[u8]) {
        refuse(crate::reply(data));
    }

    /// Sends all collected messages, before the end of the batch.
    ///
    /// # Panics
    /// If the host refuses a message.
    pub fn flush(&mut self) {
        let Gathered { list, arena } = &mut *self.gathered;
        if list.is_empty() {
            return;
        }
        let outgoing: Vec<_> = list
            .drain(..)
            .map(|(topic, place)| match place {
                Place::Batch(range) => Outgoing::new(topic, &self.batch[range]),
                Place::Arena(range) => Outgoing::new(topic, &arena[range]),
            })
            .collect();
        refuse(crate::send_all(&outgoing));
        arena.clear();
    }

    #[inline]
    fn gather(&mut self, topic: u32, place: Place) {
        self.gathered.list.push((topic, place));
        if self.gathered.list.len() == MAX_GATHERED {
            self.flush();
        }
    }
}

/// Wraps a handler of messages into a handler of batches.
pub(crate) fn batch_handler(mut handler: impl FnMut(&[u8], &mut Outputs<'_>) + 'static) -> BatchHandler {
    let mut gathered = Gathered::default();
    Box::new(move |batch, count| {
        let mut outputs = Outputs { batch, gathered: &mut gathered };
        for message in Messages::new(batch, count) {
            handler(message, &mut outputs);
        }
        outputs.flush();
    })
}

/// The range of `part` within `whole`, if `part` lies in it.
#[inline]
fn range_within(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = abi::address(part).checked_sub(abi::address(whole))?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Panics with the reason if the host refused a message.
fn refuse(result: Result<(), SendError>) {
    if let Err(error) = result {
        panic!("cannot send: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_its_address() {
        let whole = *b"0123456789";
        assert_eq!(range_within(&whole, &whole[2..5]), Some(2..5));
        assert_eq!(range_within(&whole, &whole), Some(0..10));
        assert_eq!(range_within(&whole[2..5], &whole[3..6]), None);
        assert_eq!(range_within(&whole[2..5], &whole[1..3]), None);
        assert_eq!(range_within(&whole, &[7, 8, 9]), None);
    }
}
