//! The limits of a network link between two hosts: the round trip of a minimal packet, the rate,
//! and the share of lost packets.
//!
//! The host of the consumers runs a [`Responder`]. The host of the producers calls [`measure`] with
//! the responder's ports. Data goes from there to the responder, as the messages of a stream do.
//! Every figure that includes a time is measured with one clock: round trips by the sender, the
//! rate by the receiver.
//!
//! Both sides use blocking sockets with time-outs. Nothing is encrypted: the data is random and
//! nobody needs it. The responder's key keeps strangers out of the measurement; it is no protection
//! against somebody who reads the packets. Whatever the other side reports is checked against what
//! this side has sent.

mod loss;
mod packets;
mod rate;
mod responder;
mod round_trips;
#[cfg(test)]
mod tests;
mod wire;

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

pub use self::loss::PacketLoss;
pub use self::responder::{Ports, Responder, Stopper};
pub(crate) use self::round_trips::{FIRST_TIMEOUT, MIN_TIMEOUT, connect, exchange};
use self::wire::Prober;
use crate::units;

/// The payload of a TCP segment in bytes on Ethernet, with time stamps.
const SEGMENT_BYTES: f64 = 1448.0;

/// The limits of the link from the producers' host to the consumers' host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Link {
    /// The fastest round trip of a UDP packet with 17 bytes of data, in nanoseconds.
    pub round_trip_fastest_ns: f64,
    /// The median round trip of such packets, in nanoseconds.
    pub round_trip_ns: f64,
    /// The number of round trips that were measured.
    pub round_trips: u64,
    /// The number of round trips that were lost: no reply came in time.
    pub round_trips_lost: u64,
    /// The rate of one TCP connection in bytes per second, after its slow start.
    pub rate_1_bytes_per_s: f64,
    /// The rate of four TCP connections together, in bytes per second, after their slow start.
    pub rate_4_bytes_per_s: f64,
    /// The congestion control of the sending host's TCP, such as `cubic`. `None` if it is unknown.
    pub congestion_control: Option<String>,
    /// The loss of UDP packets of 1,200 bytes on the way to the consumers' host, sent at a quarter
    /// of the rate.
    pub loss: PacketLoss,
}

impl Link {
    /// The highest rate that was found, in bytes per second.
    pub fn rate_bytes_per_s(&self) -> f64 {
        self.rate_1_bytes_per_s.max(self.rate_4_bytes_per_s)
    }

    /// An estimate of the rate at which one TCP connection settles because of the packet loss, in
    /// bytes per second. `None` without loss.
    ///
    /// It is MSS / RTT * 1.22 / sqrt(p): M. Mathis, J. Semke, J. Mahdavi, T. Ott, "The macroscopic
    /// behavior of the TCP congestion avoidance algorithm", Computer Communication Review 27
    /// (1997). It describes the congestion control `reno`; `cubic` is faster on long paths, and
    /// `bbr` depends little on loss.
    pub fn mathis_bytes_per_s(&self) -> Option<f64> {
        let share = self.loss.share();
        let is_known = share > 0.0 && self.round_trip_ns > 0.0;
        is_known.then(|| SEGMENT_BYTES * 1e9 / self.round_trip_ns * 1.22 / share.sqrt())
    }
}

impl Link {
    /// A sentence about what the packet loss costs one TCP connection, for a reader who wonders
    /// about a low figure. `None` without loss.
    pub fn loss_note(&self) -> Option<String> {
        let estimate = self.mathis_bytes_per_s()?;
        let PacketLoss { lost, sent, .. } = self.loss;
        let control = self.congestion_control.as_deref().unwrap_or("that of this host");
        Some(format!(
            "The link lost {lost} of {sent} packets and its round trip takes {}: with {} loss, one TCP connection with the \
             congestion control reno reaches about {} (the estimate of Mathis et al. 1997); with {control} one reached {} here.",
            units::duration(self.round_trip_ns),
            percent(self.loss.share()),
            units::bandwidth(estimate),
            units::bandwidth(self.rate_1_bytes_per_s)
        ))
    }
}

/// A share as a percentage with three significant digits.
fn percent(share: f64) -> String {
    format!("{} %", units::three_digits(share * 100.0))
}

/// Measures the link to the host whose [`Responder`] listens at these ports of `host`. Blocks for
/// about 5 s; on a link with long delays for about 10 s, but not for more than a minute.
///
/// # Errors
/// When the responder does not answer, closes the connection, or reports what cannot be true.
pub fn measure(host: IpAddr, ports: Ports) -> Result<Link> {
    let mut prober = Prober::connect(SocketAddr::new(host, ports.tcp), ports.key)
        .with_context(|| format!("connecting to the link's responder at {host}"))?;
    let packets = SocketAddr::new(host, ports.udp);
    let round_trips = round_trips::measure(packets, ports.key).context("measuring round trips of the link")?;
    let one = rate::measure(&mut prober, 1, round_trips.median).context("measuring the rate of one connection")?;
    let four = rate::measure(&mut prober, 4, round_trips.median).context("measuring the rate of four connections")?;
    let rate = one.bytes_per_s.max(four.bytes_per_s);
    let loss = loss::measure(&mut prober, packets, rate, round_trips.median).context("measuring the link's loss")?;
    Ok(Link {
        round_trip_fastest_ns: round_trips.fastest.as_nanos() as f64,
        round_trip_ns: round_trips.median.as_nanos() as f64,
        round_trips: round_trips.count,
        round_trips_lost: round_trips.lost,
        rate_1_bytes_per_s: one.bytes_per_s,
        rate_4_bytes_per_s: four.bytes_per_s,
        congestion_control: one.congestion_control,
        loss,
    })
}
