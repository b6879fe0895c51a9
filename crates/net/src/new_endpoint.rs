//! What connecting or accepting creates, for the node's thread to serve.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::Address;
use crate::codec::Decoder;
use crate::connection::Connection;
use crate::slab::Key;
use crate::transport::{Datagrams, Found, Options};

/// A new connection for the node's thread to serve.
pub(crate) struct NewConnection {
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    pub(crate) origin: Origin,
}

/// Which end of a connection this is.
pub(crate) enum Origin {
    /// This side connects.
    Connecting(Box<Connecting>),
    /// A peer connected to a listener. Its address is noted before a handshake, because the system
    /// does not know it after a reset.
    Accepted { listener: Key, peer: Option<Arc<Address>> },
}

/// The target of a connection. If an attempt fails, the next of `others` is tried.
pub(crate) struct Connecting {
    pub(crate) address: Address,
    pub(crate) others: Vec<SocketAddr>,
    pub(crate) options: Options,
}

/// The peer of a datagram socket, while its name is being resolved.
pub(crate) struct PendingPeer {
    pub(crate) address: Address,
    pub(crate) options: Options,
    pub(crate) found: Found,
}

/// What connecting created.
pub(crate) enum Client {
    Stream(Box<NewConnection>),
    Datagrams(Box<dyn Datagrams>),
}
