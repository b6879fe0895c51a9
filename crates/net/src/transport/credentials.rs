//! Who is at the other end of a UNIX socket.

/// The process at the other end of a UNIX socket, as the kernel recorded it:
/// [`Handle::peer_credentials`](crate::Handle::peer_credentials).
///
/// Of a client they are those of the moment when it connected, of a server those of the moment when
/// it began to listen. A process may have passed its socket on since, and its number may have been
/// given to another process. So decide by user and group; the process number is for messages to
/// people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCredentials {
    /// Its process number. `None` if this process cannot see it, as from a container.
    pub pid: Option<u32>,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}
