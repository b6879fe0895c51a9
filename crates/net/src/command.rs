//! Requests to the node's thread.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::lookup::LookupOwner;
use crate::new_endpoint::{NewConnection, PendingPeer};
use crate::slab::Key;

/// A request to the node's thread.
pub(crate) enum Command {
    Begin(Key, Box<NewConnection>),
    /// The result of a name lookup, and who waits for it.
    Found(Key, LookupOwner, io::Result<Vec<SocketAddr>>),
    Watch(Key),
    /// A datagram socket whose peer's name is being resolved.
    AwaitPeer(Key, Box<PendingPeer>),
    /// Close: write the queue first, within a time limit. The bytes are the payload of a closing
    /// frame.
    Close(Key, Vec<u8>),
    /// Finish: write the queue, then end the sending direction.
    Finish(Key),
    /// Pause (`true`) or resume (`false`) reading.
    Pause(Key, bool),
    /// Close everything, and cut what is left when this time has passed since then.
    Shutdown(Instant, Duration),
    /// A sender got an error of the operating system from this connection.
    SendFailed(Key, Arc<Connection>, io::Error),
}
