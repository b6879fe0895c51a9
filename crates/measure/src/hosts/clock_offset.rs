//! The clock of the other host, compared with the clock of this one.
//!
//! The peer answers UDP packets with its time. A reply with the time `t`, to a packet sent at `a`
//! and received at `b` by this host's clock, was written between `a` and `b`. So the offset of the
//! peer's clock is between `t - b` and `t - a`. The intersection of these intervals over some
//! packets contains the offset; its middle is the estimate, and half its length is the largest
//! possible error. Nothing is assumed about how a round trip divides between its two ways. See F.
//! Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989), and K.
//! Marzullo, S. Owicki, "Maintaining the time in a distributed system", Operating Systems Review 19
//! (1985).
//!
//! Clocks also drift: two clocks without NTP by some 10 us in a second. So the offset is estimated
//! before and after each instance that compares times of both hosts. See [`ClockError`].

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};

use crate::clock::now_ns;
use crate::limits::link::{FIRST_TIMEOUT, MIN_TIMEOUT, connect, exchange};

/// The length of a packet in bytes: the key, a sequence number and a time. A request has the time
/// 0.
const PACKET: usize = 24;
/// Times from here on are not possible: a host would have run for 146 years.
const MAX_TIME: u64 = 1 << 62;
/// Errors from here on are not possible. Many readers of JSON know no larger whole numbers.
const MAX_ERROR: u64 = 1 << 53;
/// How long packets are exchanged.
const LENGTH: Duration = Duration::from_millis(20);
/// How long they are exchanged if the error stays above twice that of earlier estimates.
const PATIENCE: Duration = Duration::from_millis(200);
/// The least number of replies, in whatever time they take.
const LEAST: u32 = 8;
/// The longest time for them.
const MAX_LENGTH: Duration = Duration::from_secs(3);

/// Where a [`ClockServer`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClockPort {
    /// The UDP port.
    pub(super) port: u16,
    /// Packets without this key are ignored.
    pub(super) key: u64,
}

/// How wrong the times of an instance may be that were measured from one host to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClockError {
    /// Every time of the instance may be too long or too short by this many nanoseconds.
    pub max_ns: u64,
    /// By how many nanoseconds the other clock gained on this one during the instance. Half of it
    /// has been subtracted from the times.
    pub drift_ns: i64,
}

impl ClockError {
    /// The error of times that were measured between two estimates, with the first of them.
    pub(crate) fn between(before: Offset, after: Offset) -> ClockError {
        let drift_ns = after.ns - before.ns;
        ClockError { max_ns: before.error_ns.max(after.error_ns) + drift_ns.unsigned_abs() / 2, drift_ns }
    }

    /// Whether the numbers are possible in a record.
    pub(crate) fn is_possible(self) -> bool {
        self.max_ns < MAX_ERROR && self.drift_ns.unsigned_abs() < MAX_ERROR
    }

    /// A time that was measured with the first estimate, with the correction for the drift.
    pub(crate) fn corrected(self, ns: u64) -> u64 {
        ns.saturating_add_signed(-self.drift_ns / 2)
    }
}

/// By how much the other host's clock is ahead of this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    /// The estimate, in nanoseconds.
    pub(crate) ns: i64,
    /// The largest possible error of the estimate, in nanoseconds.
    pub(crate) error_ns: u64,
}

/// The interval that contains the offset, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct OffsetRange {
    least: i64,
    most: i64,
}

impl OffsetRange {
    const EVERYTHING: OffsetRange = OffsetRange { least: i64::MIN, most: i64::MAX };

    /// The part of the interval in which the offset can be after this reply. All times are below
    /// [`MAX_TIME`].
    fn after_reply(self, sent_ns: u64, theirs_ns: u64, received_ns: u64) -> OffsetRange {
        let since = |ours_ns: u64| theirs_ns as i64 - ours_ns as i64;
        OffsetRange { least: self.least.max(since(received_ns)), most: self.most.min(since(sent_ns)) }
    }

    /// # Errors
    /// When no offset explains all replies.
    fn offset(self) -> Result<Offset> {
        ensure!(
            self.least <= self.most,
            "the clock of the other host is not steady: its replies contradict each other"
        );
        let length = self.length();
        Ok(Offset { ns: self.least + (length / 2) as i64, error_ns: length.div_ceil(2) })
    }

    fn length(self) -> u64 {
        self.most.abs_diff(self.least)
    }
}

/// The peer's side: answers with this host's time, in a thread that sleeps until a packet arrives.
/// It ends when this is dropped.
#[derive(Debug)]
pub(super) struct ClockServer {
    port: ClockPort,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl ClockServer {
    /// Listens at any free UDP port of an address of this host, with a new key.
    ///
    /// # Errors
    /// When the address is not one of this host.
    pub(super) fn start(address: IpAddr) -> Result<ClockServer> {
        let socket = UdpSocket::bind((address, 0)).with_context(|| format!("binding a UDP socket to {address}"))?;
        socket.set_nonblocking(true)?;
        let port = ClockPort { port: socket.local_addr()?.port(), key: fastrand::u64(..) };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("making an eventfd")?;
        let of_thread = stop.try_clone().context("making an eventfd")?;
        let serve = move || serve(&socket, port.key, &of_thread);
        let thread = thread::Builder::new().spawn(serve).context("starting a thread")?;
        Ok(ClockServer { port, stop, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> ClockPort {
        self.port
    }
}

impl Drop for ClockServer {
    fn drop(&mut self) {
        // An eventfd that was never written takes it.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers packets until `stop` is readable.
fn serve(socket: &UdpSocket, key: u64, stop: &OwnedFd) {
    let mut packet = [0; PACKET + 1];
    loop {
        let mut polled = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        if !polled[1].revents().is_empty() {
            return;
        }
        // Errors are reports that an earlier reply was not delivered.
        let Ok((PACKET, from)) = socket.recv_from(&mut packet) else { continue };
        let now = now_ns();
        if let Some((sequence, _)) = read(&packet[..PACKET], key) {
            // If it cannot be sent, it is a lost packet.
            let _ = socket.send_to(&write(key, sequence, now), from);
        }
    }
}

fn write(key: u64, sequence: u64, time_ns: u64) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    for (place, number) in packet.chunks_exact_mut(8).zip([key, sequence, time_ns]) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    packet
}

/// The sequence number and the time of a packet. `None` if it is no packet with this key.
fn read(packet: &[u8], key: u64) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    (packet.len() == PACKET && number(0)? == key).then_some((number(8)?, number(16)?))
}

/// The coordinator's side: asks a [`ClockServer`] for its time.
#[derive(Debug)]
pub(super) struct ClockProbe {
    socket: UdpSocket,
    key: u64,
    sequence: u64,
    /// How long the first reply may take.
    first_timeout: Duration,
    /// The error of a good estimate: the smallest so far, which grows by a tenth with each that is
    /// larger.
    good_error_ns: u64,
}

impl ClockProbe {
    /// A probe of the server at this port of `host`, to which a round trip takes about so long.
    ///
    /// # Errors
    /// When this host has no address from which to reach it.
    pub(super) fn connect(host: IpAddr, port: ClockPort, round_trip: Duration) -> Result<ClockProbe> {
        let socket = connect(SocketAddr::new(host, port.port))?;
        let first_timeout = FIRST_TIMEOUT.max(2 * round_trip);
        Ok(ClockProbe { socket, key: port.key, sequence: 0, first_timeout, good_error_ns: u64::MAX / 4 })
    }

    /// Estimates the offset. Blocks for 20 ms, for up to 200 ms if a host is disturbed, or for
    /// eight round trips if these take longer, but not for more than about 3 s; twice as long if
    /// replies contradict each other. `None` if it is cancelled.
    ///
    /// # Errors
    /// When no reply comes at all, or replies contradict each other twice.
    pub(super) fn estimate(&mut self, mut is_cancelled: impl FnMut() -> bool) -> Result<Option<Offset>> {
        let Some(interval) = self.sample(&mut is_cancelled)? else { return Ok(None) };
        // NTP may just have made one of the clocks faster or slower.
        let interval = match interval.offset() {
            Ok(_) => Some(interval),
            Err(_) => self.sample(&mut is_cancelled)?,
        };
        let Some(offset) = interval.map(OffsetRange::offset).transpose()? else { return Ok(None) };
        self.good_error_ns = offset.error_ns.min(self.good_error_ns + self.good_error_ns / 10);
        Ok(Some(offset))
    }

    /// Exchanges packets. `None` if it is cancelled.
    fn sample(&mut self, is_cancelled: &mut impl FnMut() -> bool) -> Result<Option<OffsetRange>> {
        let (mut interval, mut replies, mut fastest) = (OffsetRange::EVERYTHING, 0, self.first_timeout / 4);
        let (started, good_ns) = (Instant::now(), 2 * self.good_error_ns);
        let is_enough = |replies: u32, interval: OffsetRange, elapsed: Duration| {
            let is_good = interval.length() / 2 <= good_ns;
            elapsed >= MAX_LENGTH || replies >= LEAST && elapsed >= if is_good { LENGTH } else { PATIENCE }
        };
        while !is_enough(replies, interval, started.elapsed()) {
            if is_cancelled() {
                return Ok(None);
            }
            let timeout = (fastest * 4).max(MIN_TIMEOUT);
            let Some(reply) = self.ask(timeout)? else { continue };
            interval = interval.after_reply(reply.sent_ns, reply.theirs_ns, reply.received_ns);
            fastest = fastest.min(Duration::from_nanos(reply.received_ns - reply.sent_ns));
            replies += 1;
        }
        if replies == 0 {
            bail!("no reply to UDP packets to {}: open the UDP ports of that host", self.socket.peer_addr()?);
        }
        Ok(Some(interval))
    }

    /// Makes one round trip. `None` if no possible reply came in time.
    fn ask(&mut self, timeout: Duration) -> Result<Option<ClockReply>> {
        self.sequence += 1;
        let (key, sequence) = (self.key, self.sequence);
        let sent_ns = now_ns();
        exchange(&self.socket, &write(key, sequence, 0), timeout, |reply| {
            let received_ns = now_ns();
            let theirs_ns = read(reply, key).filter(|(theirs, ns)| *theirs == sequence && *ns < MAX_TIME)?.1;
            Some(ClockReply { sent_ns, theirs_ns, received_ns })
        })
    }
}

/// A reply of the other host, with the times at which this host sent the packet and received the
/// reply.
struct ClockReply {
    sent_ns: u64,
    theirs_ns: u64,
    received_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn the_offset_lies_in_every_interval() {
        // The other clock is ahead by 1,000. The ways take 10 and 90, then 70 and 10.
        let interval = OffsetRange::EVERYTHING.after_reply(0, 1_010, 100).after_reply(200, 1_270, 280);
        let offset = interval.offset().unwrap();
        assert_eq!((interval.least, interval.most), (990, 1_010));
        assert_eq!(offset, Offset { ns: 1_000, error_ns: 10 });
        // A reply that was written before its packet was sent, by the offset of the others.
        assert!(interval.after_reply(300, 1_250, 310).offset().is_err());
    }

    #[test]
    fn a_clock_behind_has_a_negative_offset() {
        let interval = OffsetRange::EVERYTHING.after_reply(MAX_TIME - 10, 5, MAX_TIME - 5);
        assert_eq!(interval.offset().unwrap(), Offset { ns: 12 - MAX_TIME as i64, error_ns: 3 });
    }

    #[test]
    fn half_of_the_drift_is_corrected_and_half_is_error() {
        let [before, after] = [(500, 20), (540, 30)].map(|(ns, error_ns)| Offset { ns, error_ns });
        let error = ClockError::between(before, after);
        assert_eq!(error, ClockError { max_ns: 50, drift_ns: 40 });
        assert_eq!((error.corrected(100), error.corrected(10)), (80, 0));
        assert_eq!(ClockError::between(after, before).corrected(100), 120);
        assert!(error.is_possible() && !ClockError { max_ns: u64::MAX, ..error }.is_possible());
    }

    #[test]
    fn a_server_of_this_host_has_the_same_clock() {
        let server = ClockServer::start(HERE).unwrap();
        let mut probe = ClockProbe::connect(HERE, server.port(), Duration::ZERO).unwrap();
        for _ in 0..2 {
            let offset = probe.estimate(|| false).unwrap().unwrap();
            assert!(offset.ns.unsigned_abs() <= offset.error_ns, "{offset:?}");
            assert!(offset.error_ns < 1_000_000_000, "{offset:?}");
        }
        assert!(probe.estimate(|| true).unwrap().is_none());
    }

    #[test]
    fn packets_without_the_key_or_of_another_length_are_not_answered() {
        let server = ClockServer::start(HERE).unwrap();
        let ClockPort { port, key } = server.port();
        let stranger = UdpSocket::bind((HERE, 0)).unwrap();
        stranger.connect((HERE, port)).unwrap();
        stranger.send(&write(key ^ 1, 1, 0)).unwrap();
        stranger.send(&write(key, 2, 0)[..PACKET - 1]).unwrap();
        stranger.send(&[&write(key, 3, 0)[..], &[0]].concat()).unwrap();
        stranger.send(&write(key, 4, 0)).unwrap();
        let mut packet = [0; PACKET];
        let len = stranger.recv(&mut packet).unwrap();
        assert_eq!(read(&packet[..len], key).map(|(sequence, _)| sequence), Some(4));
    }

    #[test]
    fn a_server_that_does_not_answer_is_an_error() {
        // Nothing listens at the port of a server that has ended.
        let port = ClockServer::start(HERE).unwrap().port();
        let error = ClockProbe::connect(HERE, port, Duration::ZERO).unwrap().estimate(|| false).unwrap_err();
        assert!(error.to_string().contains("open the UDP ports"), "{error:#}");
    }

    #[test]
    fn replies_that_are_wrong_are_ignored() {
        let server = UdpSocket::bind((HERE, 0)).unwrap();
        let port = ClockPort { port: server.local_addr().unwrap().port(), key: 7 };
        let answering = thread::spawn(move || {
            let mut packet = [0; PACKET];
            for _ in 0..LEAST {
                let (_, from) = server.recv_from(&mut packet).unwrap();
                let (sequence, _) = read(&packet, 7).unwrap();
                for (sequence, time) in [(sequence + 1, 1), (sequence, u64::MAX), (sequence, now_ns())] {
                    server.send_to(&write(7, sequence, time), from).unwrap();
                }
            }
        });
        let mut probe = ClockProbe::connect(HERE, port, Duration::ZERO).unwrap();
        for _ in 0..LEAST {
            let reply = probe.ask(Duration::from_secs(60)).unwrap().expect("a reply");
            assert!((reply.sent_ns..=reply.received_ns).contains(&reply.theirs_ns));
        }
        answering.join().unwrap();
    }
}
