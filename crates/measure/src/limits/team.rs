//! A team: pinned threads that measure one quantity together, and end together.
//!
//! A measurement across cores waits for a partner, often by spinning. To avoid a hang, the end of
//! any member (its return, its failure to pin itself, its panic) raises the team's [`StopFlag`], and
//! every spinning wait checks it. A sleeping thread cannot check it. The thread that ends must wake
//! it; see `futex`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use anyhow::{Context as _, Result, anyhow};

use super::cpus::pin_to;

/// How many times a spinning member checks its word before it checks [`StopFlag`].
const LOOKS_PER_STOP: u32 = 256;

/// A flag that the first member that ends raises. The others then end too.
#[derive(Default)]
pub(super) struct StopFlag(AtomicBool);

impl StopFlag {
    /// Whether some member has ended.
    pub(super) fn raised(&self) -> bool {
        // Relaxed: the flag publishes no data. A member's results are read after its join.
        self.0.load(Ordering::Relaxed)
    }

    /// Spins until `word` holds `wanted` (true) or the team ends (false).
    pub(super) fn spin_until(&self, word: &AtomicU64, wanted: u64) -> bool {
        // Acquire pairs with the Release store by which the partner passes its turn.
        self.spin(|| word.load(Ordering::Acquire) == wanted)
    }

    /// Spins until `look` succeeds (true) or the team ends (false).
    ///
    /// There is no `spin_loop` hint, because its delay would become part of the limit.
    pub(super) fn spin(&self, look: impl Fn() -> bool) -> bool {
        loop {
            if (0..LOOKS_PER_STOP).any(|_| look()) {
                return true;
            }
            if self.raised() {
                return false;
            }
        }
    }
}

/// Raises [`StopFlag`] when it is dropped, also during unwinding.
struct RaiseOnDrop<'a>(&'a StopFlag);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

type Work<'a> = Box<dyn FnOnce(&StopFlag) -> Result<()> + Send + 'a>;

/// A thread that works beside the leader until [`StopFlag`] is raised.
pub(super) struct TeamMember<'a> {
    cpu: usize,
    work: Work<'a>,
}

impl<'a> TeamMember<'a> {
    pub(super) fn new(cpu: usize, work: impl FnOnce(&StopFlag) -> Result<()> + Send + 'a) -> Self {
        Self { cpu, work: Box::new(work) }
    }
}

/// Runs `lead` on a new thread pinned to `cpu`, and each of `members` on its own new thread. Blocks
/// until all have ended, and returns the result of `lead`. The calling thread is not pinned.
///
/// # Errors
///
/// When a member or the leader fails, panics, or cannot be started or pinned. The error of a member
/// comes first.
pub(super) fn run<'a, T: Send>(
    cpu: usize,
    members: impl IntoIterator<Item = TeamMember<'a>>,
    lead: impl FnOnce(&StopFlag) -> Result<T> + Send,
) -> Result<T> {
    let stop = StopFlag::default();
    thread::scope(|scope| {
        // If a later thread cannot be started, this ends the earlier ones, for which the scope
        // waits.
        let _raise = RaiseOnDrop(&stop);
        let members = members
            .into_iter()
            .map(|TeamMember { cpu, work }| Ok((cpu, start(scope, cpu, &stop, work)?)))
            .collect::<Result<Vec<_>>>()?;
        let result = join(cpu, start(scope, cpu, &stop, lead)?);
        for (cpu, member) in members {
            join(cpu, member)?; // Returned before the leader's error, which it may have caused.
        }
        result
    })
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    cpu: usize,
    stop: &'scope StopFlag,
    work: impl FnOnce(&StopFlag) -> Result<T> + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, Result<T>>> {
    let pinned = move || {
        let _raise = RaiseOnDrop(stop);
        pin_to(cpu)
            .with_context(|| format!("cannot pin a thread to CPU {cpu}: choose among the CPUs this process may use"))?;
        work(stop)
    };
    thread::Builder::new()
        .name(format!("limits-{cpu}"))
        .spawn_scoped(scope, pinned)
        .with_context(|| format!("cannot start a thread for CPU {cpu}"))
}

fn join<T>(cpu: usize, handle: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    handle.join().map_err(|_| anyhow!("a thread measuring limits on CPU {cpu} panicked"))?
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::limits::available_cpus;

    /// Waits until the team ends. Yields, because it may share its CPU with the leader.
    fn wait_for_stop(stop: &StopFlag) -> Result<()> {
        while !stop.raised() {
            thread::yield_now();
        }
        Ok(())
    }

    fn two_cpus() -> (usize, usize) {
        let cpus = available_cpus();
        (cpus[0], cpus[cpus.len() - 1])
    }

    #[test]
    fn each_thread_runs_on_its_cpu_and_the_leader_ends_the_team() {
        let (home, away) = two_cpus();
        let member = TeamMember::new(away, |stop| {
            assert_eq!(available_cpus(), [away]);
            wait_for_stop(stop)
        });
        assert_eq!(run(home, [member], |_| Ok(available_cpus())).unwrap(), [home]);
    }

    #[test]
    fn a_member_that_panics_ends_the_leader() {
        let (home, away) = two_cpus();
        let member = TeamMember::new(away, |_| panic!("on purpose"));
        let error = run(home, [member], wait_for_stop).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn a_leader_that_panics_ends_its_members() {
        let (home, away) = two_cpus();
        let lead = |_: &StopFlag| -> Result<()> { panic!("on purpose") };
        let error = run(home, [TeamMember::new(away, wait_for_stop)], lead).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn the_error_of_a_member_that_fails_or_cannot_be_pinned_is_returned() {
        let (home, away) = two_cpus();
        let failing = TeamMember::new(away, |_| bail!("on purpose"));
        let error = run(home, [failing], wait_for_stop).unwrap_err();
        assert_eq!(error.to_string(), "on purpose");

        let nowhere = TeamMember::new(usize::MAX, wait_for_stop);
        let error = run(home, [nowhere], wait_for_stop).unwrap_err();
        assert!(error.to_string().contains("cannot pin"), "{error}");
    }

    #[test]
    fn spin_until_ends_with_its_word_or_with_the_team() {
        let word = AtomicU64::new(7);
        let stop = StopFlag::default();
        assert!(stop.spin_until(&word, 7));
        drop(RaiseOnDrop(&stop));
        assert!(!stop.spin_until(&word, 8));
    }
}
