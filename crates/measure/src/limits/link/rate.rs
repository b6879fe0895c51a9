//! The rate of a link: how fast TCP connections carry data from the prober to the responder.
//!
//! The prober writes random data as fast as it can. The responder counts what arrives in the second
//! half of the time: slow start is over by then, because the time has many round trips.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::net::sockopt::tcp_congestion;

use super::wire::{Command, MAX_LENGTH, Prober};

/// How long data is sent at least.
const LENGTH: Duration = Duration::from_secs(1);
/// For how many round trips data is sent at least. Slow start takes about ten.
const ROUND_TRIPS: u32 = 50;
/// The length of a write in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// The rate of some connections.
pub(super) struct Rate {
    pub(super) bytes_per_s: f64,
    /// The name of the congestion control; `None` if the system does not say.
    pub(super) congestion_control: Option<String>,
}

/// Measures the rate of `connections` connections together, over a link with this round trip. Where
/// none of their data arrived in the second half of the time, it measures again for twice as long,
/// up to [`MAX_LENGTH`]: connections that lost packets may stand still for seconds.
///
/// # Errors
/// When a connection cannot be opened, no data arrives, or the responder reports what cannot be
/// true.
pub(super) fn measure(prober: &mut Prober, connections: u32, round_trip: Duration) -> Result<Rate> {
    let mut length = (round_trip * ROUND_TRIPS).clamp(LENGTH, MAX_LENGTH);
    loop {
        if let Some(rate) = measure_for(prober, connections, length)? {
            return Ok(rate);
        }
        ensure!(length < MAX_LENGTH, "no data arrived at the other host in the second half of {length:?}");
        length = (length * 2).min(MAX_LENGTH);
    }
}

/// Measures the rate for this long. `None` if no data arrived.
fn measure_for(prober: &mut Prober, connections: u32, length: Duration) -> Result<Option<Rate>> {
    prober.send(Command::CountBulk { connections, length })?;
    let streams = (0..connections).map(|_| prober.open_bulk()).collect::<std::io::Result<Vec<_>>>();
    let streams = streams.context("opening a connection for data")?;
    let congestion_control = streams.first().and_then(|stream| tcp_congestion(stream).ok());
    let sent = AtomicU64::new(0);
    let reply = thread::scope(|scope| {
        let started: std::io::Result<Vec<_>> = streams
            .iter()
            .map(|stream| thread::Builder::new().spawn_scoped(scope, || write_until_closed(stream, &sent)))
            .collect();
        let reply = started.context("starting a thread").and_then(|_| prober.reply(length));
        // Ends the threads, even if they are waiting in a write. An error means that the responder has closed.
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        reply
    })?;
    let (length, sent) = (length.as_nanos() as u64, sent.load(Ordering::Relaxed));
    if reply.count == 0 {
        return Ok(None);
    }
    ensure!(
        reply.count <= sent && reply.ns >= length / 4,
        "the other host reports {} bytes in {} ns, but it was sent {sent} bytes in {length} ns",
        reply.count,
        reply.ns
    );
    Ok(Some(Rate { bytes_per_s: reply.count as f64 * 1e9 / reply.ns as f64, congestion_control }))
}

/// Writes random data until the connection is closed, and adds up its length.
fn write_until_closed(mut stream: &TcpStream, sent: &AtomicU64) {
    let mut data = vec![0; WRITE_BYTES];
    // Something on the way may compress what repeats.
    fastrand::fill(&mut data);
    loop {
        // Counted before it arrives at the other host.
        sent.fetch_add(WRITE_BYTES as u64, Ordering::Relaxed);
        if stream.write_all(&data).is_err() {
            return;
        }
    }
}
