//! The round trip of a minimal packet: UDP, one at a time, with blocking sockets.
//!
//! A round trip is lost if no reply comes within a few times the median of those before. Then the
//! next packet is sent. A reply that comes after that is ignored, and the round trip stays lost.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::packets::{self, PACKET, PacketKind};

/// How long round trips are measured.
const LENGTH: Duration = Duration::from_millis(300);
/// The least number of round trips, in whatever time it takes.
const LEAST: u64 = 20;
/// The longest time for them.
const MAX_LENGTH: Duration = Duration::from_secs(15);
/// The highest number of round trips; their times are kept.
const MOST: u64 = 100_000;
/// After so many round trips without any reply, none is expected.
const GIVE_UP: u64 = 5;
/// How long the first reply may take.
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// The least time to wait for a reply: a busy host may take so long.
pub(crate) const MIN_TIMEOUT: Duration = Duration::from_millis(20);
/// Longer packets are no replies.
const LONGEST_REPLY: usize = 64;

/// The round trips of a link.
pub(super) struct RoundTrips {
    pub(super) fastest: Duration,
    pub(super) median: Duration,
    pub(super) count: u64,
    pub(super) lost: u64,
}

/// Measures round trips to a responder.
///
/// # Errors
/// When no reply comes at all.
pub(super) fn measure(responder: SocketAddr, key: u64) -> Result<RoundTrips> {
    let socket = connect(responder)?;
    let started = Instant::now();
    let (mut times, mut lost): (Vec<Duration>, u64) = (Vec::new(), 0);
    let (mut sequence, mut timeout) = (0, FIRST_TIMEOUT);
    while sequence < MOST && (started.elapsed() < LENGTH || sequence < LEAST) && started.elapsed() < MAX_LENGTH {
        if times.is_empty() && lost == GIVE_UP {
            break;
        }
        match round_trip(&socket, key, sequence, timeout)? {
            Some(time) => times.push(time),
            None => lost += 1,
        }
        sequence += 1;
        // The median changes little after some round trips.
        if times.len() <= LEAST as usize {
            timeout = timeout_after(&times);
        }
    }
    if times.is_empty() {
        bail!("no reply to {lost} UDP packets to {responder}: a firewall may drop them");
    }
    times.sort_unstable();
    Ok(RoundTrips { fastest: times[0], median: times[times.len() / 2], count: times.len() as u64, lost })
}

/// A UDP socket that is connected to the responder, from any port of any address of this host.
pub(crate) fn connect(responder: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = match responder {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).context("making a UDP socket")?;
    socket.connect(responder).with_context(|| format!("connecting a UDP socket to {responder}"))?;
    Ok(socket)
}

/// How long to wait for a reply after these round trips.
fn timeout_after(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).map_or(FIRST_TIMEOUT, |median| (*median * 4).clamp(MIN_TIMEOUT, FIRST_TIMEOUT * 4))
}

/// Makes one round trip. `None` if no reply came in time.
fn round_trip(socket: &UdpSocket, key: u64, sequence: u64, timeout: Duration) -> Result<Option<Duration>> {
    let mut packet = [0; PACKET];
    packets::write(&mut packet, key, PacketKind::Echo, sequence);
    let sent = Instant::now();
    let is_reply = |reply: &[u8]| packets::read(reply, key) == Some((PacketKind::Echo, sequence));
    exchange(socket, &packet, timeout, |reply| is_reply(reply).then(|| sent.elapsed()))
}

/// Sends a packet and waits for its reply: the first packet for which `accept` returns a value.
/// `None` if none came in time. Others are late replies or a stranger's packets.
///
/// # Errors
/// When the socket fails for good.
pub(crate) fn exchange<T>(
    socket: &UdpSocket,
    packet: &[u8],
    timeout: Duration,
    mut accept: impl FnMut(&[u8]) -> Option<T>,
) -> Result<Option<T>> {
    let sent = Instant::now();
    // An error that an earlier packet caused, such as an unreachable port, is a lost round trip.
    if socket.send(packet).is_err() {
        std::thread::sleep(MIN_TIMEOUT);
        return Ok(None);
    }
    let mut reply = [0; LONGEST_REPLY];
    loop {
        let left = timeout.saturating_sub(sent.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv(&mut reply) {
            Ok(len) => {
                if let Some(accepted) = accept(&reply[..len]) {
                    return Ok(Some(accepted));
                }
            }
            Err(error) if is_passing(&error) => {}
            // Nobody listens at that port.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                std::thread::sleep(MIN_TIMEOUT);
                return Ok(None);
            }
            Err(error) => return Err(error).context("receiving a UDP packet"),
        }
    }
}

/// Whether a receive may be tried again: it timed out or was interrupted.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
