//! Feedback: a consumer reports to each producer which of its messages have arrived.
//!
//! On one host, reports go over a UNIX datagram socket pair. Between hosts they go over UDP: the
//! consumer binds a port and publishes it with a key, the producer sends the key to it until a
//! report arrives, and the consumer reports to the address that the key came from. So packets begin
//! on the producers' host, as those of most mechanisms do.
//!
//! A report that is lost, or that a producer does not read in time, is replaced by the next one.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::limits::link::connect;

/// The length of a report between hosts in bytes: the key, and a [`StreamProgress`].
const REPORT_BYTES: usize = 24;
/// The length of a producer's packet to a consumer on another host: the key.
const KEY_BYTES: usize = 8;
/// The maximum number of reports that are read at once, so that a peer that sends without end does
/// not stop the producer.
const MAX_REPORTS: usize = 4096;

/// What a consumer has received from one producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamProgress {
    /// The number after the highest that arrived.
    pub(crate) next: u64,
    /// How many messages arrived.
    pub(crate) received: u64,
}

/// A consumer's ends of the feedback channels, one for each producer.
pub(crate) struct Feedback {
    ends: Vec<ConsumerEnd>,
    /// The minimum time between two reports.
    interval_ns: u64,
    reported_ns: u64,
}

/// A consumer's end of a feedback channel.
pub(crate) enum ConsumerEnd {
    /// To a producer on the same host. It does not block.
    SameHost(UnixDatagram),
    /// To a producer on another host.
    OtherHost(ReportPort),
}

impl ConsumerEnd {
    /// The minimum time between two reports. A UDP packet costs the consumer more than a datagram
    /// to the same host.
    fn interval(&self) -> Duration {
        match self {
            ConsumerEnd::SameHost(_) => Duration::from_micros(25),
            ConsumerEnd::OtherHost(_) => Duration::from_micros(250),
        }
    }

    fn send(&mut self, progress: StreamProgress) {
        // If it cannot be sent, it is a lost report.
        match self {
            ConsumerEnd::SameHost(socket) => drop(socket.send(&packet::<16>(&[progress.next, progress.received]))),
            ConsumerEnd::OtherHost(port) => port.send(progress),
        }
    }
}

impl Feedback {
    pub(crate) fn new(ends: Vec<ConsumerEnd>) -> Feedback {
        let interval = ends.iter().map(ConsumerEnd::interval).max().unwrap_or_default();
        Feedback { ends, interval_ns: interval.as_nanos() as u64, reported_ns: 0 }
    }

    /// Reports to each producer what has arrived, unless the last report was a moment ago. Does not
    /// block.
    pub(crate) fn report(&mut self, now: u64, progress: impl Iterator<Item = StreamProgress>) {
        if now < self.reported_ns + self.interval_ns {
            return;
        }
        self.reported_ns = now;
        self.ends.iter_mut().zip(progress).for_each(|(end, progress)| end.send(progress));
    }
}

/// A UDP port from which a consumer reports to a producer on another host.
pub(crate) struct ReportPort {
    socket: UdpSocket,
    key: u64,
    is_connected: bool,
}

impl ReportPort {
    /// Binds any free port of an address of this host, with a new key. Also returns the text to
    /// publish, for [`Reports::of_port`].
    ///
    /// # Errors
    /// When the address is not one of this host.
    pub(crate) fn bind(address: IpAddr) -> Result<(ReportPort, String)> {
        let socket = UdpSocket::bind((address, 0)).with_context(|| format!("binding a UDP socket to {address}"))?;
        socket.set_nonblocking(true)?;
        let (published, key) = (socket.local_addr()?, fastrand::u64(..));
        Ok((ReportPort { socket, key, is_connected: false }, format!("{published} {key:016x}")))
    }

    fn send(&mut self, progress: StreamProgress) {
        if !self.is_connected {
            self.find_producer();
        }
        if self.is_connected {
            let _ = self.socket.send(&packet::<REPORT_BYTES>(&[self.key, progress.next, progress.received]));
        }
    }

    /// Connects to the address from which the key has come, if it has.
    fn find_producer(&mut self) {
        let mut received = [0; KEY_BYTES + 1];
        // A stranger can send packets all the time.
        for _ in 0..MAX_REPORTS {
            let Ok((length, from)) = self.socket.recv_from(&mut received) else { return };
            if received[..length] == packet::<KEY_BYTES>(&[self.key]) {
                self.is_connected = self.socket.connect(from).is_ok();
                return;
            }
        }
    }
}

/// A producer's end of a feedback channel: the reports of one consumer.
pub(crate) struct Reports {
    end: ProducerEnd,
    /// The last report. `None` before the first one.
    last: Option<StreamProgress>,
}

enum ProducerEnd {
    SameHost(UnixDatagram),
    OtherHost { socket: UdpSocket, key: u64, consumer: SocketAddr },
}

impl Reports {
    /// The reports of a consumer on the same host. The socket does not block.
    pub(crate) fn of_socket(socket: UnixDatagram) -> Reports {
        Reports { end: ProducerEnd::SameHost(socket), last: None }
    }

    /// The reports of a consumer on another host, which published this text. Sends it the key.
    ///
    /// # Errors
    /// When the text is not that of a [`ReportPort`], or its address is of a kind that this host
    /// does not have.
    pub(crate) fn of_port(published: &str) -> Result<Reports> {
        let (consumer, key) = published.split_once(' ').context("an address and a key are expected")?;
        let consumer: SocketAddr = consumer.parse().context("not an address")?;
        let key = u64::from_str_radix(key, 16).context("not a key")?;
        let socket = connect(consumer)?;
        socket.set_nonblocking(true)?;
        // If it is lost, it is sent again.
        let _ = socket.send(&packet::<KEY_BYTES>(&[key]));
        Ok(Reports { end: ProducerEnd::OtherHost { socket, key, consumer }, last: None })
    }

    /// Reads all pending reports. `sent` messages have been sent: no more can have arrived.
    pub(crate) fn receive(&mut self, sent: u64) {
        match &self.end {
            ProducerEnd::SameHost(socket) => {
                let mut received = [0; 16];
                while let Ok(16) = socket.recv(&mut received) {
                    self.last = Some(StreamProgress { next: word(&received, 0), received: word(&received, 1) });
                }
            }
            ProducerEnd::OtherHost { socket, key, .. } => {
                let mut received = [0; REPORT_BYTES + 1];
                for _ in 0..MAX_REPORTS {
                    match socket.recv(&mut received) {
                        Ok(REPORT_BYTES) if word(&received, 0) == *key => {
                            let report = StreamProgress { next: word(&received, 1), received: word(&received, 2) };
                            let is_possible = report.received <= report.next && report.next <= sent;
                            // Packets may overtake each other.
                            self.last = self.last.max(Some(report).filter(|_| is_possible));
                        }
                        Ok(_) => {}
                        // The consumer's host refused an earlier packet.
                        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                        Err(_) => break,
                    }
                }
                if self.last.is_none() {
                    let _ = socket.send(&packet::<KEY_BYTES>(&[*key]));
                }
            }
        }
    }

    /// The last report. Nothing has arrived before the first one.
    pub(crate) fn progress(&self) -> StreamProgress {
        self.last.unwrap_or_default()
    }

    /// The consumer, if it is on another host and no report of it has arrived.
    pub(crate) fn silent_consumer(&self) -> Option<SocketAddr> {
        match &self.end {
            ProducerEnd::OtherHost { consumer, .. } if self.last.is_none() => Some(*consumer),
            _ => None,
        }
    }
}

/// These numbers as a packet, little-endian.
fn packet<const BYTES: usize>(words: &[u64]) -> [u8; BYTES] {
    let mut packet = [0; BYTES];
    for (place, word) in packet.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    packet
}

/// The number at this position of a packet that is long enough.
fn word(packet: &[u8], at: usize) -> u64 {
    packet[at * 8..at * 8 + 8].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}
