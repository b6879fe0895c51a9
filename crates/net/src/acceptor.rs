//! A listener as its connections know it.

use std::sync::OnceLock;

use crate::counters::{Openings, Total};
use crate::endpoint::Endpoint;
use crate::slab::Key;

/// A listener as its connections know it.
#[derive(Default)]
pub(crate) struct Acceptor {
    /// Set before it accepts.
    key: OnceLock<Key>,
    pub(crate) openings: Openings,
    /// What its connections have counted that have ended.
    pub(crate) ended: Total,
}

impl Acceptor {
    pub(crate) fn set_key(&self, key: Key) {
        self.key.set(key).ok();
    }

    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        self.key.get().copied().map(Endpoint::new)
    }
}
