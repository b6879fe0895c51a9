//! UDP: unicast, broadcast and multicast. Listening at the address of a group joins it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, recvfrom, send, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use super::socket::{socket, socket_address};
use super::{Datagrams, Listening, Opened, Options, Transport};
use crate::Address;

/// The longest datagram: 65,535 bytes less the headers of IP and UDP.
const MOST: usize = 65_507;

pub(crate) struct Udp;

impl Transport for Udp {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let to = socket_address(address)?;
        let socket = new(to, options)?;
        if let Some(source) = options.source {
            socket.bind(&source.into())?;
        }
        // Many may answer to what was sent to a group or to all, and none of them from that address.
        let many = to.ip().is_multicast() || options.broadcast;
        if !many {
            socket.connect(&to.into())?;
        }
        Ok(Opened::Datagrams(Box::new(UdpSocket { socket, to: many.then_some(to), names_sender: many })))
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let at = socket_address(address)?;
        let socket = new(at, options)?;
        if at.ip().is_multicast() {
            // Every process of a machine that joins hears what is sent to the group.
            socket.set_reuse_address(true)?;
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
        Ok(Listening::Datagrams(Box::new(UdpSocket { socket, to: None, names_sender: true })))
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
    /// Where datagrams go that are not an answer to somebody; of a socket that is not connected.
    to: Option<SocketAddr>,
    names_sender: bool,
}

impl Datagrams for UdpSocket {
    fn source(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    #[inline]
    fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Option<SocketAddr>)> {
        let (len, _, from) = recvfrom(&self.socket, buffer, RecvFlags::empty())?;
        if !self.names_sender {
            return Ok((len, None));
        }
        match from.map(SocketAddr::try_from) {
            Some(Ok(from)) => Ok((len, Some(from))),
            _ => Err(io::Error::new(ErrorKind::InvalidData, "a datagram from nowhere")),
        }
    }

    #[inline]
    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()> {
        match to.or(self.to) {
            Some(to) => sendto(&self.socket, datagram, SendFlags::NOSIGNAL, &SocketAddrAny::from(to))?,
            None => send(&self.socket, datagram, SendFlags::NOSIGNAL)?,
        };
        Ok(())
    }

    fn most(&self) -> usize {
        MOST
    }

    fn local(&self) -> Option<Address> {
        format!("udp://{}", self.socket.local_addr().ok()?.as_socket()?).parse().ok()
    }
}
