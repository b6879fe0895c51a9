//! Pausing and resuming reads.

use super::Node;
use crate::slab::Key;

impl<S> Node<S> {
    /// Stops reading from an endpoint, or starts again.
    pub(super) fn pause(&mut self, key: Key, pauses: bool) {
        let (index, clock) = (key.index as usize, self.clock);
        match self.entries.get_mut(index) {
            Some(Some(entry)) if entry.key() == key => entry.set_paused(pauses, clock),
            _ => return,
        }
        self.arm(key);
        if pauses {
            self.polling.forget(index);
        } else {
            // epoll is edge-triggered: what arrived while paused is not reported again.
            self.will_read(index);
        }
    }
}
