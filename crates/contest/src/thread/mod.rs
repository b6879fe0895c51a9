//! Between threads of one process.

use estafette_measure::Registry;
use estafette_measure::entry::{bytes, values};

mod limit_ring;
mod rtrb;
mod rtrb_by_hand;

pub use self::rtrb::Rtrb;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry.enrol(values(rtrb::Rtrb)).enrol(bytes(limit_ring::LimitRing)).enrol(rtrb_by_hand::RtrbByHand::new())
}
