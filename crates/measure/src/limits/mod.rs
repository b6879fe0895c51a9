//! Limits: microbenchmarks of the machine, measured in a few seconds. They are the bounds that
//! stand beside every result.
//!
//! A bound shows how much better a result could be. Each file measures one kind of limit and
//! explains it: [`Clock`], [`Kernel`], [`CacheLine`], [`CopyBandwidth`], [`Futex`], [`TimerJitter`]
//! and [`SchedulerJitter`]. Two files support them: `team` runs pinned threads that end together,
//! and `samples` decides how long to measure and computes medians.
//!
//! Unless a field says otherwise, a figure is the median of many short batches.
//!
//! The figures are only valid for two CPUs and for the time of measuring. On a virtual machine the
//! host may move CPUs to other cores at any time ([`CacheLine::steady`]). So a result is only
//! compared with limits of the same run.

mod cache_line;
mod clock_cost;
mod copy;
mod cpus;
mod futex;
mod jitter;
mod kernel;
pub mod link;
mod rows;
mod samples;
mod team;

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

pub use cache_line::{CacheLine, line_round_trip_ns, steady};
pub use clock_cost::Clock;
pub use copy::CopyBandwidth;
pub use cpus::{available_cpus, end_cpus, listed, pin_to};
pub use futex::{Futex, FutexWake};
pub use jitter::{SchedulerJitter, TimerJitter};
pub use kernel::Kernel;
pub use link::{Link, PacketLoss};
pub use rows::{LimitRow, Unit};

/// The default time for all limits. It is long enough for stable figures.
pub const DEFAULT_BUDGET: Duration = Duration::from_millis(2500);

/// The limits of this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Limits {
    /// The CPUs measured: the one that ran everything and, if there was one, its partner.
    pub cpus: Vec<usize>,
    /// The cost of timing.
    pub clock: Clock,
    /// The minimum cost of entering the kernel.
    pub kernel: Kernel,
    /// The round trip of a cache line between two cores. `null` with a single CPU.
    pub cache_line: Option<CacheLine>,
    /// The bandwidth of copying messages, in ascending order of their size.
    pub copy: Vec<CopyBandwidth>,
    /// How fast a sleeping thread can be woken.
    pub futex: Futex,
    /// How late timers wake a thread.
    pub timer: TimerJitter,
    /// How long a running thread is interrupted.
    pub scheduler: SchedulerJitter,
}

/// Called with the name of what is measured next. If it returns an error, for example after an
/// interrupt, the measurement ends.
pub type Progress<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// Measures all limits in about `budget`. Blocks for that time.
///
/// Uses the first of `cpus`, and for limits across cores also the next one that differs. Others are
/// not used. With one CPU, limits across cores are left out.
///
/// Every measuring thread is a new one. The calling thread sleeps and is never pinned. If the
/// budget is too small for the minimum number of batches, it is exceeded by at most half a second
/// for each quantity.
///
/// Transparent huge pages are disabled for the process during a few milliseconds.
///
/// # Errors
///
/// When `cpus` is empty or not permitted, when a thread cannot be started, when a quantity has no
/// sample, or when `progress` returns an error.
pub fn measure(cpus: &[usize], budget: Duration, progress: Progress<'_>) -> Result<Limits> {
    let home = *cpus.first().context("no CPU to measure on: name at least one")?;
    let away = cpus.iter().copied().find(|&cpu| cpu != home);

    // The shares of the budget in thousandths. The rest is for starting threads.
    let share = |thousandths| budget / 1000 * thousandths;
    let mut line = cache_line::Readings::between(home, away);
    let mut read_line = || line.take(share(8)).context("measuring the cache line");

    progress("clock")?;
    let clock = clock_cost::measure(home, share(50)).context("measuring the clock")?;
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
