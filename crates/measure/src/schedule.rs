//! Open loop: messages are due at absolute times, whether the ones before have arrived or not.
//!
//! Message `i` of producer `p` is due at `start + (i × producers + p) / rate`, so both ends know when without a word in the
//! message. Its latency counts from then: time blocked in a send is latency, of that message and of all that it delays.

use std::future::poll_fn;
use std::hint::spin_loop;
use std::task::Poll;

use crate::clock::now_ns;

/// When messages are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    start_ns: u64,
    /// Between two messages, of all producers together.
    step_ns: f64,
    producers: usize,
}

impl Schedule {
    /// From `start_ns` on, at so many messages a second of so many producers together.
    pub(crate) fn new(start_ns: u64, per_second: u64, producers: usize) -> Schedule {
        Schedule { start_ns, step_ns: 1e9 / per_second as f64, producers }
    }

    /// When a producer's message of this number is due.
    pub(crate) fn due_ns(&self, producer: usize, number: u64) -> u64 {
        let place = number as f64 * self.producers as f64 + producer as f64;
        self.start_ns + (place * self.step_ns) as u64
    }

    /// Waits until a time by looking at the clock; between looks others of the runtime may run. Returns when it was ready
    /// where it was late by itself: the time had not yet come as it began, and was over by more than a step as it ended.
    /// Whatever was due until then is late for the same reason.
    pub(crate) async fn wait(&self, due_ns: u64) -> Option<u64> {
        let mut now = now_ns();
        if now >= due_ns {
            return None;
        }
        while now < due_ns {
            yield_now().await;
            now = now_ns();
        }
        self.late(now, due_ns)
    }

    /// As [`Schedule::wait`], on a thread of one's own.
    pub(crate) fn spin(&self, due_ns: u64) -> Option<u64> {
        let mut now = now_ns();
        if now >= due_ns {
            return None;
        }
        while now < due_ns {
            spin_loop();
            now = now_ns();
        }
        self.late(now, due_ns)
    }

    fn late(&self, now_ns: u64, due_ns: u64) -> Option<u64> {
        ((now_ns - due_ns) as f64 > self.step_ns * self.producers as f64).then_some(now_ns)
    }
}

/// Lets the runtime run something else.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_take_turns() {
        let schedule = Schedule::new(1_000, 1_000_000, 2);
        let due: Vec<u64> = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(p, n)| schedule.due_ns(p, n)).into();
        assert_eq!(due, [1_000, 2_000, 3_000, 4_000]);
        assert_eq!(schedule.due_ns(0, 500_000), 1_000 + 1_000_000_000, "nothing adds up over a second");
    }

    #[test]
    fn what_is_due_already_is_not_waited_for() {
        let schedule = Schedule::new(now_ns(), 1_000, 1);
        assert_eq!(schedule.spin(0), None);
        let due_ns = now_ns() + 200_000;
        schedule.spin(due_ns);
        assert!(now_ns() >= due_ns);
        let due_ns = now_ns() + 200_000;
        pollster::block_on(schedule.wait(due_ns));
        assert!(now_ns() >= due_ns);
    }
}
