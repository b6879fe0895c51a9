//! A session between two hosts: the consumers of each instance run on the other host, the producers
//! and brokers on this one.
//!
//! `frame` writes and reads packets over any byte stream, and `packet` has their types. `remote` is
//! the coordinator's side, with `session_state` for what its threads share, `remote_child` for a
//! child there and `remote_process` for its process. `peer` is the side that serves it; only it
//! uses the coordinator. `load` watches how busy its host is, and `clock_offset` estimates how far
//! its clock is ahead of this one's. This module knows neither TLS nor ssh: whoever opens a session brings its byte stream
//! as a [`SessionLink`], and has checked who is at its other end.
//!
//! The measured messages do not pass through the session. The ends connect to each other directly.

mod clock_offset;
mod frame;
mod load;
mod packet;
pub mod peer;
pub(crate) mod peer_record;
pub mod remote;
mod remote_child;
pub(crate) mod remote_process;
mod report;
mod session_state;

use std::fmt;
use std::io::{Read, Write};

pub use self::clock_offset::ClockError;
pub(crate) use self::clock_offset::Offset;
pub use self::load::HostLoad;
pub use self::packet::{Hello, refuse};
pub use self::remote::OtherHost;

/// The environment variable with the token of sessions. Children do not get it.
pub const TOKEN_VARIABLE: &str = "ESTAFETTE_TOKEN";

/// A connection to the other host, as two halves that two threads use at the same time.
pub struct SessionLink {
    /// Receives bytes. Blocks until there are some; 0 bytes are the end of the session.
    pub reader: Box<dyn Read + Send>,
    /// Sends bytes. Blocks while the other host does not receive.
    pub writer: Box<dyn Write + Send>,
    /// Closes the connection, so that a blocked read returns.
    pub close: Box<dyn FnOnce() + Send>,
}

impl fmt::Debug for SessionLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionLink")
    }
}

#[cfg(test)]
mod tests;
