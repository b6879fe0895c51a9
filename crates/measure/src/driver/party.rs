//! What the loops of all patterns have in common: a role, a window, and when to give up.

use std::io::ErrorKind;

use anyhow::{Context, Result};

use super::step::{EndError, PartyResult};
use crate::burst_memory::SharedBurst;
use crate::case::{Case, Payload, Role};
use crate::memory::MemoryProbe;
use crate::message::{Generator, Verifier};
use crate::pace::{Feedback, Pacer};
use crate::pattern::{Rules, StreamEnd};
use crate::pauses::Pauses;
use crate::protocol::PartyReport;
use crate::schedule::Schedule;
use crate::window::{Meter, Window};

/// A consumer of a lossy mechanism gives up after this time without a message, if the window is
/// over and no end mark has come.
const QUIET_NS: u64 = 50_000_000;
/// The same if the window is a number of messages, whose end no clock shows.
const COUNT_QUIET_NS: u64 = 1_000_000_000;

/// The parameters that all parties of a child have in common.
pub(super) struct InstanceSetup<'a> {
    pub(super) case: &'a Case,
    pub(super) seed: u64,
    pub(super) secret: u64,
    pub(super) window: Window,
    pub(super) tail_ns: u64,
    pub(super) start_ns: u64,
    pub(super) pauses: Pauses,
    /// The party in whose window the processor time is counted.
    pub(super) usage_party: Option<Role>,
    /// Measures the memory of the child, in the same party.
    pub(super) memory: Option<MemoryProbe>,
    pub(super) lossy: bool,
    pub(super) burst: Option<SharedBurst>,
}

/// Everything a loop starts with. Each loop takes the parts that it needs.
pub(super) struct LoopSetup {
    pub(super) party: Party,
    pub(super) source: Generator,
    pub(super) verifier: Verifier,
    pub(super) rules: &'static dyn Rules,
    /// The number of message streams that one loop sends or answers: of a server, or of a sender on
    /// several connections.
    pub(super) streams: usize,
    /// When messages are due, in an open loop.
    pub(super) schedule: Option<Schedule>,
    pub(super) burst: Option<SharedBurst>,
    pub(super) feedback: Option<Feedback>,
    pub(super) pacer: Option<Pacer>,
}

impl LoopSetup {
    pub(super) fn new(instance: &InstanceSetup, role: Role) -> LoopSetup {
        let InstanceSetup { case, seed, secret, window, tail_ns, start_ns, lossy, .. } = *instance;
        let rules = case.pattern.rules();
        let producer = stream(role);
        let leads = Some(role) == instance.usage_party;
        let meter = Meter::new(window_of(window, role, case.senders()), start_ns, leads, instance.pauses.clone())
            .with_tail(tail_ns)
            .with_memory(instance.memory.clone().filter(|_| leads));
        LoopSetup {
            party: Party {
                role,
                received_ns: meter.now(),
                meter,
                share: window.share(producer, case.senders()),
                lossy,
            },
            source: Generator::new(seed, producer, case.payload.len()).with_secret(secret),
            verifier: rules
                .verifier(seed, case, role)
                .with_secret(secret)
                .with_body_checks(!matches!(case.payload, Payload::Unread(_)))
                .with_competitors(rules.consumers_compete()),
            rules,
            streams: case.producers,
            schedule: Schedule::new(case, start_ns, seed),
            burst: instance.burst.clone(),
            feedback: None,
            pacer: None,
        }
    }

    /// The messages of every stream, from the beginning.
    pub(super) fn sources(&self) -> Vec<Generator> {
        (0..self.streams).map(|stream| self.source.of(stream)).collect()
    }

    /// How the streams end.
    pub(super) fn stream_end(&self) -> StreamEnd {
        self.rules.stream_end()
    }
}

/// The common part of every loop's state.
pub(super) struct Party {
    pub(super) role: Role,
    pub(super) meter: Meter,
    /// How many messages it sends, if the window is a number of messages.
    pub(super) share: Option<u64>,
    /// Whether the mechanism may lose messages.
    pub(super) lossy: bool,
    /// When it last saw that messages had been received; at first, when it began.
    pub(super) received_ns: u64,
}

impl Party {
    /// How many messages are left of its share. No limit if the window is a time.
    pub(super) fn left(&self, sent: u64) -> u64 {
        self.share.map_or(u64::MAX, |share| share.saturating_sub(sent))
    }

    /// The number of messages until the next reading of the clock.
    pub(super) fn batch(&self, sent: u64) -> u64 {
        self.meter.stride(sent).min(self.left(sent))
    }

    /// Accepts an error of a receive that a lossy mechanism may have at any time.
    ///
    /// # Errors
    /// Any other error.
    pub(super) fn tolerate(&self, error: EndError) -> Result<()> {
        let error = match error {
            EndError::Sending(error) => return Err(error).context("sending"),
            EndError::Receiving(error) => error,
        };
        // ConnectionRefused: a datagram socket, after its peer has received the end mark and closed.
        let is_passing =
            matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::ConnectionRefused);
        if self.lossy && is_passing { Ok(()) } else { Err(error).context("receiving") }
    }

    /// Whether a party stops waiting for messages, because they may have been lost. `has_received`:
    /// whether it has received any since the last reading of the clock.
    pub(super) fn gives_up(&mut self, now_ns: u64, has_received: bool) -> bool {
        if has_received {
            self.received_ns = now_ns;
            return false;
        }
        let quiet_ns = if self.share.is_some() { COUNT_QUIET_NS } else { QUIET_NS };
        self.lossy && self.meter.may_stop_sending(now_ns) && now_ns > self.received_ns + quiet_ns
    }

    /// The report of a party that has sent or answered `sent` messages, without what it has
    /// received.
    pub(super) fn report_sent(self, sent: u64) -> PartyResult {
        let (messages, window_ns, usage) = self.meter.result();
        let report = PartyReport {
            sent,
            messages,
            window_ns,
            longest_stall_ns: self.meter.longest_stall_ns(),
            ..PartyReport::new(self.role)
        };
        (report, usage)
    }

    /// The report of a party that has received messages.
    pub(super) fn report_received(mut self, sent: u64, verifier: Verifier) -> PartyResult {
        let slices = self.meter.take_slices();
        let (received, faults) = verifier.finish();
        let (report, usage) = self.report_sent(sent);
        (PartyReport { received, faults, slices, ..report }, usage)
    }
}

/// The window of a party. A number of messages counts those of all senders; each sender opens and
/// closes its window by its share.
fn window_of(window: Window, role: Role, senders: usize) -> Window {
    match (window, role) {
        (Window::Count { warmup, .. }, Role::Producer(index)) => {
            let share = |window: Window| window.share(index, senders).unwrap_or_default();
            let warmup = share(Window::Count { warmup, messages: 0 });
            Window::Count { warmup, messages: share(window) - warmup }
        }
        _ => window,
    }
}

/// The stream that a party sends. In a ping-pong both sides send the stream of producer 0, so a
/// reply has the same bytes as its request, and a mechanism that returns the request replies
/// correctly.
pub(super) fn stream(role: Role) -> usize {
    if let Role::Producer(index) = role { index } else { 0 }
}
