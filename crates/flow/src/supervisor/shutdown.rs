//! Ending a pipeline: drain it, stop it, and kill what does not stop.

use std::time::Instant;

use super::instance::{self, Phase};
use super::{Ended, Mode, Supervisor, log};
use crate::control::Request;

impl Supervisor {
    /// Ends the pipeline: drains it, or stops it if it drains already.
    pub(super) fn end(&mut self) {
        match self.mode {
            Mode::Running => {
                self.summary.ended = Ended::Drained;
                tracing::info!("draining; once more stops at once");
                self.mode = Mode::Draining { since: Instant::now() };
                self.connectors.stop_sources();
                for at in 0..self.instances.len() {
                    if self.is_sender(at) {
                        self.stop_instance(at);
                    }
                }
            }
            Mode::Draining { .. } => self.stop(),
            Mode::Stopping { .. } => self.kill_all(),
        }
    }

    /// Whether an instance has no input.
    pub(super) fn is_sender(&self, at: usize) -> bool {
        self.topology.membership(self.instances[at].end).is_none()
    }

    pub(super) fn stop(&mut self) {
        if matches!(self.mode, Mode::Stopping { .. }) {
            return;
        }
        self.summary.ended = Ended::Stopped;
        self.mode = Mode::Stopping { since: Instant::now() };
        self.connectors.stop();
        for at in 0..self.instances.len() {
            self.stop_instance(at);
        }
    }

    pub(super) fn stop_instance(&mut self, at: usize) {
        match self.instances[at].phase {
            Phase::Waiting { .. } => self.finish(at, instance::Ended::Stopped),
            Phase::Starting { host } | Phase::Running { host } => {
                let request = Request::Stop { instance: self.instances[at].id };
                let _ = self.hosts.get(&host).map(|host| host.send(&request, &[]));
            }
            Phase::Ended(_) => {}
        }
    }

    pub(super) fn kill_all(&mut self) {
        let hosts: Vec<_> = self.hosts.keys().copied().collect();
        for host in hosts {
            self.end_host(host, "the pipeline stops");
        }
    }

    pub(super) fn read_last_lines(&mut self) {
        for log in self.logs.values_mut() {
            // The hosts have ended, so the pipes contain all that is left.
            for _ in 0..32 {
                if log.read() == log::StreamState::Ended {
                    break;
                }
            }
            log.end();
        }
    }
}
