//! Rows: the limits as a flat list, for printing.

use self::Unit::{BytesPerSecond, Count, Ns};
use super::Limits;
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
        [self.kernel_rows(), self.memory_rows(), self.wake_rows(), self.jitter_rows()].concat()
    }

    /// The cost of the clock and of the kernel.
    fn kernel_rows(&self) -> Vec<LimitRow> {
        let (clock, kernel) = (&self.clock, &self.kernel);
        vec![
            LimitRow::new("clock read", clock.read_ns, Ns, "CLOCK_MONOTONIC"),
            LimitRow::new("clock step", clock.smallest_step_ns, Ns, "smallest seen between two reads"),
            LimitRow::new("empty loop", clock.empty_loop_ns, Ns, "per iteration"),
            LimitRow::new("system call", kernel.syscall_ns, Ns, "gettid"),
            LimitRow::new("page fault", kernel.page_fault_ns, Ns, format!("{} B page", kernel.page_bytes)),
        ]
    }

    /// The transfer of cache lines, and copies.
    fn memory_rows(&self) -> Vec<LimitRow> {
        let mut rows = Vec::new();
        if let Some(line) = &self.cache_line {
            let (fastest, slowest) = line.range_ns();
            let word = if line.steady() { "" } else { "unsteady: " };
            let range = format!("{word}readings from {fastest:.0} to {slowest:.0} ns");
            rows.push(LimitRow::new("cache-line round trip", line.round_trip_ns, Ns, &range));
            let fastest = line.fastest_round_trip_ns;
            rows.push(LimitRow::new("cache-line round trip, fastest", fastest, Ns, "mean of 100"));
        }
        for copy in &self.copy {
            let note = size(copy.size_bytes as usize);
            rows.push(LimitRow::new("copy within a core", copy.same_core_bytes_per_s, BytesPerSecond, &note));
            let ahead = copy.cross_core_ahead_bytes.map(|ahead| format!(", {} ahead", size(ahead as usize)));
            let note = note + &ahead.unwrap_or_default();
            let across = copy.cross_core_bytes_per_s;
            rows.extend(across.map(|across| LimitRow::new("copy across cores", across, BytesPerSecond, note)));
        }
        rows
    }

    /// Wakes by futex.
    fn wake_rows(&self) -> Vec<LimitRow> {
        let wakes = &self.futex;
        let kinds = [
            ("futex wake, same core", "futex round trip, same core", Some(&wakes.same_core), ""),
            (
                "futex wake, other core idle",
                "futex round trip, other core idle",
                wakes.other_core_idle.as_ref(),
                "idle since the last reply",
            ),
            (
                "futex wake, other core busy",
                "futex round trip, other core busy",
                wakes.other_core_busy.as_ref(),
                "kept busy at nice 19",
            ),
        ];
        let rows = kinds.into_iter().filter_map(|(wake, round_trip, figures, note)| {
            let figures = figures?;
            Some([
                LimitRow::new(wake, figures.wake_ns, Ns, note),
                LimitRow::new(round_trip, figures.round_trip_ns, Ns, note),
            ])
        });
        rows.flatten().collect()
    }

    /// How late timers are, and how long the scheduler takes a core away.
    fn jitter_rows(&self) -> Vec<LimitRow> {
        let (timer, scheduler) = (&self.timer, &self.scheduler);
        let sleeps = format!("{} sleeps of 100 us", timer.sleeps);
        let watched = format!("in {:.0} ms", scheduler.watched_ns / 1e6);
        vec![
            LimitRow::new("timer oversleep, p50", timer.p50_ns, Ns, &sleeps),
            LimitRow::new("timer oversleep, p99", timer.p99_ns, Ns, &sleeps),
            LimitRow::new("timer oversleep, max", timer.max_ns, Ns, &sleeps),
            LimitRow::new("scheduler gaps over 10 us", scheduler.gaps_over_10_us as f64, Count, &watched),
            LimitRow::new("scheduler gap, longest", scheduler.longest_gap_ns, Ns, &watched),
        ]
    }
}
