//! Between processes of one machine.

use estafette_measure::Registry;
use estafette_measure::case::Case;
#[cfg(any(feature = "iceoryx2", feature = "zenoh"))]
use estafette_measure::case::Pattern;
use estafette_measure::entry::{bytes, messages};
use estafette_measure::spec::Joins;

use crate::network;
use crate::typed::{ByHand, Postcard};

mod c_peer;
#[cfg(feature = "capnp")]
mod capnp_rpc;
#[cfg(any(feature = "dbus", feature = "message-io", feature = "mqtt", feature = "nats", feature = "redis"))]
pub(crate) mod credit;
#[cfg(feature = "dbus")]
mod dbus;
mod descriptor;
mod estafette;
mod eventfd;
mod fifo;
#[cfg(feature = "grpc")]
mod grpc;
mod handed;
#[cfg(feature = "iceoryx2")]
mod iceoryx2;
mod interprocess;
mod io_uring;
mod io_uring_msg;
mod ipc_channel;
pub(crate) mod limit_ring;
#[cfg(feature = "mqtt")]
mod mqtt;
#[cfg(any(feature = "mqtt", feature = "nats", feature = "redis"))]
mod names;
#[cfg(feature = "nanomsg")]
mod nanomsg;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "nng")]
pub(crate) mod nng;
#[cfg(feature = "nng")]
mod nng_pub;
mod passing;
mod pipe;
mod posix_mq;
mod process_vm_readv;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "dbus", feature = "mqtt", feature = "nats", feature = "redis"))]
mod server;
mod shm_mutex;
mod shm_ring;
mod signal;
#[cfg(any(feature = "capnp", feature = "dbus", feature = "grpc"))]
mod slot;
mod sysv_mq;
mod under;
mod unix_packet;
mod unix_packet_typed;
mod unix_stream;
mod unix_stream_epoll;
mod vmsplice;
mod vsock;
#[cfg(feature = "zenoh")]
pub(crate) mod zenoh;
#[cfg(feature = "zeromq")]
pub(crate) mod zeromq;
#[cfg(feature = "zeromq")]
mod zeromq_pub;

pub use self::pipe::Pipe;
pub use self::unix_stream::UnixStream;

/// The most bytes, and messages, that a mechanism with memory of its own has room for.
const MOST_BYTES: usize = 64 << 20;
const MOST_MESSAGES: usize = 65_536;

/// How many messages a mechanism with memory of its own has room for: as many as the case asks for, within reason.
fn slots(case: &Case) -> usize {
    case.capacity.min(MOST_MESSAGES).min(MOST_BYTES / case.payload.len()).max(1)
}

/// How many each of several producers has room for, where each has memory of its own: they share what the case asks for.
#[cfg(any(feature = "iceoryx2", feature = "zenoh"))]
fn share(case: &Case) -> usize {
    let producers = if case.pattern == Pattern::FanIn { case.producers } else { 1 };
    (slots(case) / producers).max(1)
}

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    let registry = registry
        .enrol(bytes(pipe::Pipe))
        .enrol(bytes(unix_stream::UnixStream))
        .enrol(bytes(unix_stream_epoll::UnixStreamEpoll))
        .enrol(bytes(fifo::Fifo))
        .enrol(bytes(unix_packet::DATAGRAM))
        .enrol(bytes(unix_packet::SEQPACKET))
        .enrol(bytes(under::Under(network::Tcp, Joins::Suite)))
        .enrol(bytes(under::Under(network::Udp, Joins::Standard)))
        .enrol(bytes(posix_mq::PosixMq))
        .enrol(bytes(process_vm_readv::ProcessVmReadv))
        .enrol(bytes(shm_mutex::ShmMutex))
        .enrol(bytes(interprocess::Interprocess));
    let registry = ipc_channel::enrol(registry)
        .enrol(bytes(limit_ring::LimitRing))
        .enrol(bytes(limit_ring::Copied))
        .enrol(bytes(estafette::Loaned))
        .enrol(bytes(estafette::Copied))
        .enrol(bytes(eventfd::Eventfd))
        .enrol(bytes(signal::Signal))
        .enrol(bytes(shm_ring::MEMFD))
        .enrol(bytes(shm_ring::MEMFD_EVENTFD))
        .enrol(bytes(shm_ring::SHM_OPEN))
        .enrol(bytes(shm_ring::SHM_OPEN_EVENTFD))
        .enrol(bytes(shm_ring::MMAP_FILE))
        .enrol(bytes(shm_ring::MMAP_FILE_EVENTFD))
        .enrol(bytes(sysv_mq::SysvMq))
        .enrol(bytes(vmsplice::Vmsplice))
        .enrol(bytes(descriptor::Descriptor))
        .enrol(bytes(io_uring::IoUringSocket))
        .enrol(bytes(io_uring_msg::MsgRing))
        .enrol(bytes(vsock::Vsock))
        .enrol(c_peer::pipe())
        .enrol(c_peer::unix_stream())
        .enrol(c_peer::posix_mq())
        .enrol(c_peer::shm_mutex())
        .enrol(c_peer::eventfd());
    let registry = servers(libraries(registry));
    ipc_channel::enrol_typed(registry)
        .enrol(messages(unix_packet_typed::TypedPacket::<Postcard>::new(Joins::Standard)))
        .enrol(messages(unix_packet_typed::TypedPacket::<ByHand>::new(Joins::Suite)))
}

/// Adds the libraries that this build has.
fn libraries(registry: Registry) -> Registry {
    #[cfg(feature = "iceoryx2")]
    let registry = registry.enrol(bytes(iceoryx2::POLLING)).enrol(bytes(iceoryx2::EVENT));
    #[cfg(feature = "zeromq")]
    let registry = registry
        .enrol(bytes(zeromq::IPC))
        .enrol(bytes(zeromq::TCP))
        .enrol(bytes(zeromq::REQ_REP))
        .enrol(bytes(zeromq_pub::ZeromqPub));
    #[cfg(feature = "nng")]
    let registry = registry.enrol(bytes(nng::IPC)).enrol(bytes(nng_pub::NngPub));
    #[cfg(feature = "nanomsg")]
    let registry = registry.enrol(bytes(nanomsg::Nanomsg));
    #[cfg(feature = "zenoh")]
    let registry = registry.enrol(bytes(zenoh::UNIX)).enrol(bytes(zenoh::SHM));
    registry
}

/// Adds what is asked over a protocol, of the other end or of a server between the two, where this build has it.
fn servers(registry: Registry) -> Registry {
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
