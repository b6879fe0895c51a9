//! Mechanisms through the network stack, on loopback and between two hosts.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in the registry below ([`enrol`]).
#![forbid(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

use estafette_measure::Registry;
use estafette_measure::entry::bytes;
use estafette_measure::spec::Tier;

#[cfg(feature = "tokio-net")]
mod delimited;
#[cfg(feature = "tokio-net")]
mod driven;
mod estafette;
#[cfg(feature = "tokio-net")]
mod fastwebsockets;
mod framed_basic;
mod framed_tuned;
mod frames;
mod merging;
#[cfg(feature = "message-io")]
mod message_io;
mod multi_connection;
#[cfg(feature = "quic")]
mod quic;
#[cfg(feature = "message-io")]
mod reassembly;
mod shared_sender;
mod socket;
mod tcp;
mod tcp_connection;
mod tcp_tuned;
mod tls;
mod tls_basic;
mod tls_tuned;
#[cfg(feature = "tokio-net")]
mod tokio_framed;
#[cfg(feature = "tokio-net")]
mod tokio_multi_connection;
#[cfg(feature = "tokio-net")]
mod tokio_tungstenite;
#[cfg(feature = "tokio-net")]
mod tokio_udp;
mod tuned;
mod udp;
mod udp_tuned;
mod under;
mod ws_basic;
mod ws_tuned;

pub use self::tcp::Tcp;
pub use self::udp::Udp;

/// Adds the network mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    let registry = registry
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
        .enrol(bytes(estafette::UDP));
    libraries(registry)
}

/// Adds the mechanisms that are also listed in the scope `process`, between two processes of one
/// machine.
pub fn enrol_process_rows(registry: Registry) -> Registry {
    registry.enrol(bytes(under::Under(tcp::Tcp, Tier::Suite))).enrol(bytes(under::Under(udp::Udp, Tier::Standard)))
}

/// Adds the libraries that this build includes.
fn libraries(registry: Registry) -> Registry {
    #[cfg(feature = "message-io")]
    let registry = registry
        .enrol(bytes(message_io::TCP))
        .enrol(bytes(message_io::FRAMED))
        .enrol(bytes(message_io::UDP))
        .enrol(bytes(message_io::WS));
    #[cfg(feature = "tokio-net")]
    let registry = registry
        .enrol(bytes(tokio_framed::TokioFramed))
        .enrol(bytes(tokio_udp::TokioUdp))
        .enrol(bytes(tokio_tungstenite::TokioTungstenite))
        .enrol(bytes(fastwebsockets::Fastwebsockets));
    #[cfg(feature = "quic")]
    let registry = registry.enrol(bytes(quic::Quic));
    registry
}
