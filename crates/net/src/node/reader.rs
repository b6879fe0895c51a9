//! The read buffer that all connections share, and what lies in it.

use std::ops::Range;

use crate::incoming::{MessageLocation, SHARED, Window};
use crate::run::Run;
use crate::slab::Key;
use crate::slice::TimeSlice;

/// The read buffer that all connections share, one after the other, and what lies in it. An entry
/// is named by its index.
pub(super) struct Reader {
    pub(super) buffer: Vec<u8>,
    /// The entry that is being read, and what of the buffer is its own.
    pub(super) current: Option<(usize, Window)>,
    /// Further complete messages of that entry, behind the last delivered one. They are delivered
    /// before any other event.
    pub(super) run: Option<Run>,
    pub(super) lent: Lent,
    /// The start of an incomplete message that stays in the shared buffer until another connection
    /// is read: its connection and its range.
    pub(super) partial: Option<(usize, Range<usize>)>,
    /// The time slice of the entry that is being read.
    pub(super) slice: TimeSlice,
}

/// What exists only until the node is asked for the next event.
#[derive(Default)]
pub(super) enum Lent {
    #[default]
    Nothing,
    /// The last delivered message lies there, outside the shared buffer.
    Message(usize, MessageLocation),
    /// The last delivered event reports the end of this endpoint: its counters can still be read.
    LastCounters(Key),
}

impl Reader {
    pub(super) fn new(slice: TimeSlice) -> Reader {
        Reader { buffer: vec![0; SHARED], current: None, run: None, lent: Lent::Nothing, partial: None, slice }
    }

    /// Ends the run of complete messages. Decoding continues behind the last delivered one.
    pub(super) fn end_run(&mut self) {
        if let Some(run) = self.run.take()
            && let Some((_, window)) = &mut self.current
        {
            window.continue_at(run.start());
        }
    }

    /// Forgets what was read from an entry that is removed or replaced.
    pub(super) fn forget(&mut self, index: usize) {
        self.current.take_if(|(of, _)| *of == index);
        self.run.take_if(|run| run.from.key.index as usize == index);
        if matches!(self.lent, Lent::Message(of, _) if of == index) {
            self.lent = Lent::Nothing;
        }
        self.partial.take_if(|(of, _)| *of == index);
    }
}
