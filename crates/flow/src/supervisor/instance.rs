//! A function instance, as the supervisor sees it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::restart::Restarts;
use crate::config::{End, Function};
use crate::control::{Generation, InstanceId};
use crate::counters::{Counter, Counters};

/// A function instance.
pub(super) struct Instance {
    pub(super) id: InstanceId,
    /// Its index in the pipeline's functions.
    pub(super) function: usize,
    /// Its end in the topology.
    pub(super) end: End,
    /// The function's name, followed by the instance's index if there are several.
    pub(super) name: String,
    pub(super) phase: Phase,
    /// The generation of code that it runs, or that it was last started with. 0 before its first
    /// start.
    pub(super) generation: Generation,
    pub(super) counters: Arc<Counters>,
    /// The file by which a host maps the counters. They continue over restarts.
    pub(super) counters_file: OwnedFd,
    pub(super) restarts: Restarts,
    pub(super) watch: Watch,
    /// Calls that failed.
    pub(super) traps: u64,
}

/// The phase of an instance's life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for its next start.
    Waiting { until: Instant },
    /// Its host was requested to start it. Its start function may still run; a sender does all of
    /// its work there.
    Starting { host: usize },
    /// It receives messages.
    Running { host: usize },
    /// It has ended and will not be restarted.
    Ended(Ended),
}

/// How an instance ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has done all of its work.
    Finished,
    /// It was stopped.
    Stopped,
    /// It failed, and no restart was left.
    Failed,
}

impl Instance {
    pub(super) fn new(id: InstanceId, function: (usize, &Function), replica: u32) -> Result<Instance> {
        let (at, function) = function;
        let (counters, counters_file) = Counters::create()?;
        let name = match function.replicas {
            1 => function.name.clone(),
            _ => format!("{}.{replica}", function.name),
        };
        Ok(Instance {
            id,
            function: at,
            end: End::Function { function: at, replica },
            name,
            phase: Phase::Waiting { until: Instant::now() },
            generation: 0,
            counters: Arc::new(counters),
            counters_file,
            restarts: Restarts::new(function.restart),
            watch: Watch::default(),
            traps: 0,
        })
    }

    /// The host that runs it.
    pub(super) fn host(&self) -> Option<usize> {
        match self.phase {
            Phase::Starting { host } | Phase::Running { host } => Some(host),
            Phase::Waiting { .. } | Phase::Ended(_) => None,
        }
    }

    /// Whether it has ended for good.
    pub(super) fn is_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }
}

/// How long a call may continue after it was interrupted, before its host is killed.
const KILL_DELAY: Duration = Duration::from_secs(2);
/// The interval at which an interrupt is repeated. A call can miss an interrupt: wasmtime sets the
/// next epoch deadline after its callback has returned, and misses an interrupt in between.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(500);

/// Detects endless loops: a function that is busy, and neither sends nor returns, makes no
/// progress.
#[derive(Debug, Default)]
pub(super) enum Watch {
    /// The function waits for messages or for space, or was not checked yet.
    #[default]
    Idle,
    /// A call with this progress, and when it was first seen.
    Busy { progress: u64, since: Instant },
    /// A call that the host was requested to interrupt, and when this happened first and last.
    Interrupted { progress: u64, first: Instant, last: Instant },
}

/// The action for a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// Interrupt the call with this progress, then call [`Watch::interrupted`].
    Interrupt {
        progress: u64,
    },
    Kill,
}

impl Watch {
    /// Checks an instance's counters.
    pub(super) fn look(&mut self, counters: &Counters, limit: Duration, now: Instant) -> Verdict {
        self.judge(counters.get(Counter::Busy) != 0, counters.get(Counter::Progress), limit, now)
    }

    /// Records that the host was requested to interrupt a call.
    pub(super) fn interrupted(&mut self, progress: u64, at: Instant) {
        let first = match *self {
            Watch::Interrupted { progress: before, first, .. } if before == progress => first,
            _ => at,
        };
        *self = Watch::Interrupted { progress, first, last: at };
    }

    fn judge(&mut self, is_busy: bool, now_at: u64, limit: Duration, now: Instant) -> Verdict {
        match *self {
            _ if !is_busy => *self = Watch::Idle,
            Watch::Busy { progress, since } if progress == now_at => {
                if now.saturating_duration_since(since) > limit {
                    return Verdict::Interrupt { progress };
                }
            }
            Watch::Interrupted { progress, first, last } if progress == now_at => {
                if now.saturating_duration_since(first) > KILL_DELAY {
                    return Verdict::Kill;
                }
                if now.saturating_duration_since(last) > INTERRUPT_AGAIN {
                    return Verdict::Interrupt { progress };
                }
            }
            _ => *self = Watch::Busy { progress: now_at, since: now },
        }
        Verdict::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn only_a_busy_call_without_progress_is_interrupted() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        let mut at = |is_busy, progress, ms| {
            let now = start + Duration::from_millis(ms);
            let verdict = watch.judge(is_busy, progress, LIMIT, now);
            if let Verdict::Interrupt { progress } = verdict {
                watch.interrupted(progress, now);
            }
            verdict
        };
        assert_eq!(at(true, 1, 0), Verdict::Fine);
        assert_eq!(at(true, 2, 2_000), Verdict::Fine, "it makes progress");
        assert_eq!(at(true, 2, 2_500), Verdict::Fine);
        assert_eq!(at(true, 2, 3_500), Verdict::Interrupt { progress: 2 });
        assert_eq!(at(true, 2, 3_600), Verdict::Fine, "it has time to end");
        assert_eq!(at(true, 2, 4_100), Verdict::Interrupt { progress: 2 }, "it may have missed the first");
        assert_eq!(at(true, 2, 4_500), Verdict::Fine);
        assert_eq!(at(true, 2, 5_600), Verdict::Kill, "counted from the first interrupt");
        assert_eq!(at(false, 2, 9_000), Verdict::Fine, "it waits");
        assert_eq!(at(false, 2, 19_000), Verdict::Fine);
        assert_eq!(at(true, 3, 19_100), Verdict::Fine);
    }

    /// The supervisor itself may have been delayed.
    #[test]
    fn the_kill_delay_starts_when_the_interrupt_was_sent() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watch.judge(true, 1, LIMIT, start), Verdict::Fine);
        assert_eq!(watch.judge(true, 1, LIMIT, after(30)), Verdict::Interrupt { progress: 1 });
        // Sending the request took five seconds.
        watch.interrupted(1, after(35));
        assert_eq!(watch.judge(true, 1, LIMIT, after(36)), Verdict::Interrupt { progress: 1 });
        watch.interrupted(1, after(36));
        assert_eq!(watch.judge(true, 1, LIMIT, after(38)), Verdict::Kill);
    }

    #[test]
    fn the_call_after_an_interrupted_one_has_the_full_limit() {
        let (mut watch, start) = (Watch::default(), Instant::now());
        watch.interrupted(1, start);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(watch.judge(true, 2, LIMIT, after(9)), Verdict::Fine);
        assert_eq!(watch.judge(true, 2, LIMIT, after(11)), Verdict::Interrupt { progress: 2 });
    }
}
