//! A team: pinned threads that measure one thing together, and end together.
//!
//! Whoever measures across cores waits for a partner, often by spinning. So that nothing can hang, the end of any
//! member (its return, its failure to pin itself, its panic) raises the team's [`Stop`], and every wait that spins
//! watches it. Who sleeps cannot watch, and must be woken by what the one who ends leaves behind: see `futex`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};

use anyhow::{Context as _, Result, anyhow};

use super::cpus::pin_to;

/// How often a spinning member looks at its word for each look at [`Stop`].
const LOOKS_PER_STOP: u32 = 256;

/// Raised once, by the first member that ends; the others then end too.
#[derive(Default)]
pub(super) struct Stop(AtomicBool);

impl Stop {
    /// Whether some member has ended.
    pub(super) fn raised(&self) -> bool {
        // Relaxed: the flag carries no data; what a member leaves behind is read after its join.
        self.0.load(Ordering::Relaxed)
    }

    /// Spins until `word` holds `wanted` (true) or the team ends (false).
    pub(super) fn spin_until(&self, word: &AtomicU64, wanted: u64) -> bool {
        // Acquire: pairs with the Release store by which the partner hands over its turn.
        self.spin(|| word.load(Ordering::Acquire) == wanted)
    }

    /// Spins until `look` succeeds (true) or the team ends (false).
    ///
    /// Without a `spin_loop` hint: the hint's own delay must not become part of a limit.
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

/// Raises [`Stop`] however its owner ends, unwinding included.
struct RaiseOnDrop<'a>(&'a Stop);

impl Drop for RaiseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

type Work<'a> = Box<dyn FnOnce(&Stop) -> Result<()> + Send + 'a>;

/// One who works beside the leader until [`Stop`] is raised.
pub(super) struct Member<'a> {
    cpu: usize,
    work: Work<'a>,
}

impl<'a> Member<'a> {
    pub(super) fn new(cpu: usize, work: impl FnOnce(&Stop) -> Result<()> + Send + 'a) -> Self {
        Self { cpu, work: Box::new(work) }
    }
}

/// Runs `lead` on a fresh thread pinned to `cpu`, with each of `members` on its own; returns what `lead` returns. The
/// calling thread sleeps meanwhile and is not pinned.
///
/// # Errors
///
/// That of a member or of the leader: it failed, it panicked, or it could not be started or pinned.
pub(super) fn run<'a, T: Send>(
    cpu: usize,
    members: impl IntoIterator<Item = Member<'a>>,
    lead: impl FnOnce(&Stop) -> Result<T> + Send,
) -> Result<T> {
    let stop = Stop::default();
    thread::scope(|scope| {
        // Should a later thread fail to start, this ends the earlier ones, which the scope awaits.
        let _raise = RaiseOnDrop(&stop);
        let members = members
            .into_iter()
            .map(|Member { cpu, work }| Ok((cpu, start(scope, cpu, &stop, work)?)))
            .collect::<Result<Vec<_>>>()?;
        let led = join(cpu, start(scope, cpu, &stop, lead)?);
        for (cpu, member) in members {
            join(cpu, member)?; // Before the leader's error, which a member's may have caused.
        }
        led
    })
}

fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    cpu: usize,
    stop: &'scope Stop,
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'scope,
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

    /// Waits for a turn that never comes; yields, as it may share its CPU with the leader.
    fn wait_for_ever(stop: &Stop) -> Result<()> {
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
    fn each_works_on_its_cpu_and_the_leader_ends_the_team() {
        let (home, away) = two_cpus();
        let member = Member::new(away, |stop| {
            assert_eq!(available_cpus(), [away]);
            wait_for_ever(stop)
        });
        assert_eq!(run(home, [member], |_| Ok(available_cpus())).unwrap(), [home]);
    }

    #[test]
    fn a_member_that_panics_ends_the_leader() {
        let (home, away) = two_cpus();
        let member = Member::new(away, |_| panic!("on purpose"));
        let error = run(home, [member], wait_for_ever).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn a_leader_that_panics_ends_its_members() {
        let (home, away) = two_cpus();
        let lead = |_: &Stop| -> Result<()> { panic!("on purpose") };
        let error = run(home, [Member::new(away, wait_for_ever)], lead).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }

    #[test]
    fn a_member_that_fails_or_cannot_be_pinned_is_the_error() {
        let (home, away) = two_cpus();
        let failing = Member::new(away, |_| bail!("on purpose"));
        let error = run(home, [failing], wait_for_ever).unwrap_err();
        assert_eq!(error.to_string(), "on purpose");

        let nowhere = Member::new(usize::MAX, wait_for_ever);
        let error = run(home, [nowhere], wait_for_ever).unwrap_err();
        assert!(error.to_string().contains("cannot pin"), "{error}");
    }

    #[test]
    fn a_spin_ends_by_its_word_or_by_the_team() {
        let word = AtomicU64::new(7);
        let stop = Stop::default();
        assert!(stop.spin_until(&word, 7));
        drop(RaiseOnDrop(&stop));
        assert!(!stop.spin_until(&word, 8));
    }
}
