//! Open-loop load: messages are due at absolute times, whether or not earlier ones have arrived.
//!
//! With constant arrivals, message `i` of producer `p` is due at
//! `start + (i × producers + p) / rate`. With Poisson arrivals, the time between two messages of a
//! producer is exponentially distributed and computed from the instance's seed. So both ends know
//! when a message is due, and the message does not contain a time.
//!
//! The latency of a message counts from the time at which it is due. If a send blocks, the blocked
//! time is part of the latency of that message and of all messages that it delays. This avoids
//! coordinated omission.

use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;

use fastrand::Rng;

use crate::case::{Case, Load};

/// The times at which messages are due.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    start_ns: u64,
    /// The time between two messages of all producers together. The mean, if the times are random.
    step_ns: f64,
    producers: usize,
    /// One for each producer, with Poisson arrivals.
    random: Option<Vec<RandomTimes>>,
}

/// The random times at which the messages of one producer are due, in order.
#[derive(Clone, Debug)]
struct RandomTimes {
    random: Rng,
    /// The number of messages whose times have been computed.
    count: u64,
    /// The time from the start until the last of them is due.
    due_ns: f64,
}

impl RandomTimes {
    fn new(seed: u64, producer: usize) -> RandomTimes {
        let mut random = Rng::with_seed(seed);
        (0..=producer).for_each(|_| random = random.fork());
        RandomTimes { random, count: 0, due_ns: 0.0 }
    }

    /// The time from the start until message `number` is due, counted from 0. To be called with
    /// ascending numbers. With a lower number than before, it returns the last time again.
    fn due_ns(&mut self, number: u64, mean_ns: f64) -> f64 {
        while self.count <= number {
            self.count += 1;
            self.due_ns -= mean_ns * (1.0 - self.random.f64()).ln();
        }
        self.due_ns
    }
}

impl Schedule {
    /// The schedule of a case from `start_ns` on. `None` if producers send as fast as they can.
    pub(crate) fn new(case: &Case, start_ns: u64, seed: u64) -> Option<Schedule> {
        let producers = case.producers;
        let random = matches!(case.load, Load::Poisson(_))
            .then(|| (0..producers).map(|producer| RandomTimes::new(seed, producer)).collect());
        Some(Schedule { start_ns, step_ns: 1e9 / case.load.rate()? as f64, producers, random })
    }

    /// The time at which message `number` of a producer is due, counted from 0.
    pub(crate) fn due_ns(&mut self, producer: usize, number: u64) -> u64 {
        let mean_ns = self.step_ns * self.producers as f64;
        let since_start_ns = match &mut self.random {
            Some(all) => all[producer].due_ns(number, mean_ns),
            None => (number as f64 * self.producers as f64 + producer as f64) * self.step_ns,
        };
        self.start_ns + since_start_ns as u64
    }

    /// The number of messages of all producers that are due within a range of times. To be called
    /// before [`Schedule::due_ns`].
    pub(crate) fn due_within(mut self, times_ns: &Range<u64>) -> u64 {
        (0..self.producers).map(|producer| self.due_of(producer, times_ns)).sum()
    }

    fn due_of(&mut self, producer: usize, times_ns: &Range<u64>) -> u64 {
        let due = (0..).map(|number| self.due_ns(producer, number)).take_while(|due_ns| *due_ns < times_ns.end);
        due.filter(|due_ns| *due_ns >= times_ns.start).count() as u64
    }

    /// Whether a sender that waited until `due_ns` and continued at `now_ns` is late by its own
    /// fault: by more than the time between two of its messages. All messages that were due in the
    /// meantime are late for the same reason.
    pub(crate) fn is_late(&self, now_ns: u64, due_ns: u64) -> bool {
        now_ns.saturating_sub(due_ns) as f64 > self.step_ns * self.producers as f64
    }
}

/// Yields to the other tasks of the runtime once.
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

    fn schedule(start_ns: u64, load: Load, producers: usize) -> Schedule {
        let mut case: Case = serde_json::from_str(
            r#"{"mechanism": "thread/x", "cell": {"scope": "thread", "pattern": "fan-in", "payload": "u64", "producers": 1,
                "capacity": 1, "runtime": "thread", "wait": "spin", "place": "free"}}"#,
        )
        .unwrap();
        (case.cell.load, case.cell.producers) = (load, producers);
        Schedule::new(&case, start_ns, 7).unwrap()
    }

    #[test]
    fn poisson_arrivals_have_the_given_rate_and_are_exponentially_distributed() {
        const MESSAGES: u64 = 100_000;
        let [mut sender, mut receiver] = [(); 2].map(|()| schedule(0, Load::Poisson(1_000_000), 2));
        // The receiver computes the times of both producers, a sender only its own.
        let received: Vec<_> = (0..MESSAGES).map(|n| [0, 1].map(|producer| receiver.due_ns(producer, n))).collect();
        for (number, [first, second]) in (0..).zip(&received) {
            assert_eq!(sender.due_ns(1, number), *second, "both ends compute the same times");
            assert_ne!(first, second);
        }
        let due: Vec<u64> = received.iter().map(|[first, _]| *first).collect();
        let gaps: Vec<f64> = due.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = |values: &dyn Fn(f64) -> f64| gaps.iter().map(|gap| values(*gap)).sum::<f64>() / gaps.len() as f64;
        let (average, square) = (mean(&|gap| gap), mean(&|gap| gap * gap));
        assert!((average / 2_000.0 - 1.0).abs() < 0.02, "{average}");
        // The standard deviation of an exponential distribution equals its mean. A share of 1/e
        // (0.368) is longer than the mean.
        assert!(((square - average * average).sqrt() / average - 1.0).abs() < 0.03, "{square}");
        let longer = mean(&|gap| f64::from(gap > average));
        assert!((longer - 0.368).abs() < 0.01, "{longer}");
        assert_eq!(sender.due_ns(1, 0), received[MESSAGES as usize - 1][1], "a lower number repeats the last time");
    }

    #[test]
    fn producers_take_turns() {
        let mut schedule = schedule(1_000, Load::Rate(1_000_000), 2);
        let due: Vec<u64> = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(p, n)| schedule.due_ns(p, n)).into();
        assert_eq!(due, [1_000, 2_000, 3_000, 4_000]);
        assert_eq!(schedule.due_ns(0, 500_000), 1_000 + 1_000_000_000, "rounding errors do not accumulate");
    }

    #[test]
    fn the_messages_of_a_window_are_counted() {
        let constant = || schedule(1_000, Load::Rate(1_000_000), 2);
        assert_eq!(constant().due_within(&(0..1_000)), 0);
        assert_eq!(constant().due_within(&(1_000..4_001)), 4);
        assert_eq!(constant().due_within(&(3_000..1_000_000)), 997);
        let (mut one_by_one, window) = (schedule(0, Load::Poisson(1_000_000), 1), 100_000_u64..300_000);
        let times: Vec<u64> = (0..1_000).map(|number| one_by_one.due_ns(0, number)).collect();
        let expected = times.iter().filter(|due_ns| window.contains(*due_ns)).count() as u64;
        assert_eq!(schedule(0, Load::Poisson(1_000_000), 1).due_within(&window), expected);
    }

    #[test]
    fn a_sender_is_late_after_the_time_between_two_of_its_messages() {
        let schedule = schedule(0, Load::Rate(1_000_000), 2);
        assert_eq!([5_000, 7_000, 7_001].map(|now_ns| schedule.is_late(now_ns, 5_000)), [false, false, true]);
        assert!(!schedule.is_late(0, 5_000));
    }
}
