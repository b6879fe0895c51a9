//! Jitter: how late a timer wakes a thread, and how long a running thread is interrupted.
//!
//! *Timer*: a thread sleeps for 100 us (`clock_nanosleep`, `CLOCK_MONOTONIC`) again and again. The
//! oversleep is the error of everything that is paced by sleeping. The thread's timer slack is set
//! to 1 ns. The default is 50 us, with which the median oversleep was 75 us instead of 17 on the
//! development machine.
//!
//! *Scheduler*: a thread reads the clock in a loop. A gap between two reads is time that an
//! interrupt, another thread or the host took from it. The tail latency of every mechanism includes
//! such gaps. Medians would hide them, so counts and maxima are reported, with the total time.

use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::thread::{ClockId, NanosleepRelativeResult, Timespec, clock_nanosleep_relative, set_current_timer_slack};
use serde::{Deserialize, Serialize};

use super::samples::{SampleWindow, Samples, nanos};
use super::team;
use crate::clock::now_ns;

const SLEEP_NS: u64 = 100_000;
const LONG_GAP_NS: u64 = 10_000;

/// The oversleep of a sleep of 100 us with a timer slack of 1 ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TimerJitter {
    /// The median oversleep in nanoseconds.
    pub p50_ns: f64,
    /// The 99th percentile of the oversleep in nanoseconds.
    pub p99_ns: f64,
    /// The longest oversleep in nanoseconds.
    pub max_ns: f64,
    /// The number of sleeps.
    pub sleeps: u64,
}

/// The interruptions of a thread that never sleeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SchedulerJitter {
    /// The number of gaps longer than 10 us.
    pub gaps_over_10_us: u64,
    /// The longest gap in nanoseconds.
    pub longest_gap_ns: f64,
    /// The total time of the measurement in nanoseconds.
    pub watched_ns: f64,
}

/// Measures timer jitter on `cpu`.
pub(super) fn timer(cpu: usize, length: Duration) -> Result<TimerJitter> {
    team::run(cpu, [], |_| {
        set_current_timer_slack(NonZeroU64::new(1)).context("cannot set the timer slack")?;
        let request = Timespec { tv_sec: 0, tv_nsec: SLEEP_NS as i64 };
        let window = SampleWindow::open(length);
        let mut oversleeps = Samples::default();
        while !window.over(oversleeps.len()) {
            let start = now_ns();
            match clock_nanosleep_relative(ClockId::Monotonic, &request) {
                NanosleepRelativeResult::Ok => {
                    oversleeps.push((now_ns() - start) as f64 - SLEEP_NS as f64);
                }
                NanosleepRelativeResult::Interrupted(_) => {}
                NanosleepRelativeResult::Err(error) => return Err(error).context("cannot sleep"),
            }
        }
        let sleeps = oversleeps.len() as u64;
        let [p50_ns, p99_ns, max_ns] = oversleeps.quantiles([0.5, 0.99, 1.0])?;
        Ok(TimerJitter { p50_ns, p99_ns, max_ns, sleeps })
    })
}

/// Measures scheduler jitter on `cpu`.
pub(super) fn scheduler(cpu: usize, length: Duration) -> Result<SchedulerJitter> {
    team::run(cpu, [], |_| {
        let start = now_ns();
        let end = start.saturating_add(nanos(length));
        let (mut last, mut longest, mut long_gaps) = (start, 0, 0);
        while last < end {
            let now = now_ns();
            let gap = now - last;
            longest = longest.max(gap);
            long_gaps += u64::from(gap > LONG_GAP_NS);
            last = now;
        }
        Ok(SchedulerJitter {
            gaps_over_10_us: long_gaps,
            longest_gap_ns: longest as f64,
            watched_ns: (last - start) as f64,
        })
    })
}
