//! The cache line: the round trip of one line between two cores.
//!
//! Two pinned threads take turns incrementing one word. Each spins with a compare-exchange, so that
//! seeing its turn and replying is one transfer of the line. No communication between two cores
//! through memory is faster: a request and its reply move at least one line in each direction.
//! Other ways were slower, measured on two placements of the CPUs:
//!
//! | way | round trip |
//! |---|---|
//! | compare-exchange on one line (this one) | 50 and 215 ns, steady |
//! | spinning with loads, then a store, on one line | 55 to 85 (by the machine code of the loop) and 330 ns |
//! | the same with a line for each direction, as a ring has | 105 and 485 ns |
//!
//! In a virtual machine the host decides on which physical cores two CPUs run, and may change that
//! within seconds. That is why each row has two figures, both from one machine within one hour. The
//! bandwidth of copying across cores changes with them by a factor of three. So the round trip is
//! measured again before every other figure across cores, and all readings are recorded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::clock_cost::time_each;
use super::samples::Samples;
use super::team::{self, TeamMember};

const ROUND_TRIPS: usize = 100;

/// The round trip of a cache line between two cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CacheLine {
    /// The median of the readings, in nanoseconds.
    pub round_trip_ns: f64,
    /// The mean of the fastest batch of 100 round trips in all readings, in nanoseconds.
    pub fastest_round_trip_ns: f64,
    /// The readings in nanoseconds. Each is the median of batches of 100 round trips. There is one
    /// before every other figure across cores, in the order of measuring (copying by size, the
    /// futex), and one after the last.
    pub readings_ns: Vec<f64>,
}

impl CacheLine {
    /// Whether all readings are within a factor of two ([`steady`]).
    ///
    /// Otherwise the host has moved the CPUs during the measurement, or has not run them at the
    /// same time. The figures across cores then belong to more than one state of the machine.
    #[must_use]
    pub fn steady(&self) -> bool {
        steady(self.range_ns())
    }

    /// The fastest and the slowest reading.
    #[must_use]
    pub fn range_ns(&self) -> (f64, f64) {
        let readings = || self.readings_ns.iter().copied();
        (readings().fold(f64::INFINITY, f64::min), readings().fold(0.0, f64::max))
    }
}

/// The maximum ratio of two readings of one placement. On the development machine, readings of one
/// placement differed by a factor of 1.1, and those of two placements by a factor of 4.
const STEADY: f64 = 2.0;

/// Whether the fastest and the slowest reading can belong to one placement of the CPUs.
#[must_use]
pub fn steady((fastest_ns, slowest_ns): (f64, f64)) -> bool {
    slowest_ns <= STEADY * fastest_ns
}

/// Measures the round trip of a cache line between the first two different CPUs of `cpus`, in
/// nanoseconds. Takes about `length`. `None` if there is only one CPU, or if the measurement fails.
pub fn line_round_trip_ns(cpus: &[usize], length: Duration) -> Option<f64> {
    let &home = cpus.first()?;
    let mut readings = Readings::between(home, cpus.iter().copied().find(|&cpu| cpu != home));
    readings.take(length).ok()?;
    readings.medians_ns.first().copied()
}

/// The readings so far of the round trip between two CPUs. With one CPU there are none.
pub(super) struct Readings {
    cpus: Option<(usize, usize)>,
    medians_ns: Vec<f64>,
    fastest_ns: f64,
}

impl Readings {
    pub(super) fn between(home: usize, away: Option<usize>) -> Self {
        Self { cpus: away.map(|away| (home, away)), medians_ns: Vec::new(), fastest_ns: f64::INFINITY }
    }

    /// Takes one more reading.
    pub(super) fn take(&mut self, length: Duration) -> Result<()> {
        let Some((home, away)) = self.cpus else { return Ok(()) };
        let [median, fastest] = round_trips(home, away, length)?.quantiles([0.5, 0.0])?;
        self.medians_ns.push(median);
        self.fastest_ns = self.fastest_ns.min(fastest);
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Option<CacheLine>> {
        if self.cpus.is_none() {
            return Ok(None);
        }
        Ok(Some(CacheLine {
            round_trip_ns: Samples::from(self.medians_ns.clone()).median()?,
            fastest_round_trip_ns: self.fastest_ns,
            readings_ns: self.medians_ns,
        }))
    }
}

/// A word alone in its cache line, and in the adjacent line that some processors prefetch with it.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Line(pub(super) AtomicU64);

/// Measures round trips for `length`. Each sample is the mean of a batch.
fn round_trips(home: usize, away: usize, length: Duration) -> Result<Samples> {
    let Line(ball) = &Line::default();
    // Relaxed on failure: no other data is read then, and the exchange is repeated.
    let take_turn = |turn| ball.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let partner = TeamMember::new(away, move |stop| {
        let mut turn = 1;
        while stop.spin(|| take_turn(turn)) {
            turn += 2;
        }
        Ok(())
    });
    team::run(home, [partner], |stop| {
        let mut turn = 0;
        let mut answered = true;
        Ok(Samples::take(length, || {
            let each = time_each(ROUND_TRIPS, || {
                for _ in 0..ROUND_TRIPS {
                    answered = answered && stop.spin(|| take_turn(turn));
                    turn += 2;
                }
                answered = answered && stop.spin_until(ball, turn);
            });
            answered.then_some(each)
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(readings_ns: &[f64]) -> CacheLine {
        CacheLine { round_trip_ns: 60.0, fastest_round_trip_ns: 50.0, readings_ns: readings_ns.to_vec() }
    }

    #[test]
    fn one_outlier_makes_the_readings_unsteady() {
        assert!(line(&[60.0, 85.0, 57.0]).steady());
        assert!(!line(&[60.0, 330.0, 60.0]).steady());
        assert!(!line(&[330.0, 330.0, 60.0]).steady());
        assert_eq!(line(&[60.0, 330.0, 57.0]).range_ns(), (57.0, 330.0));
    }

    #[test]
    fn one_cpu_has_no_reading() {
        let mut readings = Readings::between(0, None);
        readings.take(Duration::from_secs(60)).unwrap();
        assert_eq!(readings.finish().unwrap(), None);
    }
}
