//! Gathers what a function sends while it handles a batch, so that one call of the host sends it
//! all.

use std::ops::Range;

use crate::abi::{self, BatchHandler};
use crate::messages::Messages;
use crate::{Outgoing, SendError};

/// Bytes that are copied before they are sent: a fraction of a core's cache.
const ARENA: usize = 64 * 1024;
/// A longer message is sent at once, which costs less than to copy it.
const MAX_COPY: usize = ARENA / 4;
/// Messages that are gathered before they are sent.
const MAX_GATHERED: usize = 1024;

/// Where a function sends to while it handles a message.
///
/// Messages are gathered and sent together, in order, at the end of the batch at the latest.
pub struct Outputs<'a> {
    /// The received batch. What lies in it need not be copied.
    batch: &'a [u8],
    gathered: &'a mut Gathered,
}

/// Messages that wait to be sent.
#[derive(Default)]
struct Gathered {
    list: Vec<(u32, Place)>,
    /// Copies of messages, back to back.
    arena: Vec<u8>,
}

/// Where a gathered message lies.
enum Place {
    Batch(Range<usize>),
    Arena(Range<usize>),
}

impl Outputs<'_> {
    /// Sends a message to the output topic with this index: 0 is the first of `output.topics`.
    ///
    /// A message or a part of one that was received in this batch is not copied by this call.
    ///
    /// # Panics
    /// When the host refuses the message; see [`try_send`](Self::try_send).
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

    /// Sends a message at once, after all that were sent before it.
    ///
    /// # Errors
    /// When the topic does not exist or the message is too long for it.
    ///
    /// # Panics
    /// When the host refuses a message that was sent before with [`send`](Self::send).
    pub fn try_send(&mut self, topic: u32, data: &[u8]) -> Result<(), SendError> {
        self.flush();
        crate::send(topic, data)
    }

    /// Answers on the stream that feeds the function, at once.
    ///
    /// # Panics
    /// When the host refuses the answer; see [`reply`](crate::reply).
    pub fn reply(&mut self, data: &[u8]) {
        refuse(crate::reply(data));
    }

    /// Sends what was gathered, before the end of the batch.
    ///
    /// # Panics
    /// When the host refuses a message.
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

/// Wraps a handler of messages into one of batches.
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

/// The range of `whole` that `part` is, if it lies in it.
#[inline]
fn range_within(whole: &[u8], part: &[u8]) -> Option<Range<usize>> {
    let start = abi::address(part).checked_sub(abi::address(whole))?;
    let end = start.checked_add(part.len())?;
    (end <= whole.len()).then_some(start..end)
}

/// Traps with the reason why the host refused a message.
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
