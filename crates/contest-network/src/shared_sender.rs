//! A sink that several threads share: one lock, and one call for all frames whose threads wait for
//! the lock at the same time.
//!
//! The thread with the lock appends its frames to those that are pending. If another thread already
//! waits for the lock, that thread takes the pending frames along; the last one sends them. So
//! nothing waits for a message that does not exist yet. A thread returns when its message is sent
//! or the next thread is responsible for it, and no thread keeps sending for the others.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::frames::{BATCH_BYTES, FrameSink};

/// One thread's handle of a shared sink.
pub(super) struct SharedSender<O> {
    shared: Arc<Shared<O>>,
}

struct Shared<O> {
    /// The number of threads that have something to send and do not have the lock yet.
    waiting: AtomicUsize,
    state: Mutex<State<O>>,
}

struct State<O> {
    outlet: O,
    /// Frames that the next thread takes along.
    pending: Vec<u8>,
}

impl<O: FrameSink> SharedSender<O> {
    pub(super) fn new(outlet: O) -> SharedSender<O> {
        let state = Mutex::new(State { outlet, pending: Vec::with_capacity(BATCH_BYTES) });
        SharedSender { shared: Arc::new(Shared { waiting: AtomicUsize::new(0), state }) }
    }
}

impl<O> Clone for SharedSender<O> {
    fn clone(&self) -> SharedSender<O> {
        SharedSender { shared: Arc::clone(&self.shared) }
    }
}

impl<O: FrameSink> FrameSink for SharedSender<O> {
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        // The count decreases only under the lock. So a thread that is still counted will get the
        // lock after this one.
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let others = self.shared.waiting.fetch_sub(1, Ordering::Relaxed) > 1;
        let State { outlet, pending } = &mut *state;
        let fits = pending.len() + frames.len() <= BATCH_BYTES;
        if !fits {
            outlet.send(pending)?;
            pending.clear();
        }
        if others && frames.len() <= BATCH_BYTES {
            pending.extend_from_slice(frames);
            return Ok(());
        }
        if pending.is_empty() {
            return outlet.send(frames);
        }
        pending.extend_from_slice(frames);
        outlet.send(pending)?;
        pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Records what was sent, call by call.
    struct Calls(Sender<Vec<u8>>);

    impl FrameSink for Calls {
        fn send(&mut self, frames: &[u8]) -> io::Result<()> {
            self.0.send(frames.to_vec()).map_err(io::Error::other)
        }
    }

    #[test]
    fn frames_waiting_for_the_lock_are_sent_in_one_call_and_a_single_one_immediately() {
        let (sender, calls) = channel();
        let mut sender = SharedSender::new(Calls(sender));
        sender.send(b"alone").unwrap();
        let shared = Arc::clone(&sender.shared);
        let locked = shared.state.lock().unwrap();
        thread::scope(|scope| {
            for name in [b"a", b"b", b"c"] {
                let mut sender = sender.clone();
                scope.spawn(move || sender.send(name).unwrap());
            }
            let deadline = Instant::now() + Duration::from_secs(60);
            while shared.waiting.load(Ordering::Relaxed) < 3 {
                assert!(Instant::now() < deadline, "three threads come to the lock");
                thread::yield_now();
            }
            drop(locked);
        });
        drop((sender, shared));
        let mut calls: Vec<Vec<u8>> = calls.iter().collect();
        calls[1..].iter_mut().for_each(|call| call.sort_unstable());
        assert_eq!(calls, [b"alone".to_vec(), b"abc".to_vec()]);
    }

    #[test]
    fn frames_stay_whole_and_in_order_per_thread() {
        const THREADS: u8 = 4;
        // Some are longer than a batch.
        const LENGTHS: [usize; 4] = [3, 100, 40_000, BATCH_BYTES + 1];
        let (sender, calls) = channel();
        let sender = SharedSender::new(Calls(sender));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut sender = sender.clone();
                scope.spawn(move || {
                    for number in 0..200_u8 {
                        let mut frame = vec![thread; LENGTHS[usize::from(number) % LENGTHS.len()]];
                        frame[1] = number;
                        sender.send(&frame).unwrap();
                    }
                });
            }
        });
        drop(sender);
        let mut next = [0; THREADS as usize];
        let bytes: Vec<u8> = calls.iter().flatten().collect();
        let mut rest = &bytes[..];
        while let [thread, number, ..] = *rest {
            assert_eq!(number, next[usize::from(thread)], "thread {thread}");
            let (frame, others) = rest.split_at(LENGTHS[usize::from(number) % LENGTHS.len()]);
            assert!(frame[2..].iter().all(|byte| *byte == thread), "frame {number} of thread {thread}");
            next[usize::from(thread)] += 1;
            rest = others;
        }
        assert_eq!(next, [200; THREADS as usize]);
    }
}
