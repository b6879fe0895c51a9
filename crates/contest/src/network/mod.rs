//! Through the network stack, on loopback.

use estafette_measure::Registry;
use estafette_measure::entry::bytes;

mod tcp;
mod udp;

pub use self::tcp::Tcp;
pub use self::udp::Udp;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry.enrol(bytes(tcp::Tcp)).enrol(bytes(udp::Udp))
}
