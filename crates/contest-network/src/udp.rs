//! UDP datagrams on loopback, blocking. Datagrams that do not fit into the receiver's buffer are
//! lost, and the losses are counted.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use estafette_contest_common::packets::{PacketRx, PacketSocket, PacketTx};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering};
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// The longest datagram: 65,535 bytes minus the IP and UDP headers.
pub(super) const MAX_DATAGRAM: usize = 65_507;
/// Bounds of the requested receive buffer in bytes: the usual default, and 64 MiB.
const MIN_BUFFER: usize = 212_992;
const MAX_BUFFER: usize = 64 << 20;
/// How long a receiver waits for a message that may have been lost.
pub(super) const RECV_TIMEOUT: Duration = Duration::from_millis(20);

/// `network/udp`.
#[derive(Debug)]
pub struct Udp;

impl Mechanism for Udp {
    fn spec(&self) -> Spec {
        Spec::new("network/udp")
            .implementation("UDP on 127.0.0.1, connected, send and recv")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::FanIn, Pattern::SameThread])
            .max_message(MAX_DATAGRAM)
            .max_producers(None)
            .ordering(Ordering::Unordered)
            .loss(Loss::BestEffort)
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
/// to the other party's if this party sends. If one party plays all roles, they are two sockets.
/// Receives time out after [`RECV_TIMEOUT`].
pub(super) fn connect_pair(case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<[UdpSocket; 2]> {
    let socket = bind_socket(case)?;
    if role == Role::All {
        let other = bind_socket(case)?;
        socket.connect(other.local_addr()?).context("connecting to 127.0.0.1")?;
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

/// Returns the size of the receive buffer in bytes: the requested capacity. The kernel grants up to
/// `net.core.rmem_max`.
pub(super) fn buffer(case: &Case) -> usize {
    case.capacity.saturating_mul(case.payload.len()).clamp(MIN_BUFFER, MAX_BUFFER)
}

fn bind_socket(case: &Case) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("binding to 127.0.0.1")?;
    socket.set_read_timeout(Some(RECV_TIMEOUT))?;
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
