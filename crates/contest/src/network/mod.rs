//! Through the network stack, on loopback.

use estafette_measure::Registry;
use estafette_measure::entry::bytes;

mod estafette;
mod framed_basic;
mod framed_tuned;
mod frames;
mod socket;
mod tcp;
mod tcp_tuned;
mod tls;
mod tls_basic;
mod tls_tuned;
mod udp;
mod udp_tuned;
mod ws_basic;
mod ws_tuned;

pub use self::tcp::Tcp;
pub use self::udp::Udp;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(bytes(tcp::Tcp))
        .enrol(bytes(tcp_tuned::TcpTuned))
        .enrol(bytes(udp::Udp))
        .enrol(bytes(udp_tuned::UdpTuned))
        .enrol(bytes(framed_basic::TCP))
        .enrol(bytes(framed_tuned::TCP))
        .enrol(bytes(framed_basic::UNIX))
        .enrol(bytes(framed_tuned::UNIX))
        .enrol(bytes(ws_basic::WsBasic))
        .enrol(bytes(ws_tuned::WsTuned))
        .enrol(bytes(tls_basic::TlsBasic))
        .enrol(bytes(tls_tuned::TlsTuned))
        .enrol(bytes(estafette::TCP))
        .enrol(bytes(estafette::FRAMED))
        .enrol(bytes(estafette::UNIX))
        .enrol(bytes(estafette::WS))
        .enrol(bytes(estafette::TLS))
        .enrol(bytes(estafette::UDP))
}
