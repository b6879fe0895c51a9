//! Between processes of one machine.

use estafette_measure::Registry;
use estafette_measure::entry::bytes;

mod c_peer;
mod limit_ring;
mod pipe;
mod unix_stream;

pub use self::pipe::Pipe;
pub use self::unix_stream::UnixStream;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    registry
        .enrol(bytes(pipe::Pipe))
        .enrol(bytes(unix_stream::UnixStream))
        .enrol(bytes(limit_ring::LimitRing))
        .enrol(c_peer::pipe())
        .enrol(c_peer::unix_stream())
}
