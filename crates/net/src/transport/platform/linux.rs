//! Linux.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, sendmsg, setsockopt, sockopt,
};
use rustix::fs::{Mode, fchmod};
use rustix::net::{SendFlags, SocketFlags, accept_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::super::credentials::PeerCredentials;

/// The flags of each send: a peer that is gone is an error, and not a signal.
pub(crate) const SEND: SendFlags = SendFlags::NOSIGNAL;

/// Creates a socket that is non-blocking and close-on-exec.
pub(crate) fn new_socket(domain: Domain, kind: Type, protocol: Option<Protocol>) -> io::Result<Socket> {
    Socket::new(domain, kind.nonblocking().cloexec(), protocol)
}

/// Accepts the next connection; its socket is non-blocking and close-on-exec.
pub(crate) fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
}

/// Binds to one network device.
pub(crate) fn bind_device(socket: &Socket, name: &str) -> io::Result<()> {
    socket.bind_device(Some(name.as_bytes()))
}

/// Sets how long sent data may remain unacknowledged.
pub(crate) fn set_user_timeout(socket: &Socket, time: Duration) -> io::Result<()> {
    socket.set_tcp_user_timeout(Some(time))
}

/// Has a connection within this machine not paced. Does nothing if the system's congestion control
/// does not pace.
///
/// BBR sends at a rate that it estimates, with a timer for each packet of 64 KiB. Between hosts
/// that keeps queues short. Within a machine there is no queue, and a stream takes two to five
/// times as long (docs/rationale/net.md). Every Linux has Reno and lets every process choose it. It
/// has no pace, and without loss it does nothing.
pub(crate) fn avoid_pacing(socket: &impl AsFd) {
    let socket = SockRef::from(socket);
    if socket.tcp_congestion().is_ok_and(|name| name.starts_with(b"bbr")) {
        // Paced if it fails.
        let _ = socket.set_tcp_congestion(b"reno");
    }
}

/// The address of an abstract UNIX socket: its name starts with a zero byte.
pub(crate) fn abstract_address(name: &str) -> io::Result<socket2::SockAddr> {
    socket2::SockAddr::unix(format!("\0{name}"))
}

/// Makes `bind` create the file of a UNIX socket with no more than these permissions.
pub(crate) fn limit_permissions(socket: &Socket, mode: u32) -> io::Result<()> {
    Ok(fchmod(socket, Mode::from_raw_mode(mode))?)
}

/// The process at the other end of a UNIX socket.
pub(crate) fn peer_credentials(socket: impl AsFd) -> Option<PeerCredentials> {
    let found = getsockopt(&socket.as_fd(), sockopt::PeerCredentials).ok()?;
    let pid = u32::try_from(found.pid()).ok().filter(|pid| *pid > 0);
    Some(PeerCredentials { pid, uid: found.uid(), gid: found.gid() })
}

/// Whether runs of datagrams are received from now on (`UDP_GRO`). An older kernel does not know
/// them.
pub(crate) fn enable_runs(socket: &Socket) -> bool {
    setsockopt(socket, sockopt::UdpGroSegment, &true).is_ok()
}

/// The control message buffer of a received run. It contains the length of each datagram.
#[repr(align(8))]
struct Control([u8; 64]);

/// A received run of datagrams of one sender.
pub(crate) struct ReceivedRun {
    pub(crate) len: usize,
    /// The length of each datagram, if there are several.
    pub(crate) each: Option<usize>,
    pub(crate) from: Option<SocketAddr>,
}

/// Receives a run of datagrams, or one.
pub(crate) fn receive_run(socket: &Socket, buffer: &mut [u8]) -> io::Result<ReceivedRun> {
    let mut control = Control([0; _]);
    let mut parts = [IoSliceMut::new(buffer)];
    let got = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut parts, Some(&mut control.0), MsgFlags::empty())?;
    let each = got.cmsgs().ok().into_iter().flatten().find_map(|message| match message {
        ControlMessageOwned::UdpGroSegments(each) => usize::try_from(each).ok(),
        _ => None,
    });
    Ok(ReceivedRun { len: got.bytes, each, from: got.address.as_ref().and_then(named) })
}

fn named(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::V6((*v6).into())))
}

/// Sends a run of datagrams of this length (`UDP_SEGMENT`); the last may be shorter.
pub(crate) fn send_run(socket: &Socket, run: &[u8], each: u16, to: Option<SocketAddr>) -> Result<usize, Errno> {
    let to = to.map(SockaddrStorage::from);
    let lengths = [ControlMessage::UdpGsoSegments(&each)];
    sendmsg(socket.as_raw_fd(), &[IoSlice::new(run)], &lengths, MsgFlags::MSG_NOSIGNAL, to.as_ref())
}
