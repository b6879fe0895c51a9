//! Mechanisms between processes of one machine.
//!
//! Each file contains everything specific to its mechanism: how to open it, its two ends and its
//! [`Spec`](estafette_measure::Spec). To add a mechanism, add a file and a line in the registry
//! below ([`register`]).
#![deny(unsafe_code)]

// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

use estafette_contest_common::typed::{ByHand, Postcard};
use estafette_measure::Registry;
use estafette_measure::entry::{bytes, messages};
use estafette_measure::spec::Tier;

#[cfg(any(feature = "mqtt", feature = "nats", feature = "redis"))]
mod broker;
mod c_peer;
#[cfg(feature = "capnp")]
mod capnp_rpc;
#[cfg(any(feature = "dbus", feature = "mqtt", feature = "nats", feature = "redis"))]
mod credited;
#[cfg(feature = "dbus")]
mod dbus;
mod descriptor;
mod estafette;
mod eventfd;
mod fifo;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod interprocess;
mod io_uring;
mod io_uring_msg;
mod ipc_channel;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(feature = "nanomsg")]
mod nanomsg;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "nats")]
mod nats_network;
#[cfg(feature = "nng")]
mod nng;
#[cfg(feature = "nng")]
mod nng_pub;
mod passing;
mod pipe;
mod posix_mq;
mod process_vm_readv;
#[cfg(feature = "redis")]
mod redis;
mod reference_ring;
#[cfg(any(feature = "iceoryx2", feature = "zenoh"))]
mod share;
mod shm_mutex;
mod shm_ring;
mod signal;
#[cfg(any(feature = "capnp", feature = "dbus", feature = "grpc"))]
mod slot;
mod sysv_mq;
mod unix_packet;
mod unix_packet_typed;
mod unix_stream;
mod unix_stream_epoll;
mod vmsplice;
mod vsock;
#[cfg(feature = "zenoh")]
mod zenoh;
#[cfg(feature = "zeromq")]
mod zeromq;
#[cfg(feature = "zeromq")]
mod zeromq_pub;

pub use self::pipe::Pipe;
pub use self::unix_stream::UnixStream;

/// Adds the mechanisms between processes. `sockets` adds the network mechanisms that also run
/// between two processes, so that they are listed next to the sockets here. (The function is not
/// generic: a generic one would compile all loops in the calling crate.)
pub fn register(registry: Registry, sockets: fn(Registry) -> Registry) -> Registry {
    let registry = registry
        .register(bytes(pipe::Pipe))
        .register(bytes(unix_stream::UnixStream))
        .register(bytes(unix_stream_epoll::UnixStreamEpoll))
        .register(bytes(fifo::Fifo))
        .register(bytes(unix_packet::DATAGRAM))
        .register(bytes(unix_packet::SEQPACKET));
    let registry = sockets(registry)
        .register(bytes(posix_mq::PosixMq))
        .register(bytes(process_vm_readv::ProcessVmReadv))
        .register(bytes(shm_mutex::ShmMutex))
        .register(bytes(interprocess::Interprocess));
    let registry = ipc_channel::register(registry)
        .register(bytes(reference_ring::ReferenceRing))
        .register(bytes(reference_ring::Copied))
        .register(bytes(estafette::Loaned))
        .register(bytes(estafette::Copied))
        .register(bytes(eventfd::Eventfd))
        .register(bytes(signal::Signal))
        .register(bytes(shm_ring::MEMFD))
        .register(bytes(shm_ring::MEMFD_EVENTFD))
        .register(bytes(shm_ring::SHM_OPEN))
        .register(bytes(shm_ring::SHM_OPEN_EVENTFD))
        .register(bytes(shm_ring::MMAP_FILE))
        .register(bytes(shm_ring::MMAP_FILE_EVENTFD))
        .register(bytes(sysv_mq::SysvMq))
        .register(bytes(vmsplice::Vmsplice))
        .register(bytes(descriptor::Descriptor))
        .register(bytes(io_uring::IoUringSocket))
        .register(bytes(io_uring_msg::MsgRing))
        .register(bytes(vsock::Vsock))
        .register(c_peer::pipe())
        .register(c_peer::unix_stream())
        .register(c_peer::posix_mq())
        .register(c_peer::shm_mutex())
        .register(c_peer::eventfd());
    let registry = servers(libraries(registry));
    ipc_channel::register_typed(registry)
        .register(messages(unix_packet_typed::TypedPacket::<Postcard>::new(Tier::Standard)))
        .register(messages(unix_packet_typed::TypedPacket::<ByHand>::new(Tier::Suite)))
}

/// Adds the network mechanisms whose libraries this crate uses.
pub fn register_network_rows(registry: Registry) -> Registry {
    #[cfg(feature = "zeromq")]
    let registry = registry.register(bytes(zeromq::NETWORK));
    #[cfg(feature = "nng")]
    let registry = registry.register(bytes(nng::NETWORK));
    #[cfg(feature = "zenoh")]
    let registry = registry.register(bytes(zenoh::NETWORK));
    #[cfg(feature = "nats")]
    let registry = registry.register(bytes(nats_network::NatsNetwork));
    registry
}

/// Adds the libraries that this build includes.
fn libraries(registry: Registry) -> Registry {
    #[cfg(feature = "iceoryx2")]
    let registry = registry.register(bytes(iceoryx2::POLLING)).register(bytes(iceoryx2::EVENT));
    #[cfg(feature = "zeromq")]
    let registry = registry
        .register(bytes(zeromq::IPC))
        .register(bytes(zeromq::TCP))
        .register(bytes(zeromq::REQ_REP))
        .register(bytes(zeromq_pub::ZeromqPub));
    #[cfg(feature = "nng")]
    let registry = registry.register(bytes(nng::IPC)).register(bytes(nng_pub::NngPub));
    #[cfg(feature = "nanomsg")]
    let registry = registry.register(bytes(nanomsg::Nanomsg));
    #[cfg(feature = "zenoh")]
    let registry = registry.register(bytes(zenoh::UNIX)).register(bytes(zenoh::SHM));
    registry
}

/// Adds the protocols that this build includes: remote procedure calls to the other end, and
/// servers between the ends.
fn servers(registry: Registry) -> Registry {
    #[cfg(feature = "capnp")]
    let registry = registry.register(bytes(capnp_rpc::CapnpRpc));
    #[cfg(feature = "dbus")]
    let registry = registry.register(bytes(dbus::PEER)).register(bytes(dbus::DAEMON));
    #[cfg(feature = "grpc")]
    let registry = registry.register(bytes(grpc::Grpc));
    #[cfg(feature = "mqtt")]
    let registry = registry.register(bytes(mqtt::AT_MOST_ONCE)).register(bytes(mqtt::AT_LEAST_ONCE));
    #[cfg(feature = "nats")]
    let registry = registry.register(bytes(nats::NATS));
    #[cfg(feature = "redis")]
    let registry = registry.register(bytes(redis::LIST)).register(bytes(redis::CHANNEL));
    registry
}
