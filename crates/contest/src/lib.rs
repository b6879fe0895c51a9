//! The mechanisms under measure, one file each, by scope.
//!
//! A file holds everything that is particular to its mechanism: how it is opened, its two ends, and what it says of
//! itself. Adding one is a file and a line in its scope's registry below.
#![deny(unsafe_code)]

mod buffer;
#[cfg(feature = "channels")]
mod by_hand;
mod byte_stream;
#[cfg(feature = "channels")]
mod channel;
#[cfg(feature = "channels")]
mod channel_room;
#[cfg(feature = "codecs")]
mod codec;
#[cfg(feature = "channels")]
mod credit;
mod own_thread;
mod ring_ends;
mod room;
#[cfg(feature = "channels")]
mod runtime;

#[allow(unsafe_code)]
pub mod limit_ring;
pub mod network;
pub mod process;
#[cfg(feature = "wasm")]
pub mod sandbox;
#[cfg(feature = "channels")]
pub mod task;
#[cfg(feature = "channels")]
pub mod thread;
mod typed;

use estafette_measure::Registry;

/// Every mechanism of this crate.
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(feature = "channels")]
    let registry = by_hand::enrol(thread::enrol(task::enrol(registry)));
    #[cfg(feature = "codecs")]
    let registry = codec::enrol(registry);
    let registry = network::enrol(process::enrol(registry));
    #[cfg(feature = "wasm")]
    let registry = sandbox::enrol(registry);
    registry
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_and_servers_say_their_whole_version() {
        let whole = |part: &str| part.rsplit(' ').next().is_some_and(|version| version.split('.').count() >= 3);
        for entry in crate::registry().iter() {
            let spec = entry.spec();
            // The system's nanomsg cannot be asked, and `pkg-config` may not be there.
            let other = spec.name.ends_with("-c") || spec.name == "process/nanomsg";
            if !other && !["kernel", "std"].contains(&&*spec.version) {
                assert!(spec.version.split(", ").all(whole), "{}: {}", spec.name, spec.version);
            }
        }
    }
}
