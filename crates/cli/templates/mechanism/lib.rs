//! A channel of one's own, and the registry that measures it beside the built-in channels.

pub mod channel;
mod mechanism;

use estafette_measure::Registry;
use estafette_measure::entry::values;

/// The built-in channels between tasks and threads, and this crate's.
pub fn registry() -> Registry {
    let built_in = estafette_contest_channels::register(Registry::new()).mark_built_in();
    built_in.register(values(mechanism::Mutexed))
}
