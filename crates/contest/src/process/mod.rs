//! Between processes of one machine.

use estafette_measure::Registry;
use estafette_measure::case::Case;
use estafette_measure::entry::bytes;

use crate::network;

mod c_peer;
#[cfg(feature = "capnp")]
mod capnp_rpc;
#[cfg(any(feature = "dbus", feature = "mqtt", feature = "nats", feature = "redis"))]
mod credit;
#[cfg(feature = "dbus")]
mod dbus;
mod fifo;
#[cfg(feature = "grpc")]
mod grpc;
mod handed;
mod interprocess;
mod ipc_channel;
mod limit_ring;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(any(feature = "mqtt", feature = "nats", feature = "redis"))]
mod names;
#[cfg(feature = "nats")]
mod nats;
mod pipe;
mod posix_mq;
mod process_vm_readv;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "dbus", feature = "mqtt", feature = "nats", feature = "redis"))]
mod server;
mod shm_mutex;
#[cfg(any(feature = "capnp", feature = "dbus", feature = "grpc"))]
mod slot;
mod under;
mod unix_packet;
mod unix_stream;

pub use self::pipe::Pipe;
pub use self::unix_stream::UnixStream;

/// The most bytes, and messages, that a mechanism with memory of its own has room for.
const MOST_BYTES: usize = 64 << 20;
const MOST_MESSAGES: usize = 65_536;

/// How many messages a mechanism with memory of its own has room for: as many as the case asks for, within reason.
fn slots(case: &Case) -> usize {
    case.capacity.min(MOST_MESSAGES).min(MOST_BYTES / case.payload.len()).max(1)
}

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    let registry = registry
        .enrol(bytes(pipe::Pipe))
        .enrol(bytes(unix_stream::UnixStream))
        .enrol(bytes(fifo::Fifo))
        .enrol(bytes(unix_packet::DATAGRAM))
        .enrol(bytes(unix_packet::SEQPACKET))
        .enrol(bytes(under::Under(network::Tcp)))
        .enrol(bytes(under::Under(network::Udp)))
        .enrol(bytes(posix_mq::PosixMq))
        .enrol(bytes(process_vm_readv::ProcessVmReadv))
        .enrol(bytes(shm_mutex::ShmMutex))
        .enrol(bytes(interprocess::Interprocess))
        .enrol(bytes(ipc_channel::IpcChannel))
        .enrol(bytes(limit_ring::LimitRing))
        .enrol(c_peer::pipe())
        .enrol(c_peer::unix_stream());
    #[cfg(feature = "capnp")]
    let registry = registry.enrol(bytes(capnp_rpc::CapnpRpc));
    #[cfg(feature = "dbus")]
    let registry = registry.enrol(bytes(dbus::PEER)).enrol(bytes(dbus::DAEMON));
    #[cfg(feature = "grpc")]
    let registry = registry.enrol(bytes(grpc::Grpc));
    #[cfg(feature = "mqtt")]
    let registry = registry.enrol(bytes(mqtt::AT_MOST_ONCE)).enrol(bytes(mqtt::AT_LEAST_ONCE));
    #[cfg(feature = "nats")]
    let registry = registry.enrol(bytes(nats::Nats));
    #[cfg(feature = "redis")]
    let registry = registry.enrol(bytes(redis::LIST)).enrol(bytes(redis::CHANNEL));
    registry
}
