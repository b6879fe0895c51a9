//! UDP datagrams on loopback, blocking. What the receiver's buffer cannot hold is lost, and counted.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Loss, Ordering};
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// The longest datagram: 65,535 bytes less the IP and UDP headers.
pub(super) const MAX_DATAGRAM: usize = 65_507;
/// Bounds of the receive buffer that is asked for: the usual default, and 64 MiB.
const LEAST_BUFFER: usize = 212_992;
const MOST_BUFFER: usize = 64 << 20;
/// How long a receiver waits for a message that may have been lost.
pub(super) const PATIENCE: Duration = Duration::from_millis(20);

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
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let [to, from] = joined(case, role, rendezvous)?;
        let len = case.payload.len();
        let tx = Sending { socket: to, buffer: Buffer::new(len) };
        // One byte more than a message has, so that a longer datagram does not pass for a right one.
        let rx = Receiving { socket: from, buffer: Buffer::new(len + 1) };
        Ok(Ends::both(role, tx, rx))
    }
}

/// What a party sends by, and what it receives from: one socket on loopback for both, connected to the other's where it sends;
/// where it plays all, both. They wait for [`PATIENCE`].
pub(super) fn joined(case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<[UdpSocket; 2]> {
    let socket = bound(case)?;
    if role == Role::All {
        let other = bound(case)?;
        socket.connect(other.local_addr()?).context("connecting to 127.0.0.1")?;
        return Ok([socket, other]);
    }
    let (mine, theirs) = if let Role::Consumer(_) = role { ("consumer", "producer") } else { ("producer", "consumer") };
    // A consumer of several producers, or of one, hears whoever sends; an answer needs an address.
    let answers = case.pattern.both_ways();
    if answers || mine == "consumer" {
        rendezvous.publish(mine, &socket.local_addr()?.to_string())?;
    }
    if answers || mine == "producer" {
        let address = rendezvous.request(theirs)?;
        socket.connect(&address).with_context(|| format!("connecting to {address}"))?;
    }
    Ok([socket.try_clone()?, socket])
}

/// The receive buffer: as many messages as the case lets be under way; the kernel gives what `net.core.rmem_max` allows.
pub(super) fn buffer(case: &Case) -> usize {
    case.capacity.saturating_mul(case.payload.len()).clamp(LEAST_BUFFER, MOST_BUFFER)
}

fn bound(case: &Case) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("binding to 127.0.0.1")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    set_socket_recv_buffer_size(&socket, buffer(case)).context("the receive buffer")?;
    Ok(socket)
}

#[derive(Debug)]
/// The sending end.
pub struct Sending {
    socket: UdpSocket,
    buffer: Buffer,
}

impl Tx for Sending {
    async fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.socket.send(&self.buffer).map(drop)
    }
}

#[derive(Debug)]
/// The receiving end.
pub struct Receiving {
    socket: UdpSocket,
    buffer: Buffer,
}

impl Rx for Receiving {
    async fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            match self.socket.recv(&mut self.buffer) {
                // With a time-out, a receive ends so where the process was stopped meanwhile.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => {
                    verifier.bytes(&self.buffer[..received?]);
                    return Ok(());
                }
            }
        }
    }
}
