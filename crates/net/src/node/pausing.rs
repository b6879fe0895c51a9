//! Pausing and resuming reads.

use super::{Entry, Node};
use crate::slab::Key;

impl<S> Node<S> {
    /// Stops reading from an endpoint, or starts again.
    pub(super) fn pause(&mut self, key: Key, pauses: bool) {
        let (index, clock) = (key.index as usize, self.clock);
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => {
                incoming.set_paused(pauses, clock);
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
