//! All measured mechanisms.
//!
//! The mechanisms are in one crate per scope, one file each: `contest-channels`, `contest-process`,
//! `contest-network` and `contest-sandbox`. `contest-common` contains shared helpers. Each file
//! contains everything specific to its mechanism: how to open it, its two ends and its `Spec`. To
//! add a mechanism, add a file and a line in its scope's registry, the function `register` of its
//! crate or scope.
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "channels")]
pub use estafette_contest_channels::{task, thread};
pub use estafette_contest_common::reference_ring;
pub use estafette_contest_network as network;
pub use estafette_contest_process as process;
#[cfg(feature = "wasm")]
pub use estafette_contest_sandbox as sandbox;

use estafette_measure::Registry;

/// Every mechanism of these crates, marked as built in.
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(any(feature = "channels", feature = "codecs"))]
    let registry = estafette_contest_channels::register(registry);
    let registry = process::register(registry, network::register_process_rows);
    let registry = process::register_network_rows(network::register(registry));
    #[cfg(feature = "wasm")]
    let registry = sandbox::register(registry);
    registry.mark_built_in()
}

#[cfg(test)]
mod tests {
    #[test]
    fn libraries_and_servers_report_their_full_version() {
        let is_full = |part: &str| part.rsplit(' ').next().is_some_and(|version| version.split('.').count() >= 3);
        for entry in crate::registry().iter() {
            let spec = entry.spec();
            // The system's nanomsg cannot be asked, and `pkg-config` may not be there.
            let other = spec.name.ends_with("-c") || spec.name == "process/nanomsg";
            if !other && !["kernel", "std"].contains(&&*spec.version) {
                assert!(spec.version.split(", ").all(is_full), "{}: {}", spec.name, spec.version);
            }
        }
    }
}
