//! Code that all stream sockets share.

use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendAncillaryBuffer, recv, send, sendmsg};
use socket2::{Domain, Protocol, Socket, Type};

use super::platform;
use super::{Link, Options, PeerCredentials, WriteInterest};
use crate::Address;
use crate::address::literal;

/// Creates a socket that is non-blocking and close-on-exec.
pub(super) fn socket(domain: Domain, kind: Type, protocol: Option<Protocol>, options: &Options) -> io::Result<Socket> {
    let socket = platform::new_socket(domain, kind, protocol)?;
    if let Some(device) = &options.device {
        platform::bind_device(&socket, device)
            .map_err(|error| io::Error::new(error.kind(), format!("the network device {device}: {error}")))?;
    }
    if let Some(bytes) = options.buffer {
        socket.set_send_buffer_size(bytes)?;
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

/// The socket address of an [`Address`] whose host has been resolved already.
pub(super) fn socket_address(address: &Address) -> io::Result<SocketAddr> {
    let (Some(host), Some(port)) = (address.host(), address.port()) else {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{address} has no host")));
    };
    match literal(host) {
        Some(ip) => Ok(SocketAddr::new(ip, port)),
        // An IPv6 address with a zone parses only together with its port.
        None => format!("[{host}]:{port}").parse().map(SocketAddr::V6).map_err(|_| {
            io::Error::new(
                ErrorKind::InvalidInput,
                format!("{host} is a host name, and this transport needs an IP address"),
            )
        }),
    }
}

/// A stream socket, connecting or connected.
pub(super) struct SocketLink {
    socket: OwnedFd,
    scheme: &'static str,
    /// It was accepted, and is therefore connected.
    accepted: bool,
}

impl SocketLink {
    /// A socket that is connecting.
    pub(super) fn connecting(socket: Socket, scheme: &'static str) -> SocketLink {
        SocketLink { socket: socket.into(), scheme, accepted: false }
    }

    /// A socket that was accepted.
    pub(super) fn accepted(socket: impl Into<OwnedFd>, scheme: &'static str) -> SocketLink {
        SocketLink { socket: socket.into(), scheme, accepted: true }
    }

    fn named(&self, address: io::Result<socket2::SockAddr>) -> Option<Address> {
        let address = address.ok()?;
        if let Some(address) = address.as_socket() {
            return format!("{}://{address}", self.scheme).parse().ok();
        }
        super::unix::named(self.scheme, &address)
    }
}

impl Link for SocketLink {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    #[inline]
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.socket, buffer, RecvFlags::empty())?.0)
    }

    #[inline]
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = match parts {
            [one] => send(&self.socket, one, platform::SEND),
            _ => sendmsg(&self.socket, parts, &mut SendAncillaryBuffer::default(), platform::SEND),
        };
        Ok(written?)
    }

    fn short_read_is_last(&self) -> bool {
        true
    }

    fn write_interest(&self) -> WriteInterest {
        match (self.scheme, self.accepted) {
            (super::unix::SCHEME, _) => WriteInterest::WhilePending,
            (_, true) => WriteInterest::AfterWouldBlock,
            (_, false) => WriteInterest::Always,
        }
    }

    fn connected(&self) -> io::Result<()> {
        if self.accepted {
            return Ok(());
        }
        let socket = socket2::SockRef::from(&self.socket);
        match socket.take_error()? {
            Some(error) => Err(error),
            // Writable without an error but not connected: still in progress.
            None => match socket.peer_addr() {
                Err(error) if error.kind() == ErrorKind::NotConnected => Err(ErrorKind::WouldBlock.into()),
                _ => Ok(()),
            },
        }
    }

    fn finish(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write)?)
    }

    fn peer(&self) -> Option<Address> {
        self.named(socket2::SockRef::from(&self.socket).peer_addr())
    }

    fn local(&self) -> Option<Address> {
        self.named(socket2::SockRef::from(&self.socket).local_addr())
    }

    fn peer_credentials(&self) -> Option<PeerCredentials> {
        if self.scheme == super::unix::SCHEME { platform::peer_credentials(&self.socket) } else { None }
    }
}

/// Treats `EINPROGRESS` as success: a non-blocking connect has started.
pub(super) fn begun(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => Ok(()),
        other => other,
    }
}
