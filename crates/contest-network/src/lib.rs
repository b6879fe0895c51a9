//! Mechanisms through the network stack, on loopback and between two hosts.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! `Spec`. To add a mechanism, add a file and a line in the registry below ([`register`]).
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
pub fn register(registry: Registry) -> Registry {
    let registry = registry
        .register(bytes(tcp::Tcp))
        .register(bytes(tcp_tuned::TcpTuned))
        .register(bytes(udp::Udp))
        .register(bytes(udp_tuned::UdpTuned))
        .register(bytes(framed_basic::TCP))
        .register(bytes(framed_tuned::TCP))
        .register(bytes(framed_basic::UNIX))
        .register(bytes(framed_tuned::UNIX))
        .register(bytes(ws_basic::WsBasic))
        .register(bytes(ws_tuned::WsTuned))
        .register(bytes(tls_basic::TlsBasic))
        .register(bytes(tls_tuned::TlsTuned))
        .register(bytes(estafette::TCP))
        .register(bytes(estafette::FRAMED))
        .register(bytes(estafette::UNIX))
        .register(bytes(estafette::WS))
        .register(bytes(estafette::TLS))
        .register(bytes(estafette::UDP));
    libraries(registry)
}

/// Adds the mechanisms that are also listed in the scope `process`, between two processes of one
/// machine.
pub fn register_process_rows(registry: Registry) -> Registry {
    registry
        .register(bytes(under::Under(tcp::Tcp, Tier::Suite)))
        .register(bytes(under::Under(udp::Udp, Tier::Standard)))
}

/// Adds the libraries that this build includes.
fn libraries(registry: Registry) -> Registry {
    #[cfg(feature = "message-io")]
    let registry = registry
        .register(bytes(message_io::TCP))
        .register(bytes(message_io::FRAMED))
        .register(bytes(message_io::UDP))
        .register(bytes(message_io::WS));
    #[cfg(feature = "tokio-net")]
    let registry = registry
        .register(bytes(tokio_framed::TokioFramed))
        .register(bytes(tokio_udp::TokioUdp))
        .register(bytes(tokio_tungstenite::TokioTungstenite))
        .register(bytes(fastwebsockets::Fastwebsockets));
    #[cfg(feature = "quic")]
    let registry = registry.register(bytes(quic::Quic));
    registry
}
