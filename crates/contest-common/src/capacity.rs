//! Probes how many messages fit between two ends while nobody receives.

use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use estafette_measure::case::Case;
use rustix::io::{Errno, ioctl_fionbio, write};
use rustix::thread::Pid;

/// The highest capacity that is probed. More counts as unbounded.
pub const MOST: usize = 1 << 18;
/// The highest number of blocking senders that are probed, with one thread each.
const MOST_THREADS: usize = 64;
/// How long [`blocked`] waits for all senders to block, and then for their threads to end.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a probing send where threads of a library may still free capacity. After this
/// time the mechanism counts as full.
pub const IN_VAIN: Duration = Duration::from_millis(50);

/// The highest capacity in bytes, and in messages, of a mechanism whose memory the program
/// allocates.
const MOST_BYTES: usize = 64 << 20;
const MOST_MESSAGES: usize = 65_536;

/// Returns the capacity in messages of a mechanism whose memory the program allocates: what the
/// case requests, up to a limit.
pub fn slots(case: &Case) -> usize {
    case.capacity.min(MOST_MESSAGES).min(MOST_BYTES / case.payload.len()).max(1)
}

/// Returns how many messages of `len` bytes a descriptor accepts while nobody reads from its other
/// end. Sets the descriptor to non-blocking mode.
pub fn written(to: impl AsFd, len: usize) -> Option<u64> {
    ioctl_fionbio(&to, true).ok()?;
    let message = vec![0; len];
    let mut bytes = 0;
    while bytes / len < MOST {
        match write(&to, &message) {
            Ok(written) => bytes += written,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(_) => return None,
        }
    }
    Some((bytes / len) as u64)
}

/// Counts how many consecutive sends succeed until one fails.
pub fn times(mut sends: impl FnMut() -> bool) -> u64 {
    (0..MOST).take_while(|_| sends()).count() as u64
}

/// Returns how many messages blocking senders send before all of them block.
///
/// Each sender runs on a thread of its own and has filled its part when that thread sleeps.
/// `receiver` keeps sends from failing during the probe. It is dropped afterwards, so that the
/// blocked senders fail and their threads end.
pub fn blocked<R>(senders: Vec<impl FnMut() -> bool + Send + 'static>, receiver: R) -> Option<u64> {
    if senders.len() > MOST_THREADS {
        return None;
    }
    let accepted = Arc::new(AtomicU64::new(0));
    let (started, starts) = mpsc::channel();
    let mut threads = Vec::new();
    for mut sends in senders {
        let (started, accepted) = (started.clone(), Arc::clone(&accepted));
        let thread = thread::Builder::new().spawn(move || {
            let _ = started.send(rustix::thread::gettid());
            times(|| {
                let sent = sends();
                accepted.fetch_add(u64::from(sent), Relaxed);
                sent
            });
        });
        threads.push(thread.ok()?);
    }
    let numbers: Vec<_> = starts.iter().take(threads.len()).collect();
    // A thread that sleeps for another reason continues before the next poll, so the count must be
    // the same twice.
    let mut before = None;
    let capacity = poll_until_timeout(|| {
        let now = numbers.iter().all(|&thread| is_asleep(thread)).then(|| accepted.load(Relaxed));
        let same = now.filter(|_| now == before);
        before = now;
        same
    });
    // Blocked senders get an error when the receiver is dropped, and their threads end.
    drop(receiver);
    poll_until_timeout(|| threads.iter().all(thread::JoinHandle::is_finished).then_some(()))?;
    capacity
}

/// Polls `probe` every millisecond until it returns a value or the timeout passes.
fn poll_until_timeout<T>(mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PROBE_TIMEOUT;
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns whether a thread of this process sleeps (state `S` in `/proc`).
fn is_asleep(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}
