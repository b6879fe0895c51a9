//! An emulated link between two TUN devices: delay, loss at random, a rate, and a queue in front of
//! it.
//!
//! A thread takes the packets of both devices. It computes when each has passed the link: it leaves
//! when those before it have left and its own bytes have passed at the link's rate, and arrives a
//! delay later. Until then it waits in a ring. A packet that would wait too long for its turn is
//! dropped, as by a router with a full queue.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The maximum length of a packet in bytes.
pub(super) const MTU: usize = 1500;
/// How long a packet may wait for its turn before the rate.
const QUEUE: Duration = Duration::from_millis(50);
/// The maximum number of packets under way, each way.
const MAX_PACKETS: usize = 8192;
/// The number of packets that are read before those that are due are delivered.
const BATCH: usize = 64;
/// What decides which packets are lost. The two ways differ by one.
const SEED: u64 = 0x6361_626c;

/// How the link treats packets, on each way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cable {
    /// The delay in milliseconds on each way.
    pub(crate) delay_ms: u32,
    /// The share of lost packets in percent on each way.
    pub(crate) loss_percent: f64,
    /// The rate in Mbit/s on each way, with the headers of IP; 0 for as fast as the machine can.
    pub(crate) rate_mbit: u32,
}

/// The thread of a link. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    /// Closing it ends the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Passes packets between two TUN devices.
    ///
    /// # Errors
    /// If this process lacks descriptors or threads.
    pub(super) fn start(cable: Cable, devices: [File; 2]) -> std::io::Result<Relay> {
        let (stop, stopped) = UnixStream::pair()?;
        let ways = [0, 1].map(|way| Way::new(cable, SEED + way));
        let thread = thread::Builder::new().name(String::from("cable")).spawn(move || run(ways, &devices, &stopped))?;
        Ok(Relay { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A panic of the thread has been printed, and the test fails without the link.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Passes packets from device 0 to 1 by way 0, and back by way 1, until `stopped` is closed.
fn run(mut ways: [Way; 2], devices: &[File; 2], stopped: &UnixStream) {
    loop {
        let due = ways.iter().filter_map(Way::next_due).min();
        let left = due.map(|due| due.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
        let mut polled = [
            PollFd::new(&devices[0], PollFlags::IN),
            PollFd::new(&devices[1], PollFlags::IN),
            PollFd::new(stopped, PollFlags::IN),
        ];
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("waiting for packets: {error}"),
        }
        let is_over = !polled[2].revents().is_empty();
        let is_readable = [0, 1].map(|way| !polled[way].revents().is_empty());
        if is_over {
            return;
        }
        for (at, way) in ways.iter_mut().enumerate() {
            if is_readable[at] {
                way.receive(&devices[at]);
            }
            way.deliver(&devices[1 - at]);
        }
    }
}

/// One way of the link, and the packets that are under way on it.
struct Way {
    cable: Cable,
    random: fastrand::Rng,
    /// When the packets that have been received have left.
    free_at: Instant,
    /// A ring of packets in the order of their arrival.
    packets: Vec<Packet>,
    /// The number of the first packet of the ring, and of the one after the last.
    first: usize,
    next: usize,
}

/// The place of a packet.
#[derive(Clone)]
struct Packet {
    due: Instant,
    len: usize,
    bytes: [u8; MTU],
}

impl Way {
    fn new(cable: Cable, seed: u64) -> Way {
        let now = Instant::now();
        let packets = vec![Packet { due: now, len: 0, bytes: [0; MTU] }; MAX_PACKETS];
        Way { cable, random: fastrand::Rng::with_seed(seed), free_at: now, packets, first: 0, next: 0 }
    }

    /// When the first packet arrives.
    fn next_due(&self) -> Option<Instant> {
        (self.first < self.next).then(|| self.packets[self.first % MAX_PACKETS].due)
    }

    /// Reads packets that a host sends. Drops those that are lost or find no space.
    fn receive(&mut self, mut device: &File) {
        let now = Instant::now();
        for _ in 0..BATCH {
            if self.next - self.first == MAX_PACKETS {
                return self.drop_one(device);
            }
            let packet = &mut self.packets[self.next % MAX_PACKETS];
            // None is left, or the interface is down.
            let Ok(len) = device.read(&mut packet.bytes) else { return };
            packet.len = len;
            if self.random.f64() * 100.0 < self.cable.loss_percent {
                continue;
            }
            if let Some(due) = self.due(now, len) {
                self.packets[self.next % MAX_PACKETS].due = due;
                self.next += 1;
            }
        }
    }

    fn drop_one(&self, mut device: &File) {
        let _ = device.read(&mut [0; MTU]);
    }

    /// When a packet arrives that was sent now. `None` if the queue before the link is full.
    fn due(&mut self, now: Instant, len: usize) -> Option<Instant> {
        let begins = self.free_at.max(now);
        if begins - now > QUEUE {
            return None;
        }
        let passes = match self.cable.rate_mbit {
            0 => Duration::ZERO,
            rate => Duration::from_nanos(len as u64 * 8_000 / u64::from(rate)),
        };
        self.free_at = begins + passes;
        Some(self.free_at + Duration::from_millis(u64::from(self.cable.delay_ms)))
    }

    /// Writes the packets that are due.
    fn deliver(&mut self, mut device: &File) {
        let now = Instant::now();
        while let Some(packet) =
            self.next_due().filter(|due| *due <= now).map(|_| &self.packets[self.first % MAX_PACKETS])
        {
            // What the other host refuses is lost.
            let _ = device.write(&packet.bytes[..packet.len]);
            self.first += 1;
        }
    }
}
