//! The futex: the time from a wake call on one thread until another thread runs.
//!
//! The kernel wakes a thread that sleeps until a message arrives. The futex is the fastest way to
//! do that: it needs no descriptor and no copy, only one word in memory. Other ways to block
//! (pipes, sockets, eventfd, condition variables, parked tasks) take at least as long.
//!
//! Two threads take turns at one word: each changes it, wakes the other, and sleeps. The woken
//! thread (the callee) records the time when its wait returns. The caller subtracts the time of its
//! wake call; both use the same clock. A wake only counts if the callee really slept: its wait
//! returned because of the wake, and not because the word had already changed. Round trips include
//! all turns, because an ideal mechanism would have these times too. On one core the caller is
//! often preempted before it sleeps; then it is resumed and not woken (3.1 us instead of 3.6).
//!
//! The waits have no timeout, because arming and disarming a timer takes a sixth of a round trip on
//! one core. To end them, a thread that leaves sets the word to [`ENDED`] and wakes the other. This
//! also happens when it panics or was never started.
//!
//! The times depend on where the two threads run:
//!
//! - On one core, the wake is a context switch.
//! - On another core that is *idle*, the kernel must wake that core, in a virtual machine with the
//!   help of the host.
//! - On another core that is *busy*, the kernel must interrupt what runs there.
//!
//! To keep cores busy, a thread with the lowest priority (nice 19) spins on each of the two.
//! `SCHED_IDLE` is lower still, but setting it needs `unsafe` code. It is not necessary, because
//! the scheduler preempts a thread at nice 19 at once. (A background thread that yields instead of
//! spinning made wakes 50 % slower.) An "idle" core is only idle since the last reply. A
//! core that has been idle for milliseconds wakes more slowly.
//!
//! The futex is private to the process. A futex shared between processes took a tenth longer on one
//! core.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::setpriority_process;
use rustix::thread::futex::{self, Flags};
use serde::{Deserialize, Serialize};

use super::samples::{SampleWindow, Samples};
use super::team::{self, StopFlag, TeamMember};
use crate::clock::now_ns;

const LOWEST_PRIORITY: i32 = 19;

/// How fast a sleeping thread can be woken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FutexWake {
    /// The time from just before the wake call on one thread to just after the wait call on the
    /// other, in nanoseconds.
    pub wake_ns: f64,
    /// The round trip in nanoseconds: wake the other thread, and wait until it has woken this one.
    pub round_trip_ns: f64,
    /// The fastest round trip that was seen in which both threads had slept; on one core, the
    /// fastest of all. `None` if there was none, and in records of older versions.
    #[serde(default)]
    pub fastest_round_trip_ns: Option<f64>,
}

/// How fast a sleeping thread can be woken, by the core on which it sleeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Futex {
    /// The sleeping thread is on the same core as the waking thread.
    pub same_core: FutexWake,
    /// The sleeping thread is on another core, which is idle. `null` with a single CPU.
    pub other_core_idle: Option<FutexWake>,
    /// The sleeping thread is on another core, which a thread with the lowest priority keeps busy.
    /// `null` with a single CPU.
    pub other_core_busy: Option<FutexWake>,
}

/// Measures wakes from `home` of a thread on `home` itself and, if there is one, on `away`.
pub(super) fn measure(home: usize, away: Option<usize>, length: Duration) -> Result<Futex> {
    let part = if away.is_some() { length / 3 } else { length };
    let cross = |busy| away.map(|away| wakes(home, away, busy, part)).transpose();
    Ok(Futex {
        same_core: wakes(home, home, false, part)?,
        other_core_idle: cross(false)?,
        other_core_busy: cross(true)?,
    })
}

fn wakes(home: usize, away: usize, busy: bool, length: Duration) -> Result<FutexWake> {
    let shared = &SharedWords::default();
    let (callee_end, caller_end) = (EndGuard(shared), EndGuard(shared));
    let callee = TeamMember::new(away, move |_| {
        let EndGuard(shared) = &callee_end;
        while let Some(slept) = shared.sleep_until(CALLED) {
            shared.woken_ns.store(now_ns(), Ordering::Relaxed);
            shared.slept.store(slept, Ordering::Relaxed);
            shared.pass(CALLED, ANSWERED)?;
        }
        Ok(())
    });
    let mut members = vec![callee];
    if busy {
        members.extend([home, away].map(|cpu| TeamMember::new(cpu, keep_busy)));
    }
    let (wakes, round_trips, fastest_ns) = team::run(home, members, move |_| {
        let EndGuard(shared) = &caller_end;
        let window = SampleWindow::open(length);
        let (mut wakes, mut round_trips) = (Samples::default(), Samples::default());
        let mut fastest_ns = f64::INFINITY;
        while !window.over(wakes.len()) {
            let called_ns = now_ns();
            shared.pass(ANSWERED, CALLED)?;
            let Some(caller_slept) = shared.sleep_until(ANSWERED) else { break };
            let took_ns = (now_ns() - called_ns) as f64;
            round_trips.push(took_ns);
            let callee_slept = shared.slept.load(Ordering::Relaxed);
            if home == away || caller_slept && callee_slept {
                fastest_ns = fastest_ns.min(took_ns);
            }
            if callee_slept {
                // The difference is signed, because the clocks of two cores may differ.
                let woken_ns = shared.woken_ns.load(Ordering::Relaxed);
                wakes.push((woken_ns as i64 - called_ns as i64) as f64);
            }
        }
        Ok((wakes, round_trips, fastest_ns))
    })?;
    Ok(FutexWake {
        wake_ns: wakes.median()?,
        round_trip_ns: round_trips.median()?,
        fastest_round_trip_ns: Some(fastest_ns).filter(|ns| ns.is_finite()),
    })
}

/// The callee has replied: it is the caller's turn.
const ANSWERED: u32 = 0;
/// The caller has called: it is the callee's turn.
const CALLED: u32 = 1;
/// One of the threads has left. Final.
const ENDED: u32 = 2;

/// The state that the two threads share. It is in one cache line, so one transfer passes the turn
/// and the data.
#[repr(align(128))]
#[derive(Default)]
struct SharedWords {
    /// The futex: [`ANSWERED`], [`CALLED`] or [`ENDED`]. Its Release and Acquire operations order
    /// the accesses to the other two fields.
    turn: AtomicU32,
    /// When the callee was last woken. Written by the callee.
    woken_ns: AtomicU64,
    /// Whether the callee had slept before. Written by the callee.
    slept: AtomicBool,
}

impl SharedWords {
    /// Passes the turn and wakes the other thread. Does nothing if that thread has left.
    fn pass(&self, from: u32, to: u32) -> Result<()> {
        // Release pairs with the Acquire in `sleep_until`. A plain store could overwrite `ENDED`.
        if self.turn.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok() {
            futex::wake(&self.turn, Flags::PRIVATE, 1).context("cannot wake a futex")?;
        }
        Ok(())
    }

    /// Blocks until it is the turn `wanted`. Returns whether this thread slept and was woken, or
    /// `None` if the other thread has left.
    fn sleep_until(&self, wanted: u32) -> Option<bool> {
        let mut slept = false;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn == wanted || turn == ENDED {
                return (turn == wanted).then_some(slept);
            }
            // An error means that the word has already changed, or that a signal interrupted the
            // wait. Check again in any case.
            slept = futex::wait(&self.turn, Flags::PRIVATE, turn, None).is_ok();
        }
    }
}

/// Owned by each of the two threads. When it is dropped, for any reason, the other thread is woken
/// for the last time.
struct EndGuard<'a>(&'a SharedWords);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.turn.store(ENDED, Ordering::Release);
        // An error is ignored: it can only occur if the kernel has no futexes.
        let _ = futex::wake(&self.0.turn, Flags::PRIVATE, 1);
    }
}

/// Keeps its core busy with the lowest priority.
fn keep_busy(stop: &StopFlag) -> Result<()> {
    // On Linux this only sets the priority of the calling thread.
    setpriority_process(None, LOWEST_PRIORITY).context("cannot lower a thread's priority")?;
    while !stop.raised() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::available_cpus;

    #[test]
    fn with_one_core_there_are_no_figures_across_cores() {
        let home = available_cpus()[0];
        let futex = measure(home, None, Duration::from_millis(20)).unwrap();
        assert!(futex.other_core_idle.is_none() && futex.other_core_busy.is_none());
        assert!(futex.same_core.wake_ns > 0.0 && futex.same_core.round_trip_ns > 0.0);
    }

    #[test]
    fn sleep_until_returns_at_once_if_it_is_the_turn() {
        let shared = SharedWords::default();
        shared.pass(ANSWERED, CALLED).unwrap();
        assert_eq!(shared.sleep_until(CALLED), Some(false));
    }

    #[test]
    fn dropping_an_end_wakes_the_sleeper_and_is_final() {
        let shared = &SharedWords::default();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| shared.sleep_until(CALLED));
            drop(EndGuard(shared));
            assert_eq!(sleeper.join().unwrap(), None);
        });
        shared.pass(ANSWERED, CALLED).unwrap();
        assert_eq!(shared.sleep_until(CALLED), None);
    }

    #[test]
    fn a_member_that_never_starts_ends_the_measurement() {
        let home = available_cpus()[0];
        assert!(wakes(home, usize::MAX, false, Duration::from_secs(60)).is_err());
    }
}
