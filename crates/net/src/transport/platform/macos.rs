//! macOS. It compiles, and its tests have not been run: see the crate's documentation.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use rustix::net::SendFlags;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::super::credentials::PeerCredentials;

/// The flags of each send. A peer that is gone is an error, and not a signal: `socket2` sets
/// `SO_NOSIGPIPE` at each socket it creates or accepts.
pub(crate) const SEND: SendFlags = SendFlags::empty();

fn unsupported(what: &str) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, format!("macOS has no {what}"))
}

/// Creates a socket that is non-blocking and close-on-exec.
pub(crate) fn new_socket(domain: Domain, kind: Type, protocol: Option<Protocol>) -> io::Result<Socket> {
    let socket = Socket::new(domain, kind, protocol)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Accepts the next connection; its socket is non-blocking and close-on-exec.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    let (socket, _) = SockRef::from(&listener).accept()?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Has a connection within this machine not paced. macOS paces none.
pub(crate) fn avoid_pacing(_: &impl AsFd) {}

/// Binds to one network device.
pub(crate) fn bind_device(_: &Socket, _: &str) -> io::Result<()> {
    Err(unsupported("SO_BINDTODEVICE: leave Options::device unset, or use Options::source"))
}

/// Sets how long sent data may remain unacknowledged.
pub(crate) fn set_user_timeout(_: &Socket, _: Duration) -> io::Result<()> {
    Err(unsupported("TCP_USER_TIMEOUT: leave Options::user_timeout unset"))
}

/// The address of an abstract UNIX socket.
pub(crate) fn abstract_address(_: &str) -> io::Result<socket2::SockAddr> {
    Err(unsupported("abstract UNIX sockets: use a path"))
}

/// Makes `bind` create the file of a UNIX socket with no more than these permissions. macOS cannot:
/// the file may have more until the socket listens, and until then connecting is refused.
pub(crate) fn limit_permissions(_: &Socket, _: u32) -> io::Result<()> {
    Ok(())
}

/// The process at the other end of a UNIX socket.
pub(crate) fn peer_credentials(socket: impl AsFd) -> Option<PeerCredentials> {
    let found = getsockopt(&socket.as_fd(), sockopt::LocalPeerCred).ok()?;
    let pid = getsockopt(&socket.as_fd(), sockopt::LocalPeerPid).ok().and_then(|pid| u32::try_from(pid).ok());
    Some(PeerCredentials { pid: pid.filter(|pid| *pid > 0), uid: found.uid(), gid: *found.groups().first()? })
}

/// Whether runs of datagrams are received from now on.
pub(crate) fn enable_runs(_: &Socket) -> bool {
    false
}

/// A received run of datagrams of one sender.
pub(crate) struct ReceivedRun {
    pub(crate) len: usize,
    /// The length of each datagram, if there are several.
    pub(crate) each: Option<usize>,
    pub(crate) from: Option<SocketAddr>,
}

/// Receives a run of datagrams. Never called, because there are none.
pub(crate) fn receive_run(_: &Socket, _: &mut [u8]) -> io::Result<ReceivedRun> {
    Err(unsupported("runs of datagrams"))
}

/// Sends a run of datagrams. The caller sends them one by one instead.
pub(crate) fn send_run(_: &Socket, _: &[u8], _: u16, _: Option<SocketAddr>) -> Result<usize, Errno> {
    Err(Errno::EOPNOTSUPP)
}
