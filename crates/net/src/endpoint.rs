//! What identifies an endpoint.

use std::fmt;
use std::net::SocketAddr;

use crate::slab::Key;

/// Identifies a connection, a listener, a datagram socket, or one peer of a shared datagram socket.
/// Identifiers are not reused, and those of two nodes differ.
///
/// It prints as the number of its node, its place there, and how many had that place before:
/// `0:3.1`. A peer of a shared socket follows in brackets: `0:3.1[192.0.2.1:4000]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    pub(crate) key: Key,
    /// The peer, if several peers share the socket.
    pub(crate) remote: Option<SocketAddr>,
}

impl Endpoint {
    pub(crate) fn new(key: Key) -> Endpoint {
        Endpoint { key, remote: None }
    }

    /// Returns the peer's address if several peers share the socket, as with a listening UDP
    /// socket. For all other endpoints see [`Handle::peer_address`](crate::Handle::peer_address).
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remote {
            Some(remote) => write!(f, "{}[{remote}]", self.key),
            None => write!(f, "{}", self.key),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}
