//! Every mechanism under measure.
//!
//! The mechanisms lie in a crate for each distance, one file each: `contest-channels`, `contest-process`,
//! `contest-network` and `contest-sandbox`. What several of them share is in `contest-common`. A file holds everything
//! that is particular to its mechanism: how it is opened, its two ends, and what it says of itself. Adding one is a file
//! and a line in its scope's registry, the function `enrol` of its crate or scope.
#![forbid(unsafe_code)]

#[cfg(feature = "channels")]
pub use estafette_contest_channels::{task, thread};
pub use estafette_contest_common::reference_ring;
pub use estafette_contest_network as network;
pub use estafette_contest_process as process;
#[cfg(feature = "wasm")]
pub use estafette_contest_sandbox as sandbox;

use estafette_measure::Registry;

/// Every mechanism of these crates.
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(any(feature = "channels", feature = "codecs"))]
    let registry = estafette_contest_channels::enrol(registry);
    let registry = process::enrol(registry, network::enrol_process_rows);
    let registry = process::enrol_network_rows(network::enrol(registry));
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
