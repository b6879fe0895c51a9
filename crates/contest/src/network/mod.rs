//! Through the network stack, on loopback.

use estafette_measure::Registry;
use estafette_measure::entry::bytes;

mod estafette;
mod framed_basic;
mod framed_tuned;
mod tcp;
mod udp;
mod ws_basic;

pub use self::tcp::Tcp;
pub use self::udp::Udp;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(bytes(tcp::Tcp))
        .enrol(bytes(udp::Udp))
        .enrol(bytes(framed_basic::FramedBasic))
        .enrol(bytes(framed_tuned::FramedTuned))
        .enrol(bytes(ws_basic::WsBasic))
        .enrol(bytes(estafette::TCP))
        .enrol(bytes(estafette::FRAMED))
        .enrol(bytes(estafette::UNIX))
        .enrol(bytes(estafette::WS))
        .enrol(bytes(estafette::UDP))
}
