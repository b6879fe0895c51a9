//! The loss of a link: the share of UDP packets that do not arrive, sent at a modest rate so that
//! they do not fill the queues of the link.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use super::packets::{self, LONG_PACKET, PACKET, PacketKind};
use super::round_trips::connect;
use super::wire::{Command, Prober};
use crate::stats::share_interval;

/// How long packets are sent on a short way.
const LENGTH: Duration = Duration::from_secs(2);
/// How long packets are sent on a long way, which may be slow: enough to see one packet in a
/// thousand.
const LONG_LENGTH: Duration = Duration::from_secs(4);
/// The round trip from which on a way is long.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(5);
/// How many times as many packets are sent at most, if some are lost and the share of them is not
/// known well.
const MAX_PARTS: u64 = 4;
/// The share of lost packets is known well if the high end of its interval is at most this times
/// the share, and [`WELL_KNOWN`] more.
const WELL_KNOWN_TIMES: f64 = 2.0;
const WELL_KNOWN: f64 = 0.002;
/// The part of the link's rate that is used.
const PART: f64 = 0.25;
/// The highest rate in bytes per second: 40 Mbit/s.
const MAX_RATE: f64 = 5e6;
/// The least number of packets.
const LEAST: u64 = 20;
/// The highest sequence number that a responder counts.
pub(super) const MAX_PACKETS: usize = 1 << 14;
/// How long the last packets may be on their way, beyond a few round trips.
const LAST: Duration = Duration::from_millis(50);

/// How many packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PacketLoss {
    /// Packets that were sent.
    pub sent: u64,
    /// Packets of them that did not arrive.
    pub lost: u64,
    /// The low end of the interval that contains the share of lost packets with a confidence of 95
    /// %, from 0 to 1.
    pub low: f64,
    /// The high end of that interval.
    pub high: f64,
}

impl PacketLoss {
    /// The loss of `lost` of `sent` packets. The interval is Wilson's.
    pub fn new(lost: u64, sent: u64) -> PacketLoss {
        let (low, high) = share_interval(lost, sent);
        PacketLoss { sent, lost, low, high }
    }

    /// The largest share that the link may lose: the high end of the interval if any packet was
    /// lost, otherwise 0.
    pub fn largest(&self) -> f64 {
        if self.lost == 0 { 0.0 } else { self.high }
    }

    /// Whether packets were lost, and so few were sent that their share is not known well.
    fn is_imprecise(&self) -> bool {
        self.lost > 0 && self.high > WELL_KNOWN_TIMES * self.share() + WELL_KNOWN
    }

    /// The share of lost packets, from 0 to 1.
    pub fn share(&self) -> f64 {
        if self.sent == 0 { 0.0 } else { self.lost as f64 / self.sent as f64 }
    }
}

/// Sends packets to the responder and asks how many have arrived. `rate` is that of the link in
/// bytes per second.
///
/// # Errors
/// When nothing can be sent, or the responder reports what cannot be true.
pub(super) fn measure(
    prober: &mut Prober,
    responder: SocketAddr,
    rate: f64,
    round_trip: Duration,
) -> Result<PacketLoss> {
    let socket = connect(responder)?;
    let (count, interval) = schedule(rate, round_trip);
    let mut packet = [0; LONG_PACKET];
    fastrand::fill(&mut packet);
    let (mut sent, most) = (0, (count * MAX_PARTS).min(MAX_PACKETS as u64));
    let mut first = 0;
    loop {
        let (started, end) = (Instant::now(), most.min(first + count));
        for sequence in first..end {
            let due = started + interval * (sequence - first) as u32;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if let Some(head) = packet.first_chunk_mut::<PACKET>() {
                packets::write(head, prober.key(), PacketKind::Count, sequence);
            }
            // What this host itself refuses, because a queue is full, is not lost by the link.
            sent += u64::from(socket.send(&packet).is_ok());
        }
        ensure!(sent > 0, "no UDP packet could be sent to {responder}");
        thread::sleep(round_trip * 4 + LAST);
        prober.send(Command::CountPackets)?;
        let arrived = prober.reply(Duration::ZERO).context("asking for the packets that arrived")?.count;
        ensure!(arrived <= sent, "the other host reports {arrived} packets, but it was sent {sent}");
        let loss = PacketLoss::new(sent - arrived, sent);
        if !loss.is_imprecise() || end == most {
            return Ok(loss);
        }
        first = end;
    }
}

/// The number of packets and the time between two of them, for a link with this rate in bytes per
/// second.
fn schedule(rate: f64, round_trip: Duration) -> (u64, Duration) {
    let length = if round_trip < LONG_ROUND_TRIP { LENGTH } else { LONG_LENGTH };
    let rate = if rate.is_finite() { (rate * PART).clamp(1.0, MAX_RATE) } else { 1.0 };
    let interval = Duration::from_secs_f64(LONG_PACKET as f64 / rate);
    let count = ((length.as_secs_f64() / interval.as_secs_f64()) as u64).clamp(LEAST, MAX_PACKETS as u64);
    (count, interval.min(length / count as u32))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn a_share_of_few_lost_packets_is_imprecise() {
        let is_imprecise = |lost, sent| PacketLoss::new(lost, sent).is_imprecise();
        assert!(is_imprecise(1, 20) && is_imprecise(1, 416), "a link of 1 MB/s");
        assert!(!is_imprecise(8, 8_333) && !is_imprecise(20, 2_000));
        assert!(!is_imprecise(0, 20), "nothing is lost");
    }

    #[test]
    fn packets_are_sent_at_a_quarter_of_the_rate() {
        let short = |rate| schedule(rate, Duration::from_micros(100));
        assert_eq!(short(1e12), (8333, Duration::from_micros(240)), "at most 40 Mbit/s");
        let (count, interval) = short(0.96e6);
        assert_eq!((count, interval), (400, Duration::from_millis(5)));
        // On a long way, enough packets to see one lost in a thousand.
        let (count, interval) = schedule(1e7, Duration::from_millis(40));
        assert_eq!((count, interval), (8333, Duration::from_micros(480)));
        // A slow link gets the least number of packets.
        for rate in [0.0, 1.0, 1e4, f64::NAN] {
            let (count, interval) = short(rate);
            assert_eq!((count, interval), (20, Duration::from_millis(100)), "{rate} bytes per second");
        }
    }
}
