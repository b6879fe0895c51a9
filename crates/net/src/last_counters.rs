//! The counters of endpoints whose end is being reported.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::counters::Counters;
use crate::lock::lock;
use crate::slab::Key;

/// The counters of endpoints whose end is being reported. An endpoint may be removed before its
/// last event is delivered, and the program reads its counters then.
///
/// The node's thread keeps counters when it queues that event, and forgets them after the event was
/// delivered.
#[derive(Debug, Default)]
pub(crate) struct LastCounters(Mutex<HashMap<Key, Counters>>);

impl LastCounters {
    pub(crate) fn keep(&self, key: Key, counters: Counters) {
        lock(&self.0).insert(key, counters);
    }

    /// Replaces the counters of an endpoint if they are kept: it went on after its end was
    /// reported.
    pub(crate) fn update(&self, key: Key, counters: Counters) {
        lock(&self.0).entry(key).and_modify(|kept| *kept = counters);
    }

    pub(crate) fn get(&self, key: Key) -> Option<Counters> {
        lock(&self.0).get(&key).copied()
    }

    pub(crate) fn forget(&self, key: Key) {
        lock(&self.0).remove(&key);
    }

    /// Forgets all: no event is delivered any more.
    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }
}
