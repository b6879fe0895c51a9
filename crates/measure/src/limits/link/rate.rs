//! The rate of a link: how fast TCP connections carry data from the prober to the responder.
//!
//! The prober writes random data as fast as it can. The responder counts what arrives in the second
//! half of the time: slow start is over by then, unless the round trip is very long.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::net::sockopt::tcp_congestion;

use super::wire::{Command, Prober};

/// How long data is sent.
const LENGTH: Duration = Duration::from_secs(1);
/// The length of a write in bytes.
const WRITE_BYTES: usize = 256 << 10;

/// The rate of some connections.
pub(super) struct Rate {
    pub(super) bytes_per_s: f64,
    /// The name of the congestion control; `None` if the system does not say.
    pub(super) congestion_control: Option<String>,
}

/// Measures the rate of `connections` connections together.
///
/// # Errors
/// When a connection cannot be opened, or the responder reports what cannot be true.
pub(super) fn measure(prober: &mut Prober, connections: u32) -> Result<Rate> {
    prober.send(Command::CountBulk { connections, length: LENGTH })?;
    let streams = (0..connections).map(|_| prober.open_bulk()).collect::<std::io::Result<Vec<_>>>();
    let streams = streams.context("opening a connection for data")?;
    let congestion_control = streams.first().and_then(|stream| tcp_congestion(stream).ok());
    let sent = AtomicU64::new(0);
    let reply = thread::scope(|scope| {
        let started: std::io::Result<Vec<_>> = streams
            .iter()
            .map(|stream| thread::Builder::new().spawn_scoped(scope, || write_until_closed(stream, &sent)))
            .collect();
        let reply = started.context("starting a thread").and_then(|_| prober.reply(LENGTH));
        // Ends the threads, even if they are waiting in a write. An error means that the responder has closed.
        streams.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        reply
    })?;
    let (length, sent) = (LENGTH.as_nanos() as u64, sent.load(Ordering::Relaxed));
    ensure!(reply.count > 0, "no data arrived at the other host");
    ensure!(
        reply.count <= sent && reply.ns >= length / 4,
        "the other host reports {} bytes in {} ns, but it was sent {sent} bytes in {length} ns",
        reply.count,
        reply.ns
    );
    Ok(Rate { bytes_per_s: reply.count as f64 * 1e9 / reply.ns as f64, congestion_control })
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
