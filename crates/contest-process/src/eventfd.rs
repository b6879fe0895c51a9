//! Messages without bytes. The sender adds one to an eventfd's counter; the receiver reads the
//! whole counter.
//!
//! The counter itself is the message, so it carries only the number of messages. (It cannot carry a
//! sequence of arbitrary words.) Its highest bit is the end mark. A second eventfd, which is
//! written first, contains the number of messages before the end mark.
//!
//! The sender never blocks, however slow the receiver is: it never reaches the counter's maximum.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing::DescriptorChannel;
use estafette_measure::case::{Case, PayloadKind, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, retry_on_intr, write};

/// The end mark. A message count never comes near this value.
const END: u64 = 1 << 63;

pub(super) struct Eventfd;

impl Mechanism for Eventfd {
    fn spec(&self) -> Spec {
        Spec::new("process/eventfd")
            .kernel_copies(0)
            .implementation("eventfd(2): write adds one and never waits, read takes all")
            .payloads(&[PayloadKind::None])
            .tier(Tier::Suite)
    }

    fn effective_capacity(&self, _: &Case) -> Option<u64> {
        Some(capacity::MOST as u64)
    }
}

impl Transport<Raw> for Eventfd {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let tx = |[counter, total]: [OwnedFd; 2]| Ok(SendEnd { counter, total });
        let rx = |[counter, total]: [OwnedFd; 2]| Ok(RecvEnd { counter, total, pending: 0 });
        let forward = || pair().and_then(|(theirs, ours)| Ok((theirs, rx(ours)?)));
        let reply = || pair().and_then(|(theirs, ours)| Ok((theirs, tx(ours)?)));
        DescriptorChannel { forward, reply, tx, rx }.open(case, role, rendezvous)
    }
}

/// Creates the counter and the total of one direction. Returns their descriptors twice: for the
/// other side and for this one.
fn pair() -> Result<([OwnedFd; 2], [OwnedFd; 2])> {
    let counter = eventfd(0, EventfdFlags::CLOEXEC).context("making an eventfd")?;
    let total = eventfd(0, EventfdFlags::CLOEXEC).context("making an eventfd")?;
    Ok(([counter.try_clone()?, total.try_clone()?], [counter, total]))
}

/// Adds to a counter. Blocks only if that would overflow.
#[inline(always)]
fn add(counter: impl AsFd, value: u64) -> io::Result<()> {
    retry_on_intr(|| write(&counter, &value.to_ne_bytes()))?;
    Ok(())
}

/// Waits until a counter is not zero, and resets it to zero.
#[inline(always)]
fn read_counter(counter: impl AsFd) -> io::Result<u64> {
    let mut value = [0; 8];
    retry_on_intr(|| read(&counter, &mut value))?;
    Ok(u64::from_ne_bytes(value))
}

/// The sending end.
pub(super) struct SendEnd {
    counter: OwnedFd,
    total: OwnedFd,
}

impl SendEnd {
    #[cold]
    fn end(&self, total: u64) -> io::Result<()> {
        // Adds one, because the receiver would block on an eventfd whose counter is zero.
        add(&self.total, total + 1)?;
        add(&self.counter, END)
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        match source.empty_message() {
            None => add(&self.counter, 1),
            Some(total) => self.end(total),
        }
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    counter: OwnedFd,
    total: OwnedFd,
    /// Messages read from the counter but not counted yet.
    pending: u64,
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        if self.pending == 0 {
            self.pending = read_counter(&self.counter)?;
        }
        if self.pending == END {
            verifier.end_of_empty_messages(read_counter(&self.total)? - 1);
        } else {
            self.pending -= 1;
            verifier.empty_message();
        }
        Ok(())
    }
}
