//! Collects the status of a pipeline.

use std::collections::VecDeque;
use std::fs;
use std::time::Instant;

use super::instance::{Ended, Instance, Phase};
use super::{Mode, Supervisor};
use crate::config::{End, Feed, GroupKey};
use crate::counters::Counter;
use crate::status::{EdgeStatus, FunctionStatus, ModeStatus, PhaseStatus, Status};

/// The maximum number of samples of a ring. At two per second, ages of some minutes are known.
const MAX_MOMENTS: usize = 512;

/// Samples of how many messages had been published to a ring, and when. They show the age of its
/// oldest message.
#[derive(Debug, Default)]
pub(super) struct Ages {
    moments: VecDeque<(Instant, u64)>,
}

impl Ages {
    /// Records a sample.
    pub(super) fn look(&mut self, now: Instant, published: u64, gone: u64) {
        while self.moments.front().is_some_and(|(_, count)| *count <= gone) {
            self.moments.pop_front();
        }
        let is_news = published > gone && self.moments.back().is_none_or(|(_, count)| *count < published);
        if is_news && self.moments.len() < MAX_MOMENTS {
            self.moments.push_back((now, published));
        }
    }

    /// The age of the oldest message that is not acknowledged, in seconds.
    fn oldest(&self, now: Instant) -> f64 {
        self.moments.front().map_or(0.0, |(since, _)| now.saturating_duration_since(*since).as_secs_f64())
    }
}

impl Supervisor {
    /// Records a sample of each ring.
    pub(super) fn look_at_rings(&mut self, now: Instant) {
        for (ring, ages) in self.ages.iter_mut().enumerate() {
            let counters = self.fabric.counters(ring);
            let gone = counters.acked.wrapping_add(counters.dropped).wrapping_add(counters.discarded);
            ages.look(now, counters.published, gone);
        }
    }

    /// The current status.
    pub(super) fn status(&self) -> Status {
        Status {
            pipeline: self.pipeline.name.clone(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            mode: match self.mode {
                Mode::Running => ModeStatus::Running,
                Mode::Draining { .. } => ModeStatus::Draining,
                Mode::Stopping { .. } => ModeStatus::Stopping,
            },
            failures: self.summary.failures.clone(),
            functions: self.instances.iter().map(|instance| self.function_status(instance)).collect(),
            edges: (0..self.topology.groups.len()).map(|group| self.edge_status(group)).collect(),
            connectors: self.connectors.status(),
        }
    }

    fn function_status(&self, instance: &Instance) -> FunctionStatus {
        let End::Function { function, replica } = instance.end else { unreachable!("an instance is of a function") };
        let pid = instance.host().and_then(|host| Some(self.hosts.get(&host)?.pid()));
        let process = pid.filter(|_| self.is_own_host(instance.id as usize)).and_then(Process::read);
        let get = |counter| instance.counters.get(counter);
        FunctionStatus {
            function: self.pipeline.functions[function].name.clone(),
            replica,
            phase: match instance.phase {
                Phase::Waiting { .. } => PhaseStatus::Waiting,
                Phase::Starting { .. } => PhaseStatus::Starting,
                Phase::Running { .. } => PhaseStatus::Running,
                Phase::Ended(Ended::Finished) => PhaseStatus::Finished,
                Phase::Ended(Ended::Stopped) => PhaseStatus::Stopped,
                Phase::Ended(Ended::Failed) => PhaseStatus::Failed,
            },
            pid,
            calls: get(Counter::Calls),
            received_messages: get(Counter::ReceivedMessages),
            received_bytes: get(Counter::ReceivedBytes),
            sent_messages: get(Counter::SentMessages),
            sent_bytes: get(Counter::SentBytes),
            dropped: get(Counter::Dropped),
            unread: get(Counter::Unread),
            dead_letters: get(Counter::DeadLetters),
            traps: instance.traps,
            restarts: instance.restarts.total(),
            memory_bytes: get(Counter::Memory),
            resident_bytes: process.as_ref().map(|process| process.resident_bytes),
            cpu_seconds: process.as_ref().map(|process| process.cpu_seconds),
            start_seconds: get(Counter::StartTime) as f64 / 1e9,
        }
    }

    fn edge_status(&self, at: usize) -> EdgeStatus {
        let group = &self.topology.groups[at];
        let topic = match group.feed {
            Feed::Topic(topic) => self.topology.topics[topic].clone(),
            Feed::Stream(function) => format!("{} (stream)", self.pipeline.functions[function].name),
            Feed::Answers(function) => format!("{} (answers)", self.pipeline.functions[function].name),
        };
        let queue = match group.key {
            GroupKey::Unnamed => String::new(),
            GroupKey::Named(queue) => self.topology.queues[queue].clone(),
            GroupKey::Each(end) => self.name_of(end),
        };
        let mut edge = EdgeStatus {
            topic,
            queue,
            published_messages: 0,
            published_bytes: 0,
            depth_messages: 0,
            depth_bytes: 0,
            capacity_bytes: 0,
            oldest_seconds: 0.0,
            dropped: 0,
            dropped_new: 0,
            discarded: 0,
        };
        let now = Instant::now();
        // Hosts can write any values to the counters, so sums must not overflow.
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        for ring in &group.rings {
            let (depth, counters) = (self.fabric.depth(*ring), self.fabric.counters(*ring));
            add(&mut edge.published_messages, counters.published);
            add(&mut edge.published_bytes, counters.published_bytes);
            add(&mut edge.depth_messages, depth.messages);
            edge.depth_bytes += depth.bytes;
            edge.capacity_bytes += self.fabric.ring(*ring).capacity() as u64;
            add(&mut edge.dropped, counters.dropped);
            add(&mut edge.dropped_new, counters.dropped_new);
            add(&mut edge.discarded, counters.discarded);
            if depth.bytes > 0 {
                edge.oldest_seconds = edge.oldest_seconds.max(self.ages[*ring].oldest(now));
            }
        }
        edge
    }

    fn name_of(&self, end: End) -> String {
        match end {
            End::Function { function, .. } | End::Stream(function) => self.pipeline.functions[function].name.clone(),
            End::Source(source) => self.pipeline.sources[source].name.clone(),
            End::Sink(sink) => self.pipeline.sinks[sink].name.clone(),
        }
    }
}

/// The kernel's data about a process.
struct Process {
    resident_bytes: u64,
    cpu_seconds: f64,
}

impl Process {
    fn read(pid: u32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain any characters. The fields after it are numbers.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        let ticks = number(11)? + number(12)?;
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        let resident_bytes = number(21)? * rustix::param::page_size() as u64;
        Some(Process { resident_bytes, cpu_seconds: ticks as f64 / per_second })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_message_is_the_first_that_is_not_acknowledged() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut ages = Ages::default();
        ages.look(at(0), 10, 0);
        ages.look(at(1), 20, 5);
        assert_eq!(ages.oldest(at(2)), 2.0);
        ages.look(at(2), 20, 10);
        assert_eq!(ages.oldest(at(3)), 2.0);
        ages.look(at(3), 20, 20);
        assert_eq!(ages.oldest(at(4)), 0.0);
    }

    #[test]
    fn memory_and_cpu_time_of_this_process_are_read() {
        let process = Process::read(std::process::id()).unwrap();
        assert!(process.resident_bytes > 100_000 && process.cpu_seconds >= 0.0);
    }
}
