//! Messages without bytes: the sender adds one to an eventfd's counter, the receiver takes all that is there.
//!
//! The counter is the whole message, so it carries how many there were and no more; a word it could carry only alone, and
//! not every one. Its highest bit is the end mark, and how many messages came before it is in a second eventfd, written
//! first.
//!
//! No sender comes to the end of a counter, so it never waits, however far behind the receiver is.

use std::future::{Future, ready};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result};
use estafette_contest_common::capacity;
use estafette_contest_common::fd_passing;
use estafette_measure::case::{Case, PayloadKind, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{read, retry_on_intr, write};

/// No count of messages comes near it.
const END: u64 = 1 << 63;

pub(super) struct Eventfd;

impl Mechanism for Eventfd {
    fn spec(&self) -> Spec {
        Spec::new("process/eventfd")
            .implementation("eventfd(2): write adds one and never waits, read takes all")
            .payloads(&[PayloadKind::None])
            .tier(Tier::Suite)
    }

    fn effective_capacity(&self, _: &Case) -> Option<u64> {
        Some(capacity::MOST as u64)
    }
}

impl Transport<Raw> for Eventfd {
    type Tx = Adding;
    type Rx = Taking;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Adding, Taking>> {
        let tx = |[counter, total]: [OwnedFd; 2]| Ok(Adding { counter, total });
        let rx = |[counter, total]: [OwnedFd; 2]| Ok(Taking { counter, total, taken: 0 });
        let forward = || pair().and_then(|(theirs, ours)| Ok((theirs, rx(ours)?)));
        let reply = || pair().and_then(|(theirs, ours)| Ok((theirs, tx(ours)?)));
        fd_passing::open_several(case, role, rendezvous, forward, reply, tx, rx)
    }
}

/// The counter and the total of one direction, twice: for the other side and for this one.
fn pair() -> Result<([OwnedFd; 2], [OwnedFd; 2])> {
    let counter = eventfd(0, EventfdFlags::CLOEXEC).context("making an eventfd")?;
    let total = eventfd(0, EventfdFlags::CLOEXEC).context("making an eventfd")?;
    Ok(([counter.try_clone()?, total.try_clone()?], [counter, total]))
}

/// Adds to a counter; waits only where that would overflow.
#[inline(always)]
fn add(counter: impl AsFd, value: u64) -> io::Result<()> {
    retry_on_intr(|| write(&counter, &value.to_ne_bytes()))?;
    Ok(())
}

/// Waits until a counter is not zero, and sets it to zero.
#[inline(always)]
fn take(counter: impl AsFd) -> io::Result<u64> {
    let mut value = [0; 8];
    retry_on_intr(|| read(&counter, &mut value))?;
    Ok(u64::from_ne_bytes(value))
}

/// The sending end.
pub(super) struct Adding {
    counter: OwnedFd,
    total: OwnedFd,
}

impl Adding {
    #[cold]
    fn end(&self, total: u64) -> io::Result<()> {
        // One more, as an eventfd that holds nothing would be waited for.
        add(&self.total, total + 1)?;
        add(&self.counter, END)
    }
}

impl Tx for Adding {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(match source.pulse() {
            None => add(&self.counter, 1),
            Some(total) => self.end(total),
        })
    }
}

/// The receiving end.
pub(super) struct Taking {
    counter: OwnedFd,
    total: OwnedFd,
    /// What was in the counter and is still to be counted.
    taken: u64,
}

impl Taking {
    #[inline(always)]
    fn receive(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        if self.taken == 0 {
            self.taken = take(&self.counter)?;
        }
        if self.taken == END {
            verifier.last_pulse(take(&self.total)? - 1);
        } else {
            self.taken -= 1;
            verifier.pulse();
        }
        Ok(())
    }
}

impl Rx for Taking {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive(verifier))
    }
}
