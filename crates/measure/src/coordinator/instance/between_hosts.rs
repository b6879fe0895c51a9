//! An instance whose ends are on two hosts: how long its packets take, when both hosts start, and
//! how wrong times of two clocks are.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{ChildProcess, Failure, FailureKind, Instance, Interrupt, START_DELAY_NS, Setup};
use crate::clock::now_ns;
use crate::hosts::{ClockError, Offset};
use crate::protocol::{self, AT_ONCE, ToChild};
use crate::window::TAIL_NS;

/// The number of round trips to another host that each time-out allows for: a packet of a child,
/// its answer, and a connection with an encrypted handshake between them.
const ROUND_TRIPS: u32 = 8;
/// The number of round trips to another host for which producers continue to send after the window.
const ROUND_TRIPS_OF_TAIL: u64 = 3;
/// The number of round trips to another host after which both start, if times of both clocks are
/// compared: one for `go` and its confirmation, and two for a host that is slow once.
const ROUND_TRIPS_OF_START: u64 = 3;

impl Instance {
    /// The round trip to the other host in nanoseconds. 0 on one host.
    fn round_trip_ns(&self) -> u64 {
        self.round_trip.map_or(0, |round_trip| round_trip.as_nanos() as u64)
    }

    /// How long producers continue to send after the window. Without compared clocks, this host
    /// starts when the other one has reported its start: a round trip after that, and another one
    /// if a packet is lost.
    pub(super) fn tail_ns(&self) -> u64 {
        TAIL_NS + ROUND_TRIPS_OF_TAIL * self.round_trip_ns()
    }

    /// How much longer than on one host a time-out is.
    pub(super) fn allowance(&self) -> Duration {
        self.round_trip.map_or(Duration::ZERO, |round_trip| round_trip * ROUND_TRIPS)
    }

    /// The other host's clock, if times of both clocks are compared.
    ///
    /// # Errors
    /// When the clocks cannot be compared, or the user interrupts.
    pub(super) fn clock_offset(setup: &Setup, interrupt: &mut Interrupt) -> Result<Option<Offset>, Failure> {
        let Some(host) = setup.other_host.as_ref().filter(|_| setup.case.load.rate().is_some()) else {
            return Ok(None);
        };
        match host.clock_offset(interrupt)? {
            Some(offset) => Ok(Some(offset)),
            None => Err(Failure::new(FailureKind::Interrupted, "interrupted")),
        }
    }

    /// Compares the clocks of both hosts again, and corrects the reported times for the drift since
    /// the start.
    pub(super) fn clock_error(
        &mut self,
        setup: &Setup,
        interrupt: &mut Interrupt,
    ) -> Result<Option<ClockError>, Failure> {
        let Some(before) = self.clock_offset else { return Ok(None) };
        let Some(after) = Instance::clock_offset(setup, interrupt)? else { return Ok(None) };
        let error = ClockError::between(before, after);
        if !error.is_possible() {
            return Err(Failure::new(FailureKind::Error, "the clock of the other host jumped during the instance"));
        }
        let parties = self.reports.iter_mut().flatten().flat_map(|report| &mut report.parties);
        for (ns, _) in parties.filter_map(|party| party.latency.as_mut()).flat_map(|latency| &mut latency.counts) {
            *ns = error.corrected(*ns);
        }
        Ok(Some(error))
    }

    pub(super) fn send_go(&mut self) -> Result<()> {
        self.published.clear();
        let (here, there): (Vec<_>, Vec<_>) = self.children.0.iter().partition(|child| child.pid().is_some());
        if let Some(offset) = self.clock_offset {
            // Both hosts start at the same moment, each by its own clock. If a packet is lost, this one may start
            // later: half of the warm-up is enough to send what was due until then.
            let start_ns = now_ns() + START_DELAY_NS + ROUND_TRIPS_OF_START * self.round_trip_ns();
            send_go_to(&there, start_ns.saturating_add_signed(offset.ns))?;
            there.iter().try_for_each(|child| child.wait_until_begun())?;
            let late_ns = now_ns().saturating_sub(start_ns);
            if late_ns > self.warmup_ns / 2 {
                bail!("the session was slow: the producers would have started {} ms late", late_ns / 1_000_000);
            }
            return send_go_to(&here, start_ns);
        }
        // The other host starts when this arrives there. This one starts when it has.
        // So producers never end before the consumers' window closes, even if a packet is lost.
        send_go_to(&there, AT_ONCE)?;
        there.iter().try_for_each(|child| child.wait_until_begun())?;
        send_go_to(&here, now_ns() + START_DELAY_NS)
    }
}

/// Sends `go` to children.
fn send_go_to(children: &[&ChildProcess], start_ns: u64) -> Result<()> {
    children.iter().try_for_each(|child| {
        protocol::send(&child.socket, &ToChild::Go { start_ns }, &[]).with_context(|| child.role.to_string())
    })
}
