//! UDP datagrams, blocking. Datagrams that do not fit into the receiver's buffer are
//! lost, and the losses are counted.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use estafette_contest_common::packets::{PacketRx, PacketSocket, PacketTx};
use estafette_measure::case::{Case, Pattern, Place, Role};
use estafette_measure::spec::{Loss, Ordering};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// The longest datagram: 65,535 bytes minus the IP and UDP headers.
pub(super) const MAX_DATAGRAM: usize = 65_507;
/// Bounds of the requested receive buffer in bytes: the usual default, and 64 MiB.
const MIN_BUFFER: usize = 212_992;
const MAX_BUFFER: usize = 64 << 20;
/// How long a receiver waits for a message that may have been lost on one host.
const RECV_TIMEOUT: Duration = Duration::from_millis(20);
/// The same between two hosts. It is longer than a round trip between two continents, which takes
/// about 300 ms.
const RECV_TIMEOUT_BETWEEN_HOSTS: Duration = Duration::from_millis(500);

/// `network/udp`.
#[derive(Debug)]
pub struct Udp;

impl Mechanism for Udp {
    fn spec(&self) -> Spec {
        Spec::new("network/udp")
            .implementation("UDP, connected, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::SameThread])
            .max_message(MAX_DATAGRAM)
            .max_producers(None)
            .ordering(Ordering::Unordered)
            .loss(Loss::BestEffort)
            .between_hosts(true)
    }
}

impl Transport<Raw> for Udp {
    type Tx = PacketTx<Socket>;
    type Rx = PacketRx<Socket>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let [to, from] = connect_pair(case, role, rendezvous)?;
        let len = case.payload.len();
        Ok(Ends::both(role, PacketTx::new(Socket(to), len), PacketRx::new(Socket(from), len)))
    }
}

/// Returns the sockets that a party sends to and receives from. They are the same socket, connected
/// to the other party's if this party sends. If one party runs all roles, they are two sockets.
/// Receives time out after [`recv_timeout`].
pub(super) fn connect_pair(case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<[UdpSocket; 2]> {
    let socket = bind_socket(case, rendezvous.address())?;
    if role == Role::All {
        let other = bind_socket(case, rendezvous.address())?;
        socket.connect(other.local_addr()?).context("connecting to a socket of this process")?;
        return Ok([socket, other]);
    }
    let (our_name, their_name) =
        if let Role::Consumer(_) = role { ("consumer", "producer") } else { ("producer", "consumer") };
    // A consumer receives from any sender, so it need not connect. A reply needs the sender's
    // address.
    let has_reply = case.pattern.is_bidirectional();
    if has_reply || our_name == "consumer" {
        rendezvous.publish(our_name, &socket.local_addr()?.to_string())?;
    }
    if has_reply || our_name == "producer" {
        let address = rendezvous.request(their_name)?;
        socket.connect(&address).with_context(|| format!("connecting to {address}"))?;
    }
    Ok([socket.try_clone()?, socket])
}

/// Returns how long a receiver waits for a message that may have been lost.
pub(super) fn recv_timeout(case: &Case) -> Duration {
    if case.place == Place::OtherHost { RECV_TIMEOUT_BETWEEN_HOSTS } else { RECV_TIMEOUT }
}

/// Returns the size of the receive buffer in bytes: the requested capacity. The kernel grants up to
/// `net.core.rmem_max`.
pub(super) fn buffer(case: &Case) -> usize {
    case.capacity.saturating_mul(case.payload.len()).clamp(MIN_BUFFER, MAX_BUFFER)
}

fn bind_socket(case: &Case, address: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).with_context(|| format!("binding to {address}"))?;
    socket.set_read_timeout(Some(recv_timeout(case)))?;
    set_socket_recv_buffer_size(&socket, buffer(case)).context("setting the receive buffer's size")?;
    Ok(socket)
}

/// A connected socket.
#[derive(Debug)]
pub struct Socket(UdpSocket);

impl PacketSocket for Socket {
    fn send_packet(&mut self, packet: &[u8]) -> io::Result<()> {
        self.0.send(packet).map(drop)
    }

    fn recv_packet(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.recv(buffer) {
                // With a receive timeout, a receive also ends this way after the process was
                // stopped.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }
}
