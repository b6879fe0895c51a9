//! Events of hosts, and the ends of hosts and instances.

use std::time::Instant;

use super::host::{Host, Received};
use super::instance::{self, Instance, Phase};
use super::{Mode, Supervisor, restart};
use crate::config::{End, Exhausted, Isolation};
use crate::control::{self, Event};

/// The maximum number of a host's events that are handled before those of others.
const EVENTS_AT_ONCE: usize = 64;

/// Why an instance has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Instance,
    /// Its shared host failed, maybe because of another function.
    SharedHost,
}

impl Supervisor {
    pub(super) fn on_host(&mut self, number: usize) {
        for _ in 0..EVENTS_AT_ONCE {
            let Some(host) = self.hosts.get_mut(&number) else { return };
            match host.try_recv() {
                Received::Nothing => return,
                Received::Event(event) => self.on_event(number, event),
                Received::End(None) => return self.end_host(number, ""),
                Received::End(Some(error)) => return self.end_host(number, &format!("it sent invalid data: {error}")),
            }
        }
    }

    pub(super) fn on_event(&mut self, host: usize, event: Event) {
        let (Event::Ready { instance } | Event::Reloaded { instance, .. } | Event::Ended { instance, .. }) = event;
        let at = instance as usize;
        // A host may only report about instances that it runs.
        if self.instances.get(at).and_then(Instance::host) != Some(host) {
            return;
        }
        match event {
            Event::Ready { .. } => {
                self.instances[at].phase = Phase::Running { host };
                tracing::debug!(function = self.instances[at].name, "ready");
                self.check_reload(self.instances[at].function);
            }
            Event::Reloaded { generation, error, .. } => self.on_reloaded(at, generation, error),
            Event::Ended { end, .. } => {
                if self.is_own_host(at) {
                    self.remove_host(host);
                }
                self.on_end(at, end);
            }
        }
    }

    pub(super) fn is_own_host(&self, at: usize) -> bool {
        self.pipeline.functions[self.instances[at].function].isolation == Isolation::Process
    }

    /// Ends a host that has died or must be killed, and all instances that it ran.
    pub(super) fn end_host(&mut self, number: usize, reason: &str) {
        self.read_last_events(number);
        let status = self.remove_host(number);
        let reason = match (reason, status) {
            ("", Some(status)) => format!("its host ended: {status}"),
            ("", None) => "its host ended".into(),
            (reason, _) => format!("its host was killed: {reason}"),
        };
        for at in 0..self.instances.len() {
            if self.instances[at].host() == Some(number) {
                let cause = if self.is_own_host(at) { Cause::Instance } else { Cause::SharedHost };
                self.on_end_by(at, control::End::Failed { reason: reason.clone() }, cause);
            }
        }
    }

    /// Kills a host, and reads its remaining events: an instance may have finished its work.
    fn read_last_events(&mut self, number: usize) {
        if let Some(host) = self.hosts.get_mut(&number) {
            host.kill();
        }
        // The host writes no more, so this loop ends.
        while let Some(Received::Event(event)) = self.hosts.get_mut(&number).map(Host::try_recv) {
            self.on_event(number, event);
        }
    }

    pub(super) fn remove_host(&mut self, number: usize) -> Option<std::process::ExitStatus> {
        if self.shared_host == Some(number) {
            self.shared_host = None;
        }
        let mut host = self.hosts.remove(&number)?;
        self.poll.remove(&host);
        host.kill()
    }

    /// An instance has ended by itself. Its thread or process has ended.
    pub(super) fn on_end(&mut self, at: usize, end: control::End) {
        self.on_end_by(at, end, Cause::Instance);
    }

    fn on_end_by(&mut self, at: usize, end: control::End, cause: Cause) {
        self.recover(at);
        let name = self.instances[at].name.clone();
        let reason = match end {
            control::End::Finished => return self.finish(at, instance::Ended::Finished),
            control::End::Stopped => return self.finish(at, instance::Ended::Stopped),
            control::End::Trapped { reason } => {
                self.instances[at].traps += 1;
                reason
            }
            control::End::Failed { reason } => reason,
        };
        let (is_rejected, now) = (cause == Cause::Instance && self.is_trying(at), Instant::now());
        // It has no host now.
        self.instances[at].phase = Phase::Waiting { until: now };
        let is_over = match self.mode {
            Mode::Running => false,
            // A sender is not restarted while the pipeline drains.
            Mode::Draining { .. } => self.is_sender(at),
            Mode::Stopping { .. } => true,
        };
        if is_over {
            return self.finish(at, instance::Ended::Stopped);
        }
        if is_rejected {
            // It starts again at once with the previous code, which does not count as a restart.
            return self.reject_reload(at, &reason);
        }
        match self.instances[at].restarts.next(now) {
            Some(until) => {
                let delay = restart::Restarts::delay(until, now);
                tracing::warn!(function = name, "failed and is restarted in {delay:?}: {reason}");
                self.instances[at].phase = Phase::Waiting { until };
            }
            None => self.give_up(at, &name, &reason),
        }
    }

    pub(super) fn give_up(&mut self, at: usize, name: &str, reason: &str) {
        let function = &self.pipeline.functions[self.instances[at].function];
        let failure = format!("the function `{name}` failed and has no restart left: {reason}");
        tracing::error!("{failure}");
        self.summary.failures.push(failure);
        let then = function.restart.then;
        self.finish(at, instance::Ended::Failed);
        if then == Exhausted::Stop {
            self.stop();
        }
    }

    /// Recovers the claims of an instance, and wakes members that wait for them.
    pub(super) fn recover(&mut self, at: usize) {
        let discarded = self.recover_end(self.instances[at].end);
        if discarded > 0 {
            tracing::warn!(function = self.instances[at].name, messages = discarded, "messages were lost with it");
        }
    }

    /// Recovers the claims of an end, unless a process outside of the pipeline still works on them.
    /// Returns the number of lost messages.
    pub(super) fn recover_end(&mut self, end: End) -> u64 {
        let mut discarded = 0;
        if let Some(place) = self.topology.membership(end)
            && !self.connectors.has_holder(end)
        {
            let feed = self.topology.groups[place.group].feed;
            let delivery = self.topology.policies(&self.pipeline, feed).delivery;
            discarded = self.fabric.recover(&self.topology, place.group, place.member, delivery).discarded;
            self.summary.discarded += discarded;
        }
        self.fabric.wake_readers(&self.topology, end);
        discarded
    }

    /// Handles the final end of an instance.
    pub(super) fn finish(&mut self, at: usize, ended: instance::Ended) {
        self.instances[at].phase = Phase::Ended(ended);
        self.close(self.instances[at].end);
        tracing::debug!(function = self.instances[at].name, "ended: {ended:?}");
        self.check_reload(self.instances[at].function);
    }

    /// Closes the outputs of an end that has ended for good. If it was the last member of its
    /// group, closes the group's rings too.
    pub(super) fn close(&self, end: End) {
        self.fabric.close_outputs(&self.topology, end);
        if let Some(place) = self.topology.membership(end)
            && self.is_group_ended(place.group)
        {
            self.fabric.close_inputs(&self.topology, place.group);
        }
    }

    /// Whether all members of a group have ended.
    pub(super) fn is_group_ended(&self, group: usize) -> bool {
        self.topology.groups[group].members.iter().all(|member| self.is_end_ended(*member))
    }

    pub(super) fn is_end_ended(&self, end: End) -> bool {
        match end {
            End::Function { .. } => self.instances.iter().all(|instance| instance.end != end || instance.is_ended()),
            end => self.connectors.is_end_ended(end),
        }
    }
}
