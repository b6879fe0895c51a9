//! The futex: from the wake call on one thread to the other running.
//!
//! Whoever sleeps until a message arrives is woken by the kernel, and the futex is its shortest way: no descriptor, no
//! copying, one word in memory. What blocks in any other manner (pipes, sockets, eventfd, condition variables, parked
//! tasks) takes at least as long.
//!
//! Two threads take turns at one word: change it, wake, sleep. The called one notes the time as its wait returns, and
//! the caller subtracts from it the time of its wake call; one clock serves both. Such a wake counts only where its
//! thread really slept (the wait returned as woken, not as "the word has already changed"); else it woke nobody. The
//! round trips are of all turns, since an ideal mechanism would show just these: on one core the caller is often
//! preempted before it sleeps, and is then not woken but merely resumed (3.1 us instead of 3.6).
//!
//! The waits have no timeout, as arming and disarming its timer costs a sixth of a round trip on one core. So that they
//! end nevertheless, whoever leaves, by panic or unstarted too, sets the word to [`ENDED`] and wakes the other.
//!
//! Where the two run decides: on one core the wake is a switch; on another core that is *idle* the kernel must rouse
//! it, in a virtual machine by way of the host; on one that is *busy* it must interrupt what runs there. For that, a
//! thread at the lowest priority (nice 19) spins on either core. `SCHED_IDLE` would be lower still, but cannot be asked
//! for without `unsafe`; it is not needed, as the scheduler lets nice 19 be preempted at once. (A background thread
//! that yields instead of merely spinning made wakes dearer by half.) "Idle" is as idle as waiting for an answer is: a
//! core that has rested for milliseconds wakes later still.
//!
//! The futex is private to the process; one that is shared between processes took a tenth longer on one core.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::setpriority_process;
use rustix::thread::futex::{self, Flags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::samples::{Samples, Window};
use super::team::{self, Member, Stop};
use crate::clock::now_ns;

const LOWEST_PRIORITY: i32 = 19;

/// How fast a sleeping thread can be woken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FutexWake {
    /// From just before the wake call on one thread to just after the wait call on the other.
    pub wake_ns: f64,
    /// There and back: wake the other, which wakes in turn, and sleep meanwhile if there is time to.
    pub round_trip_ns: f64,
    /// The fastest round trip that was seen: one side may not have gone to sleep yet. None in records of older versions.
    #[serde(default)]
    pub fastest_round_trip_ns: Option<f64>,
}

/// How fast a sleeping thread can be woken, by where it sleeps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Futex {
    /// The sleeper shares its waker's core.
    pub same_core: FutexWake,
    /// The sleeper's core has nothing else to run; none with a single CPU.
    pub other_core_idle: Option<FutexWake>,
    /// The sleeper's core is kept from idling at the lowest priority; none with a single CPU.
    pub other_core_busy: Option<FutexWake>,
}

/// Measures a sleeper on `home` itself and, where there is one, on `away`.
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
    let shared = &Shared::default();
    let (called_end, caller_end) = (End(shared), End(shared));
    let called = Member::new(away, move |_| {
        let End(shared) = &called_end;
        while let Some(slept) = shared.sleep_until(CALLED) {
            shared.woken_ns.store(now_ns(), Ordering::Relaxed);
            shared.slept.store(slept, Ordering::Relaxed);
            shared.pass(CALLED, ANSWERED)?;
        }
        Ok(())
    });
    let mut members = vec![called];
    if busy {
        members.extend([home, away].map(|cpu| Member::new(cpu, keep_from_idling)));
    }
    let (wakes, round_trips) = team::run(home, members, move |_| {
        let End(shared) = &caller_end;
        let window = Window::open(length);
        let (mut wakes, mut round_trips) = (Samples::default(), Samples::default());
        while !window.over(wakes.len()) {
            let called_ns = now_ns();
            shared.pass(ANSWERED, CALLED)?;
            if shared.sleep_until(ANSWERED).is_none() {
                break;
            }
            round_trips.push((now_ns() - called_ns) as f64);
            if shared.slept.load(Ordering::Relaxed) {
                // Signed: two cores may disagree about the time.
                let woken_ns = shared.woken_ns.load(Ordering::Relaxed);
                wakes.push((woken_ns as i64 - called_ns as i64) as f64);
            }
        }
        Ok((wakes, round_trips))
    })?;
    let [fastest, median] = round_trips.quantiles([0.0, 0.5])?;
    Ok(FutexWake { wake_ns: wakes.median()?, round_trip_ns: median, fastest_round_trip_ns: Some(fastest) })
}

/// It is the caller's turn.
const ANSWERED: u32 = 0;
/// It is the turn of the one called.
const CALLED: u32 = 1;
/// One of them has left; final.
const ENDED: u32 = 2;

/// What the two share: one line, so what is passed travels with the turn.
#[repr(align(128))]
#[derive(Default)]
struct Shared {
    /// The futex: [`ANSWERED`], [`CALLED`] or [`ENDED`]. Its Release and Acquire carry the other two.
    turn: AtomicU32,
    /// When the called one was last woken; written by it.
    woken_ns: AtomicU64,
    /// Whether it had slept before; written by it.
    slept: AtomicBool,
}

impl Shared {
    /// Passes the turn and wakes the other; does nothing once it has left.
    fn pass(&self, from: u32, to: u32) -> Result<()> {
        // Release: pairs with the Acquire in `sleep_until`. Not a store, which could undo `ENDED`.
        if self.turn.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed).is_ok() {
            futex::wake(&self.turn, Flags::PRIVATE, 1).context("cannot wake a futex")?;
        }
        Ok(())
    }

    /// Waits for this turn: whether it was woken from sleep, or none if the other has left.
    fn sleep_until(&self, wanted: u32) -> Option<bool> {
        let mut slept = false;
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn == wanted || turn == ENDED {
                return (turn == wanted).then_some(slept);
            }
            // Woken, or else changed already or interrupted: look again in any case.
            slept = futex::wait(&self.turn, Flags::PRIVATE, turn, None).is_ok();
        }
    }
}

/// One end: held by either thread, and when dropped, by whatever cause, the other sleeps no more.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.turn.store(ENDED, Ordering::Release);
        // Nothing is to be done should it fail; it can only where futexes do not exist.
        let _ = futex::wake(&self.0.turn, Flags::PRIVATE, 1);
    }
}

/// Keeps its core from idling, in the way of nobody.
fn keep_from_idling(stop: &Stop) -> Result<()> {
    // On Linux this is the priority of the calling thread alone.
    setpriority_process(None, LOWEST_PRIORITY).context("cannot lower a thread's priority")?;
    while !stop.raised() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::available_cpus;

    #[test]
    fn one_core_has_no_other() {
        let home = available_cpus()[0];
        let futex = measure(home, None, Duration::from_millis(20)).unwrap();
        assert!(futex.other_core_idle.is_none() && futex.other_core_busy.is_none());
        assert!(futex.same_core.wake_ns > 0.0 && futex.same_core.round_trip_ns > 0.0);
    }

    #[test]
    fn a_turn_that_has_come_is_not_slept_for() {
        let shared = Shared::default();
        shared.pass(ANSWERED, CALLED).unwrap();
        assert_eq!(shared.sleep_until(CALLED), Some(false));
    }

    #[test]
    fn a_sleeper_is_woken_by_the_end_which_nothing_undoes() {
        let shared = &Shared::default();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| shared.sleep_until(CALLED));
            drop(End(shared));
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
