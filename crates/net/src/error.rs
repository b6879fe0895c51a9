//! Why an endpoint could not be created.

use std::convert::Infallible;
use std::io;

#[cfg(doc)]
use crate::handle::Handle;
#[cfg(doc)]
use crate::limits::Limits;
use crate::{Address, AddressError};

/// The scheme to write in place of one of HTTP.
fn of_websocket(address: &Address) -> &'static str {
    match address.scheme() {
        "http" => "; for a WebSocket write ws://",
        "https" => "; for a WebSocket write wss://",
        _ => "",
    }
}

/// Why a connection, listener or socket could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No transport has this scheme.
    #[error("no transport for the scheme of {address}; available: {known}{}", of_websocket(address))]
    Scheme {
        /// The requested address.
        address: Address,
        /// Every scheme that the node supports.
        known: String,
    },
    /// The node was dropped.
    #[error("the node is gone")]
    Gone,
    /// The node is shutting down, or has shut down: [`Handle::shutdown`].
    #[error("the node is shutting down")]
    ShuttingDown,
    /// The node has reached [`Limits::connections`].
    #[error("the limit of {0} connections is reached: Limits::connections")]
    TooMany(usize),
    /// The endpoint is no TLS listener of this node, or it was closed.
    #[cfg(feature = "tls")]
    #[error("the endpoint is no TLS listener of this node, or it was closed")]
    NoTlsListener,
    /// The operating system reported an error.
    #[error("{doing} {address}: {source}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The address it was attempted at.
        address: Address,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Error {
        match never {}
    }
}
