//! The durations of a search, on one host and between two.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The data of a UDP packet on Ethernet in bytes. A longer message is lost with any of its packets.
const PACKET_BYTES: usize = 1_472;
/// The messages that may arrive late in each slice between hosts, besides one batch.
const ALLOWED_LATE: f64 = 4.0;
/// The largest batch that a mechanism sends by one call: this many messages, of this many bytes
/// together.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 10;
/// The number of messages in a slice at the rate of the link, in messages that may be late. With
/// fewer, a batch looks like a rate that is too high.
const SLICE_IN_LATE: f64 = 20.0;
/// The shortest slice of a search between hosts, in nanoseconds.
const MIN_SLICE_NS: f64 = 5e6;
/// The longest.
const MAX_SLICE_NS: f64 = 200e6;
/// The number of steps of a search that a warm-up between hosts allows for.
const REMOTE_STEPS: u64 = 20;
/// The rate at which a search between hosts begins, as a part of the link's rate.
const FIRST_PART_OF_LINK: f64 = 0.25;
/// The highest rate at which a search between hosts begins, in messages per nanosecond.
const MAX_FIRST_RATE: f64 = 50e-6;
/// The rate of a link whose rate is not known, in bytes per second.
const UNKNOWN_RATE: f64 = 1e6;
/// The shortest time over which the loss is judged after a search between hosts, in nanoseconds.
const MIN_JUDGED_NS: u64 = 100_000_000;

/// What is known of the link between producers and consumers on two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkEstimate {
    /// The round trip of a packet, in nanoseconds.
    pub round_trip_ns: u64,
    /// The largest share of packets that it may lose by its measured loss, from 0 to 1.
    pub packet_loss: f64,
    /// Its rate in bytes per second. 0 if it is unknown.
    pub rate_bytes_per_s: f64,
}

/// The share of messages of this length that a link loses, which loses this share of packets.
pub(crate) fn message_loss(packet_loss: f64, bytes: usize) -> f64 {
    let packets = bytes.div_ceil(PACKET_BYTES).max(1) as f64;
    1.0 - (1.0 - packet_loss).powf(packets)
}

impl LinkEstimate {
    /// The rate in messages of this length per nanosecond.
    fn rate(&self, bytes: usize) -> f64 {
        let known = self.rate_bytes_per_s.is_finite() && self.rate_bytes_per_s > 0.0;
        let rate = if known { self.rate_bytes_per_s } else { UNKNOWN_RATE };
        rate / (bytes.max(1) as f64 * 1e9)
    }

    /// The rate at which a search for messages of this length begins, in messages per nanosecond.
    pub(super) fn first_rate(&self, bytes: usize) -> f64 {
        (FIRST_PART_OF_LINK * self.rate(bytes)).min(MAX_FIRST_RATE)
    }

    /// The time that a search for messages of this length takes because of the link, in
    /// nanoseconds.
    pub(crate) fn search_ns(&self, bytes: usize) -> u64 {
        let timing = Timing::between_hosts(self, bytes);
        REMOTE_STEPS * timing.step_ns() + timing.link.map_or(0, |link| link.reserve_ns)
    }
}

/// The durations of a search, and what it allows for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The length of one step, for each consumer. If the consumers share a core, each of them runs
    /// within it.
    pub(super) slice_ns: u64,
    /// How old a report is when it arrives.
    pub(super) report_age: Duration,
    /// The length of a pause after a step. Pauses are repeated as long as messages still arrive. A
    /// rate that is too high fills all buffers, and the messages left in them would count against
    /// the next rate.
    pub(super) pause: Duration,
    /// The longest time of the pauses after a step.
    pub(super) longest_drain: Duration,
    /// `None` on one host.
    pub(super) link: Option<LinkAllowance>,
}

/// What a producer allows for because of the link to consumers on another host.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkAllowance {
    /// The largest share of messages that it may lose.
    pub(super) loss: f64,
    /// The messages that may arrive late in each slice.
    pub(super) allowed_late: f64,
    /// The time over which the loss is judged after the search, in nanoseconds.
    pub(super) judged_ns: u64,
    /// How long before the end of the warm-up the queues are to be empty, in nanoseconds. The
    /// window of a consumer opens before the one of its producer.
    pub(super) empty_ns: u64,
    /// How long before the end of the warm-up the last slice of the search may begin, in
    /// nanoseconds.
    pub(super) reserve_ns: u64,
}

impl Timing {
    pub(super) const SAME_HOST: Timing = Timing {
        slice_ns: 2_500_000,
        report_age: Duration::ZERO,
        pause: Duration::from_micros(500),
        longest_drain: Duration::from_millis(20),
        link: None,
    };

    /// Between two hosts, for messages of this length.
    pub(super) fn between_hosts(link: &LinkEstimate, bytes: usize) -> Timing {
        let round_trip = Duration::from_nanos(link.round_trip_ns);
        let slice_ns = SLICE_IN_LATE * allowed_late(bytes) / link.rate(bytes);
        // Until no more messages arrive: two of them are so far apart at the rate of the link.
        let two_messages = Duration::from_nanos((2.0 / link.rate(bytes)).min(MAX_SLICE_NS) as u64);
        let timing = Timing {
            slice_ns: slice_ns.clamp(MIN_SLICE_NS, MAX_SLICE_NS) as u64,
            report_age: round_trip + round_trip / 8 + Duration::from_micros(100),
            pause: (Duration::from_millis(1) + round_trip / 2).max(two_messages),
            // Queues of routers are long.
            longest_drain: Duration::from_secs(1),
            link: None,
        };
        let reports_ns = 2 * timing.report_age.as_nanos() as u64;
        let link = LinkAllowance {
            loss: message_loss(link.packet_loss, bytes),
            allowed_late: allowed_late(bytes),
            judged_ns: MIN_JUDGED_NS.max(2 * link.round_trip_ns),
            empty_ns: reports_ns,
            reserve_ns: timing.step_ns() + reports_ns,
        };
        Timing { link: Some(link), ..timing }
    }

    /// The maximum number of pauses after a step, at least one.
    pub(super) fn max_pauses(&self) -> u32 {
        ((self.longest_drain.as_nanos() / self.pause.as_nanos()) as u32).max(1)
    }

    /// The time of a step at a rate that is sustained, in nanoseconds.
    fn step_ns(&self) -> u64 {
        self.slice_ns + (self.report_age + 2 * self.pause).as_nanos() as u64
    }
}

/// The messages of this length that may arrive late in each slice between hosts.
fn allowed_late(bytes: usize) -> f64 {
    ALLOWED_LATE + (BATCH_BYTES / bytes.max(1)).clamp(1, BATCH) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_packets_is_lost_with_any_of_them() {
        assert!((message_loss(0.01, 1_000) - 0.01).abs() < 1e-12);
        assert!((message_loss(0.01, 2 * PACKET_BYTES) - 0.0199).abs() < 1e-12);
    }

    #[test]
    fn a_slice_is_long_beside_a_batch() {
        for (bytes, rate_bytes_per_s) in [(64, 1e6), (1_024, 6e6), (1_024, 1e9), (32 << 10, 6e6), (65_507, 1e3)] {
            let link = LinkEstimate { round_trip_ns: 1_000_000, packet_loss: 0.0, rate_bytes_per_s };
            let timing = Timing::between_hosts(&link, bytes);
            let messages = link.rate(bytes) * timing.slice_ns as f64;
            let is_longest = timing.slice_ns as f64 >= MAX_SLICE_NS - 1.0;
            assert!(
                messages >= 19.9 * allowed_late(bytes) || is_longest,
                "{messages} of {bytes} B at {rate_bytes_per_s}"
            );
        }
        assert_eq!([64, 1_024, 32 << 10, 65_507].map(allowed_late), [68.0, 68.0, 6.0, 5.0]);
    }

    #[test]
    fn a_link_of_unknown_rate_has_a_search() {
        for rate_bytes_per_s in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let link = LinkEstimate { rate_bytes_per_s, ..LinkEstimate::default() };
            assert!(link.first_rate(1_000) > 0.0 && link.search_ns(1_000) > 0, "{rate_bytes_per_s}");
        }
    }
}
