//! UDP: unicast, broadcast and multicast. Listening at a group's address joins the group.
//!
//! Linux accepts a run of datagrams of one length in one call, and carries it as one packet as far
//! as possible (`UDP_SEGMENT`, generic segmentation offload). With `UDP_GRO` it returns a run of
//! one sender in one call. See `udp(7)`. Such a receive call takes longer, so it is used only once
//! datagrams have queued up.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use nix::errno::Errno;
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, SocketAddrAny, recv, recvfrom, send, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use super::platform;
use super::socket::{socket, socket_address};
use super::{Datagrams, Listening, Opened, Options, Received, Transport};
use crate::Address;

/// The longest datagram: 65,535 bytes less the headers of IP and UDP.
const MAX_DATAGRAM: usize = 65_507;
/// The most datagrams that Linux accepts in one call.
const MAX_RUN: usize = 64;
/// How many datagrams are received between two checks whether more are waiting.
const CHECK_INTERVAL: u32 = 64;

pub(crate) struct Udp;

impl Transport for Udp {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let to = socket_address(address)?;
        let socket = new(to, options)?;
        if let Some(source) = options.source {
            socket.bind(&source.into())?;
        }
        // Many peers may reply to a multicast or broadcast datagram, each from its own address. So
        // the socket stays unconnected.
        let many = to.ip().is_multicast() || options.broadcast;
        if !many {
            socket.connect(&to.into())?;
        }
        Ok(Opened::Datagrams(Box::new(UdpSocket::new(socket, many.then_some(to), many))))
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let at = socket_address(address)?;
        let socket = new(at, options)?;
        if at.ip().is_multicast() {
            // Every process on this machine that joins the group receives its datagrams.
            socket.set_reuse_address(true)?;
        }
        if options.reuse_port {
            socket.set_reuse_port(true)?;
        }
        socket.bind(&at.into())?;
        match at.ip() {
            IpAddr::V4(group) if group.is_multicast() => {
                socket.join_multicast_v4(&group, &options.interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
            }
            IpAddr::V6(group) if group.is_multicast() => {
                let SocketAddr::V6(at) = at else { unreachable!("its address is of version 6") };
                socket.join_multicast_v6(&group, at.scope_id())?;
            }
            _ => {}
        }
        Ok(Listening::Datagrams(Box::new(UdpSocket::new(socket, None, true))))
    }
}

fn new(address: SocketAddr, options: &Options) -> io::Result<Socket> {
    let socket = socket(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP), options)?;
    if options.broadcast {
        socket.set_broadcast(true)?;
    }
    if let (true, Some(interface)) = (address.is_ipv4(), &options.interface) {
        socket.set_multicast_if_v4(interface)?;
    }
    Ok(socket)
}

struct UdpSocket {
    socket: Socket,
    /// The default destination of an unconnected socket, for datagrams that are not a reply.
    to: Option<SocketAddr>,
    names_sender: bool,
    /// The shortest length whose run the kernel rejected. Datagrams of this length and above are
    /// sent one by one.
    alone_from: AtomicUsize,
    /// Whether runs are received (`UDP_GRO`). Never switched off, because runs that wait already
    /// would arrive as one long datagram each.
    runs: AtomicBool,
    /// How many datagrams were received since the last check whether more are waiting.
    received: AtomicU32,
}

impl UdpSocket {
    fn new(socket: Socket, to: Option<SocketAddr>, names_sender: bool) -> UdpSocket {
        UdpSocket {
            socket,
            to,
            names_sender,
            alone_from: AtomicUsize::new(usize::MAX),
            runs: AtomicBool::new(false),
            received: AtomicU32::new(0),
        }
    }

    /// Receives one datagram.
    #[inline]
    fn receive_one(&self, buffer: &mut [u8]) -> io::Result<Received> {
        let (len, from) = if self.names_sender {
            let (len, _, from) = recvfrom(&self.socket, buffer, RecvFlags::empty())?;
            (len, Some(from.and_then(|from| SocketAddr::try_from(from).ok()).ok_or_else(no_sender)?))
        } else {
            (recv(&self.socket, buffer, RecvFlags::empty())?.0, None)
        };
        let before = self.received.load(Ordering::Relaxed);
        self.received.store((before + 1) % CHECK_INTERVAL, Ordering::Relaxed);
        if before + 1 == CHECK_INTERVAL && ioctl_fionread(&self.socket).is_ok_and(|waits| waits > 0) {
            // An older kernel does not know the option: continue one by one.
            self.runs.store(platform::enable_runs(&self.socket), Ordering::Relaxed);
        }
        Ok(Received { len, each: 0, from })
    }
}

impl Datagrams for UdpSocket {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        if !self.runs.load(Ordering::Relaxed) {
            return self.receive_one(buffer);
        }
        let got = platform::receive_run(&self.socket, buffer)?;
        let from = match (self.names_sender, got.from) {
            (false, _) => None,
            (true, Some(from)) => Some(from),
            (true, None) => return Err(no_sender()),
        };
        Ok(Received { len: got.len, each: got.each.unwrap_or(0), from })
    }

    #[inline]
    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()> {
        match to.or(self.to) {
            Some(to) => sendto(&self.socket, datagram, platform::SEND, &SocketAddrAny::from(to))?,
            None => send(&self.socket, datagram, platform::SEND)?,
        };
        Ok(())
    }

    fn send_run(&self, datagrams: &[u8], each: usize, to: Option<SocketAddr>) -> io::Result<usize> {
        let first = each.min(datagrams.len());
        let run = datagrams.len().min(MAX_RUN.min(MAX_DATAGRAM / each.max(1)) * each);
        if run > first && each < self.alone_from.load(Ordering::Relaxed) {
            match platform::send_run(&self.socket, &datagrams[..run], each as u16, to.or(self.to)) {
                // The datagrams exceed the MTU, and IP would have to fragment them. Or the peer's
                // address is invalid, and then the first datagram alone fails too.
                Err(Errno::EINVAL | Errno::EMSGSIZE) => {
                    self.send(&datagrams[..first], to)?;
                    self.alone_from.fetch_min(each, Ordering::Relaxed);
                    return Ok(first);
                }
                // The device does not support it.
                Err(Errno::EIO | Errno::EOPNOTSUPP) => {
                    self.alone_from.store(0, Ordering::Relaxed);
                }
                other => return Ok(other?),
            }
        }
        self.send(&datagrams[..first], to).map(|()| first)
    }

    fn writable_on_request(&self) -> bool {
        true
    }

    fn max_len(&self) -> usize {
        MAX_DATAGRAM
    }

    fn local(&self) -> Option<Address> {
        format!("udp://{}", self.socket.local_addr().ok()?.as_socket()?).parse().ok()
    }
}

fn no_sender() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a datagram without a sender address")
}
