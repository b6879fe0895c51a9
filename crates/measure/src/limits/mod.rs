//! Limits: what this machine allows at best, in a few seconds, to stand beside every result.
//!
//! A result is worth little before one knows how much better it could be. Each file here measures one kind of limit and
//! says why it is one: [`Clock`], [`Kernel`], [`CacheLine`], [`CopyBandwidth`], [`Futex`], [`TimerJitter`] and
//! [`SchedulerJitter`]. All else supports them: `team` runs pinned threads that end together, `samples` decides for how
//! long to measure and reports medians.
//!
//! Unless a field says otherwise, a figure is the median of many short batches.
//!
//! The figures are of two CPUs and of now; on a virtual machine above all, where the host may move CPUs to other cores
//! at any time ([`CacheLine::steady`]). So a result is compared with limits of the same run.

mod cache_line;
mod clock;
mod copy;
mod cpus;
mod futex;
mod jitter;
mod kernel;
mod rows;
mod samples;
mod team;

use std::time::Duration;

use anyhow::{Context as _, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cache_line::{CacheLine, line_round_trip_ns, steady};
pub use clock::Clock;
pub use copy::CopyBandwidth;
pub use cpus::{available_cpus, ends, listed, pin_to};
pub use futex::{Futex, FutexWake};
pub use jitter::{SchedulerJitter, TimerJitter};
pub use kernel::Kernel;
pub use rows::{LimitRow, Unit};

/// A budget that gives steady figures.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(2500);

/// What this machine allows at best.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// The CPUs measured: the one that ran everything and, if there was one, its partner.
    pub cpus: Vec<usize>,
    /// What timing itself costs.
    pub clock: Clock,
    /// What the kernel charges at least.
    pub kernel: Kernel,
    /// How fast two cores can answer each other; none with a single CPU.
    pub cache_line: Option<CacheLine>,
    /// How fast messages can be copied, in ascending order of their size.
    pub copy: Vec<CopyBandwidth>,
    /// How fast a sleeping thread can be woken.
    pub futex: Futex,
    /// How late timers wake.
    pub timer: TimerJitter,
    /// For how long a running thread is not let run.
    pub scheduler: SchedulerJitter,
}

/// Told what is measured next. An error of it, such as an interrupt's, ends the measurement.
pub type Progress<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// Measures all limits in about `budget`, on the first of `cpus` and, for what takes two, between it and the next one
/// that differs; any more are left alone. `progress` is told what comes next.
///
/// Every thread that measures is a new one; the calling thread sleeps and is never pinned. With one CPU nothing spins,
/// and what takes two is left out. A budget too small for the least number of batches is overrun, by no more than half
/// a second for each quantity.
///
/// Transparent huge pages are off for the process during a few milliseconds.
///
/// # Errors
///
/// `cpus` is empty or not permitted; a thread cannot be started; a quantity gave no figure at all; or an error of `progress`.
pub fn measure(cpus: &[usize], budget: Duration, progress: Progress<'_>) -> Result<Limits> {
    let home = *cpus.first().context("no CPU to measure on: name at least one")?;
    let away = cpus.iter().copied().find(|&cpu| cpu != home);

    // The shares of the budget, in thousandths; what is left over goes to starting threads.
    let share = |thousandths| budget / 1000 * thousandths;
    let mut line = cache_line::Readings::between(home, away);
    let mut read_line = || line.take(share(8)).context("measuring the cache line");

    progress("clock")?;
    let clock = clock::measure(home, share(50)).context("measuring the clock")?;
    progress("kernel")?;
    let kernel = kernel::measure(home, share(50)).context("measuring the kernel")?;
    let mut copy = Vec::with_capacity(copy::SIZES.len());
    for size in copy::SIZES {
        progress("cache line and copying")?;
        read_line()?;
        copy.push(copy::measure(home, away, size, share(38)).context("measuring copying")?);
    }
    progress("futex")?;
    read_line()?;
    let futex = futex::measure(home, away, share(260)).context("measuring the futex")?;
    read_line()?;
    progress("timer jitter")?;
    let timer = jitter::timer(home, share(120)).context("measuring timer jitter")?;
    progress("scheduler jitter")?;
    let scheduler = jitter::scheduler(home, share(100)).context("measuring scheduler jitter")?;

    let cache_line = line.finish()?;
    let cpus = [home].into_iter().chain(away).collect();
    Ok(Limits { cpus, clock, kernel, cache_line, copy, futex, timer, scheduler })
}

#[cfg(test)]
mod tests;
