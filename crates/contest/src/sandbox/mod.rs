//! Through a function inside a WASM sandbox, in a process of its own.

use estafette_measure::Registry;
use estafette_measure::entry::bytes;

mod wat_echo;

pub use self::wat_echo::WatEcho;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry.enrol(bytes(wat_echo::WatEcho))
}
