//! How many messages what lies between two ends takes while nobody receives.

use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use estafette_measure::case::Case;
use rustix::io::{Errno, ioctl_fionbio, write};
use rustix::thread::Pid;

/// The most that is tried: more than this is no limit.
pub const MOST: usize = 1 << 18;
/// The most senders that are given a thread each.
const MOST_THREADS: usize = 64;
/// How long senders that block are given to come to that.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a sender waits that can say how long it does, where threads of a library make room behind it: after that it is full.
pub const IN_VAIN: Duration = Duration::from_millis(50);

/// The most bytes, and messages, that a mechanism with memory of its own has room for.
const MOST_BYTES: usize = 64 << 20;
const MOST_MESSAGES: usize = 65_536;

/// How many messages a mechanism with memory of its own has room for: as many as the case asks for, within reason.
pub fn slots(case: &Case) -> usize {
    case.capacity.min(MOST_MESSAGES).min(MOST_BYTES / case.payload.len()).max(1)
}

/// How many messages of this length a descriptor takes while nobody reads from its other end.
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

/// How often one message after the other is sent before one is not.
pub fn times(mut sends: impl FnMut() -> bool) -> u64 {
    (0..MOST).take_while(|_| sends()).count() as u64
}

/// How many messages senders send that block: each has a thread, and has filled its part once that thread sleeps. `receiver` is
/// what keeps them from failing; it goes then.
pub fn blocked<R>(senders: Vec<impl FnMut() -> bool + Send + 'static>, receiver: R) -> Option<u64> {
    if senders.len() > MOST_THREADS {
        return None;
    }
    let taken = Arc::new(AtomicU64::new(0));
    let (started, starts) = mpsc::channel();
    let mut threads = Vec::new();
    for mut sends in senders {
        let (started, taken) = (started.clone(), Arc::clone(&taken));
        let thread = thread::Builder::new().spawn(move || {
            let _ = started.send(rustix::thread::gettid());
            times(|| {
                let sent = sends();
                taken.fetch_add(u64::from(sent), Relaxed);
                sent
            });
        });
        threads.push(thread.ok()?);
    }
    let numbers: Vec<_> = starts.iter().take(threads.len()).collect();
    // Between two looks a thread that slept for another reason would have gone on.
    let mut before = None;
    let capacity = patiently(|| {
        let now = numbers.iter().all(|&thread| sleeps(thread)).then(|| taken.load(Relaxed));
        let same = now.filter(|_| now == before);
        before = now;
        same
    });
    // Senders that wait are told that the receiver has gone, and end.
    drop(receiver);
    patiently(|| threads.iter().all(thread::JoinHandle::is_finished).then_some(()))?;
    capacity
}

/// Looks every millisecond until there is something, for as long as there is patience.
fn patiently<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if Instant::now() > deadline {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a thread of this process waits for something.
fn sleeps(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}
