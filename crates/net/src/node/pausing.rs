//! Pausing and resuming reads.

use super::{Entry, Node};
use crate::slab::Key;

impl<S> Node<S> {
    /// Stops reading from an endpoint, or starts again.
    pub(super) fn pause(&mut self, key: Key, pauses: bool) {
        let (index, clock) = (key.index as usize, self.clock);
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => {
                if incoming.is_paused() && !pauses {
                    // Time spent paused does not count towards a deadline.
                    incoming.since = clock;
                    incoming.partial.since = incoming.partial.since.map(|_| clock);
                }
                incoming.paused = pauses;
                self.arm(key);
            }
            Some(Some(
                Entry::Datagrams { key: entry_key, paused, .. } | Entry::Listener { key: entry_key, paused, .. },
            )) if *entry_key == key => *paused = pauses,
            _ => return,
        }
        if pauses {
            self.polling.forget(index);
        } else {
            // epoll is edge-triggered: what arrived while paused is not reported again.
            self.will_read(index);
        }
    }
}
