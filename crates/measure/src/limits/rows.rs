//! Rows: the limits as a flat list, for printing.

use super::{FutexWake, Limits};
use crate::units::size;

/// The unit of a [`LimitRow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes per second.
    BytesPerSecond,
    /// A number of events.
    Count,
}

/// One figure of the limits.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitRow {
    /// The name of the quantity. Copying has one row for each size, all with the same name.
    pub name: &'static str,
    /// The figure.
    pub value: f64,
    /// The unit of `value`.
    pub unit: Unit,
    /// The conditions of the measurement. May be empty.
    pub note: String,
}

impl LimitRow {
    fn new(name: &'static str, value: f64, unit: Unit, note: impl Into<String>) -> Self {
        Self { name, value, unit, note: note.into() }
    }
}

impl Limits {
    /// All figures in the order of measuring. With a single CPU, figures across cores are left out.
    #[must_use]
    pub fn rows(&self) -> Vec<LimitRow> {
        use Unit::{BytesPerSecond, Count, Ns};

        let mut rows = Vec::new();
        let mut row = |name, value, unit, note: &str| {
            rows.push(LimitRow::new(name, value, unit, note));
        };
        let clock = &self.clock;
        row("clock read", clock.read_ns, Ns, "CLOCK_MONOTONIC");
        row("clock step", clock.smallest_step_ns, Ns, "smallest seen between two reads");
        row("empty loop", clock.empty_loop_ns, Ns, "per iteration");

        let kernel = &self.kernel;
        row("system call", kernel.syscall_ns, Ns, "gettid");
        row("page fault", kernel.page_fault_ns, Ns, &format!("{} B page", kernel.page_bytes));

        if let Some(line) = &self.cache_line {
            let (fastest, slowest) = line.range_ns();
            let word = if line.steady() { "" } else { "unsteady: " };
            let range = format!("{word}readings from {fastest:.0} to {slowest:.0} ns");
            row("cache-line round trip", line.round_trip_ns, Ns, &range);
            row("cache-line round trip, fastest", line.fastest_round_trip_ns, Ns, "mean of 100");
        }
        for copy in &self.copy {
            let note = size(copy.size_bytes as usize);
            row("copy within a core", copy.same_core_bytes_per_s, BytesPerSecond, &note);
            if let Some(cross) = copy.cross_core_bytes_per_s {
                row("copy across cores", cross, BytesPerSecond, &note);
            }
        }

        let mut futex = |wake, round_trip, figures: Option<&FutexWake>, note| {
            if let Some(figures) = figures {
                row(wake, figures.wake_ns, Ns, note);
                row(round_trip, figures.round_trip_ns, Ns, note);
            }
        };
        let wakes = &self.futex;
        futex("futex wake, same core", "futex round trip, same core", Some(&wakes.same_core), "");
        futex(
            "futex wake, other core idle",
            "futex round trip, other core idle",
            wakes.other_core_idle.as_ref(),
            "idle since the last reply",
        );
        futex(
            "futex wake, other core busy",
            "futex round trip, other core busy",
            wakes.other_core_busy.as_ref(),
            "kept busy at nice 19",
        );

        let timer = &self.timer;
        let sleeps = format!("{} sleeps of 100 us", timer.sleeps);
        row("timer oversleep, p50", timer.p50_ns, Ns, &sleeps);
        row("timer oversleep, p99", timer.p99_ns, Ns, &sleeps);
        row("timer oversleep, max", timer.max_ns, Ns, &sleeps);

        let scheduler = &self.scheduler;
        let watched = format!("in {:.0} ms", scheduler.watched_ns / 1e6);
        let gaps = scheduler.gaps_over_10_us as f64;
        row("scheduler gaps over 10 us", gaps, Count, &watched);
        row("scheduler gap, longest", scheduler.longest_gap_ns, Ns, &watched);
        rows
    }
}
