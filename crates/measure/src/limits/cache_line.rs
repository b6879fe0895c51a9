//! The cache line: the round trip of one line between two cores.
//!
//! Two pinned threads take turns at counting up one word; each spins with a compare-exchange, so that to see its turn
//! and to answer are one transfer of the line. Nothing that two cores tell each other through memory takes less: a
//! question and its answer move at least one line there and back. What is dearer, on two placements of the CPUs:
//!
//! | way | round trip |
//! |---|---|
//! | compare-exchange on one line (this one) | 50 and 215 ns, steady |
//! | spinning with loads, then a store, on one line | 55 to 85 (by the machine code of the loop) and 330 ns |
//! | the same with a line for each direction, as a ring has | 105 and 485 ns |
//!
//! In a virtual machine the host decides which cores two CPUs really are, and may change its mind within seconds: hence
//! the two figures, both of one machine and one hour. Copying across cores moves with them, threefold. So the line is
//! read once more beside everything else that crosses cores, and all readings are kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clock::time_each;
use super::samples::Samples;
use super::team::{self, Member};

const ROUND_TRIPS: usize = 100;

/// How fast two cores can answer each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheLine {
    /// There and back: the median of the readings.
    pub round_trip_ns: f64,
    /// There and back: the fastest batch of 100 of all readings.
    pub fastest_round_trip_ns: f64,
    /// There and back, each the median of batches of 100: a reading before every other figure that crosses cores, in
    /// the order of measuring (copying by size, the futex), and one after the last.
    pub readings_ns: Vec<f64>,
}

impl CacheLine {
    /// Whether all readings are within a factor of two ([`steady`]). Otherwise the host has moved the CPUs meanwhile, or has not
    /// let them run together, and the figures across cores are of more than one state of the machine.
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

/// More than readings of one placement differ here (1.1), less than those of two (4).
const STEADY: f64 = 2.0;

/// Whether the fastest and the slowest reading can be of one placement of the CPUs.
#[must_use]
pub fn steady((fastest_ns, slowest_ns): (f64, f64)) -> bool {
    slowest_ns <= STEADY * fastest_ns
}

/// One reading of the line between the first two of these CPUs, in about so long; none where there is one CPU, or where it
/// cannot be read now.
pub fn line_round_trip_ns(cpus: &[usize], length: Duration) -> Option<f64> {
    let &home = cpus.first()?;
    let mut readings = Readings::between(home, cpus.iter().copied().find(|&cpu| cpu != home));
    readings.take(length).ok()?;
    readings.medians_ns.first().copied()
}

/// The readings taken so far of the line between two CPUs; of none, where there is one CPU.
pub(super) struct Readings {
    cpus: Option<(usize, usize)>,
    medians_ns: Vec<f64>,
    fastest_ns: f64,
}

impl Readings {
    pub(super) fn between(home: usize, away: Option<usize>) -> Self {
        Self { cpus: away.map(|away| (home, away)), medians_ns: Vec::new(), fastest_ns: f64::INFINITY }
    }

    /// Takes one more.
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

/// A word alone in its line, and in the neighbour that some processors fetch along with it.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Line(pub(super) AtomicU64);

/// Each sample is the mean round trip of a batch.
fn round_trips(home: usize, away: usize, length: Duration) -> Result<Samples> {
    let Line(ball) = &Line::default();
    // Relaxed where it fails: nothing is read through the word, and the look is repeated.
    let take_turn = |turn| ball.compare_exchange(turn, turn + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let partner = Member::new(away, move |stop| {
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
    fn one_reading_far_off_is_enough_to_be_unsteady() {
        assert!(line(&[60.0, 85.0, 57.0]).steady());
        assert!(!line(&[60.0, 330.0, 60.0]).steady());
        assert!(!line(&[330.0, 330.0, 60.0]).steady());
        assert_eq!(line(&[60.0, 330.0, 57.0]).range_ns(), (57.0, 330.0));
    }

    #[test]
    fn one_cpu_has_no_line() {
        let mut readings = Readings::between(0, None);
        readings.take(Duration::from_secs(60)).unwrap();
        assert_eq!(readings.finish().unwrap(), None);
    }
}
