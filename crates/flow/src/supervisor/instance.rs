//! A function instance, as the supervisor sees it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::restart::Restarts;
use crate::config::{End, Function};
use crate::control::InstanceId;
use crate::counters::{Counter, Counters};

/// A function instance.
pub(super) struct Instance {
    pub(super) id: InstanceId,
    /// Its place in the pipeline's functions.
    pub(super) function: usize,
    /// Its place in the topology.
    pub(super) end: End,
    /// The function's name, with the instance's number where there are several.
    pub(super) name: String,
    pub(super) phase: Phase,
    pub(super) counters: Arc<Counters>,
    /// By which a host maps the counters. They go on over restarts.
    pub(super) counters_file: OwnedFd,
    pub(super) restarts: Restarts,
    pub(super) watch: Watch,
    /// Calls that failed.
    pub(super) traps: u64,
}

/// Where an instance is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It waits for its next start.
    Waiting { until: Instant },
    /// Its host has been asked to start it; its start function may still run, which is all that a sender does.
    Starting { host: usize },
    /// It receives messages.
    Running { host: usize },
    /// It has ended for good.
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
            counters: Arc::new(counters),
            counters_file,
            restarts: Restarts::new(function.restart),
            watch: Watch::default(),
            traps: 0,
        })
    }

    /// The host that runs it now.
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

/// How long a call that was interrupted may go on before its host is killed.
const KILL_DELAY: Duration = Duration::from_secs(2);

/// The watch over endless loops: a function that is busy and calls nothing makes no progress.
#[derive(Debug, Default)]
pub(super) struct Watch {
    progress: u64,
    since: Option<Instant>,
    is_interrupted: bool,
}

/// What to do about a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Interrupt,
    Kill,
}

impl Watch {
    /// Looks at an instance's counters.
    pub(super) fn look(&mut self, counters: &Counters, limit: Duration, now: Instant) -> Verdict {
        self.judge(counters.get(Counter::Busy) != 0, counters.get(Counter::Progress), limit, now)
    }

    fn judge(&mut self, is_busy: bool, progress: u64, limit: Duration, now: Instant) -> Verdict {
        if !is_busy || progress != self.progress || self.since.is_none() {
            *self = Watch { progress, since: Some(now), is_interrupted: false };
            return Verdict::Fine;
        }
        let elapsed = self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if elapsed > limit.saturating_add(KILL_DELAY) {
            Verdict::Kill
        } else if elapsed > limit && !self.is_interrupted {
            self.is_interrupted = true;
            Verdict::Interrupt
        } else {
            Verdict::Fine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_call_without_progress_is_interrupted() {
        let (mut watch, start, limit) = (Watch::default(), Instant::now(), Duration::from_secs(1));
        let mut at = |is_busy, progress, seconds| {
            watch.judge(is_busy, progress, limit, start + Duration::from_millis((seconds * 1000.0) as u64))
        };
        assert_eq!(at(true, 1, 0.0), Verdict::Fine);
        assert_eq!(at(true, 2, 2.0), Verdict::Fine, "it makes progress");
        assert_eq!(at(true, 2, 2.5), Verdict::Fine);
        assert_eq!(at(true, 2, 3.5), Verdict::Interrupt);
        assert_eq!(at(true, 2, 3.6), Verdict::Fine, "once");
        assert_eq!(at(true, 2, 5.5), Verdict::Kill);
        assert_eq!(at(false, 2, 9.0), Verdict::Fine, "it waits");
        assert_eq!(at(false, 2, 19.0), Verdict::Fine);
        assert_eq!(at(true, 3, 19.1), Verdict::Fine);
    }
}
