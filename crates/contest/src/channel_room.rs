//! How many messages a channel takes while nobody receives: its capacity as tried, whatever it calls by that name.
//!
//! Every sender sends until it has to wait; what counts is the sends that did not have to.

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::Pid;

use crate::channel::{Channel, Outcome};

/// The most that is tried: more than this is no limit.
const MOST: usize = 1 << 18;
/// The most senders that are given a thread each.
const MOST_THREADS: usize = 64;
/// How long senders that block are given to come to that.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tries a channel that was asked for so much room; none where it cannot be told.
pub(crate) fn tried<C: Channel>(capacity: usize, senders: usize) -> Option<u64> {
    if capacity > MOST / 4 || C::supports(capacity, senders).is_err() {
        return None;
    }
    let (tx, rx) = C::open::<u64>(capacity, senders);
    let mut txs: Vec<_> = (1..senders).map(|_| tx.clone()).collect();
    txs.push(tx);
    if C::BLOCKS {
        return blocked::<C>(txs, rx);
    }
    Some(txs.iter_mut().map(|tx| sent::<C>(tx, || ())).sum())
}

/// Sends until it would have to wait, or the receiver has gone; how many were sent. `each` is called after each of them.
fn sent<C: Channel>(tx: &mut C::Tx<u64>, each: impl Fn()) -> u64 {
    let messages = (0..MOST).take_while(|_| ready(C::send(tx, 0)).and_then(Outcome::got).is_some());
    messages.inspect(|_| each()).count() as u64
}

/// What a future comes to without waiting.
fn ready<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// As [`tried`], for ends that block: each sender has a thread, and has filled its part once that thread sleeps.
fn blocked<C: Channel>(txs: Vec<C::Tx<u64>>, rx: C::Rx<u64>) -> Option<u64> {
    if txs.len() > MOST_THREADS {
        return None;
    }
    let taken = Arc::new(AtomicU64::new(0));
    let (started, starts) = mpsc::channel();
    let mut senders = Vec::new();
    for mut tx in txs {
        let (started, taken) = (started.clone(), Arc::clone(&taken));
        let sender = thread::Builder::new().spawn(move || {
            let _ = started.send(rustix::thread::gettid());
            sent::<C>(&mut tx, || {
                taken.fetch_add(1, Relaxed);
            });
        });
        senders.push(sender.ok()?);
    }
    let threads: Vec<_> = starts.iter().take(senders.len()).collect();
    // Between two looks a thread that slept for another reason would have gone on.
    let mut before = None;
    let room = patiently(|| {
        let now = threads.iter().all(|&thread| sleeps(thread)).then(|| taken.load(Relaxed));
        let same = now.filter(|_| now == before);
        before = now;
        same
    });
    // Senders that wait are told that the receiver has gone, and end.
    drop(rx);
    patiently(|| senders.iter().all(thread::JoinHandle::is_finished).then_some(()))?;
    room
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

#[cfg(test)]
mod tests {
    use estafette_measure::Spec;
    use estafette_measure::case::{Case, Cell, Load, Pattern, Payload, Place};

    /// What a mechanism says after it was tried.
    fn room(name: &str, capacity: usize, producers: usize) -> Option<u64> {
        let registry = crate::registry();
        let entry = registry.get(name).unwrap();
        let &Spec { scope, ref runtimes, ref waits, .. } = entry.spec();
        let cell = Cell {
            scope,
            pattern: Pattern::FanIn,
            payload: Payload::U64,
            producers,
            capacity,
            runtime: runtimes[0],
            wait: waits[0],
            place: Place::Free,
            load: Load::Saturated,
        };
        entry.room(&Case { mechanism: name.to_owned(), cell })
    }

    #[test]
    fn channels_take_what_they_were_asked_for() {
        assert_eq!(room("task/tokio-mpsc", 1024, 8), Some(1024));
        assert_eq!(room("task/tokio-mpsc-unbounded", 1024, 8), Some(1024), "by credit");
        assert_eq!(room("task/futures-channel", 1024, 8), Some(1024));
        assert_eq!(room("task/flume", 0, 2), Some(0), "a rendezvous");
        assert_eq!(room("task/kanal", 1, 2), Some(1));
        assert_eq!(room("task/stream-map.tokio", 1024, 8), Some(1024), "divided among eight");
        assert_eq!(room("task/tokio-mpsc", 1 << 20, 1), None, "too many to try");
        assert_eq!(room("process/limit-ring", 1024, 1), None);
    }

    #[test]
    fn channels_that_block_are_tried_by_threads() {
        assert_eq!(room("thread/std-mpsc", 100, 2), Some(100));
        assert_eq!(room("thread/crossbeam", 0, 2), Some(0));
    }
}
