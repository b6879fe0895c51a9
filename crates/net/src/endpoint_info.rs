//! What the endpoints of a node are: [`Handle::endpoints`](crate::Handle::endpoints).

use crate::Address;
use crate::endpoint::Endpoint;

/// An endpoint that existed when [`Handle::endpoints`](crate::Handle::endpoints) was called.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointInfo {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// What it is.
    pub kind: EndpointKind,
    /// As returned by [`Handle::local_address`](crate::Handle::local_address).
    pub local: Option<Address>,
    /// As returned by [`Handle::peer_address`](crate::Handle::peer_address).
    pub peer: Option<Address>,
}

/// What an endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointKind {
    /// A listener for streams.
    Listener,
    /// A connection that this listener accepted.
    Accepted {
        /// The listener, which may have ended.
        listener: Endpoint,
        /// How far it is.
        state: ConnectionState,
    },
    /// A connection that was started here.
    Outgoing {
        /// How far it is.
        state: ConnectionState,
    },
    /// A datagram socket.
    Datagrams,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConnectionState {
    /// It connects, or its handshake is not over, or it waits to reconnect.
    Opening,
    /// Both sides can send.
    Open,
    /// Its sending direction ends or has ended: [`Handle::finish`](crate::Handle::finish).
    Finishing,
    /// It is being closed.
    Closing,
}
