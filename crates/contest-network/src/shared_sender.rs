//! An outlet that several threads share: one lock around it, and one call for all that wait for the lock at the same time.
//!
//! Whoever has the lock adds what it sends to what is there. Where somebody else is already waiting for the lock, that one takes
//! it along; the last one sends it. So nothing waits for a message that has yet to be made, a thread is done once its own
//! message has left or the next one has it in hand, and nobody goes on sending for the others.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::frames::{Outlet, TOGETHER};

/// A thread's share of an outlet.
pub(super) struct SharedSender<O> {
    common: Arc<Common<O>>,
}

struct Common<O> {
    /// How many have something to send and do not have the lock yet.
    coming: AtomicUsize,
    line: Mutex<Line<O>>,
}

struct Line<O> {
    outlet: O,
    /// What the next one is to take along.
    left: Vec<u8>,
}

impl<O: Outlet> SharedSender<O> {
    pub(super) fn new(outlet: O) -> SharedSender<O> {
        let line = Mutex::new(Line { outlet, left: Vec::with_capacity(TOGETHER) });
        SharedSender { common: Arc::new(Common { coming: AtomicUsize::new(0), line }) }
    }
}

impl<O> Clone for SharedSender<O> {
    fn clone(&self) -> SharedSender<O> {
        SharedSender { common: Arc::clone(&self.common) }
    }
}

impl<O: Outlet> Outlet for SharedSender<O> {
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        // The count goes down under the lock alone: whoever is still counted will have the lock after this thread.
        self.common.coming.fetch_add(1, Ordering::Relaxed);
        let mut line = self.common.line.lock().unwrap_or_else(PoisonError::into_inner);
        let others = self.common.coming.fetch_sub(1, Ordering::Relaxed) > 1;
        let Line { outlet, left } = &mut *line;
        let fits = left.len() + frames.len() <= TOGETHER;
        if !fits {
            outlet.send(left)?;
            left.clear();
        }
        if others && frames.len() <= TOGETHER {
            left.extend_from_slice(frames);
            return Ok(());
        }
        if left.is_empty() {
            return outlet.send(frames);
        }
        left.extend_from_slice(frames);
        outlet.send(left)?;
        left.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// What was sent, call by call.
    struct Calls(Sender<Vec<u8>>);

    impl Outlet for Calls {
        fn send(&mut self, frames: &[u8]) -> io::Result<()> {
            self.0.send(frames.to_vec()).map_err(io::Error::other)
        }
    }

    #[test]
    fn what_waits_for_the_lock_leaves_in_one_call_and_what_is_alone_at_once() {
        let (sender, calls) = channel();
        let mut joint = SharedSender::new(Calls(sender));
        joint.send(b"alone").unwrap();
        let common = Arc::clone(&joint.common);
        let locked = common.line.lock().unwrap();
        thread::scope(|scope| {
            for name in [b"a", b"b", b"c"] {
                let mut joint = joint.clone();
                scope.spawn(move || joint.send(name).unwrap());
            }
            let deadline = Instant::now() + Duration::from_secs(60);
            while common.coming.load(Ordering::Relaxed) < 3 {
                assert!(Instant::now() < deadline, "three threads come to the lock");
                thread::yield_now();
            }
            drop(locked);
        });
        drop((joint, common));
        let mut calls: Vec<Vec<u8>> = calls.iter().collect();
        calls[1..].iter_mut().for_each(|call| call.sort_unstable());
        assert_eq!(calls, [b"alone".to_vec(), b"abc".to_vec()]);
    }

    #[test]
    fn frames_stay_whole_and_each_threads_in_order() {
        const THREADS: u8 = 4;
        // Some are longer than what is sent together.
        const LENGTHS: [usize; 4] = [3, 100, 40_000, TOGETHER + 1];
        let (sender, calls) = channel();
        let joint = SharedSender::new(Calls(sender));
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut joint = joint.clone();
                scope.spawn(move || {
                    for number in 0..200_u8 {
                        let mut frame = vec![thread; LENGTHS[usize::from(number) % LENGTHS.len()]];
                        frame[1] = number;
                        joint.send(&frame).unwrap();
                    }
                });
            }
        });
        drop(joint);
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
