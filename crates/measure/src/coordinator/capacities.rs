//! Probes effective capacities in a separate process, so that a mechanism that hangs or crashes
//! does no harm.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::children::{ChildProcess, Children, adopt_strays};
use super::{Interrupt, Scratch};
use crate::case::{Case, Role};
use crate::protocol::{self, ToChild, ToCoordinator};

/// How long one probe may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The effective capacity of each case, as [`crate::mechanism::Mechanism::effective_capacity`]
/// probes it. `None` if it cannot be probed, if the probe failed or timed out, and for all cases
/// left when the user interrupts.
///
/// # Errors
/// When no process can be started.
pub fn capacities<'a>(
    cases: impl IntoIterator<Item = &'a Case>,
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
) -> Result<Vec<Option<u64>>> {
    adopt_strays();
    let dir = scratch.instance()?;
    let mut child = Children::default();
    let mut capacities: Vec<(&Case, Option<u64>)> = Vec::new();
    let mut stuck: Vec<&str> = Vec::new();
    for case in cases {
        let same = capacities.iter().find(|(other, _)| *other == case).map(|(_, capacity)| *capacity);
        let capacity = match same {
            Some(capacity) => capacity,
            None if interrupt.is_requested() || stuck.contains(&&*case.mechanism) => None,
            None => {
                if child.0.is_empty() {
                    child.0.push(ChildProcess::start_own(Role::All, dir.path())?);
                }
                probe(&child.0[0].socket, case, interrupt).unwrap_or_else(|_| {
                    // The child hangs or has crashed. The other mechanisms get a new one.
                    child.end();
                    stuck.push(&case.mechanism);
                    None
                })
            }
        };
        capacities.push((case, capacity));
    }
    Ok(capacities.into_iter().map(|(_, capacity)| capacity).collect())
}

/// Lets the child at the other end of `socket` probe one case.
fn probe(socket: &OwnedFd, case: &Case, interrupt: &Interrupt) -> Result<Option<u64>> {
    protocol::send(socket, &ToChild::EffectiveCapacity(Box::new(case.clone())), &[])?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut ready = [PollFd::new(socket, PollFlags::IN), PollFd::new(interrupt, PollFlags::IN)];
        match poll(&mut ready, Some(&timeout)) {
            Ok(0) => anyhow::bail!("no reply in time"),
            Err(Errno::INTR) => {}
            polled => {
                polled.context("waiting for a child")?;
                anyhow::ensure!(ready[1].revents().is_empty(), "interrupted");
                break;
            }
        }
    }
    match protocol::receive(socket)? {
        Some((ToCoordinator::EffectiveCapacity { effective_capacity }, _)) => Ok(effective_capacity),
        _ => anyhow::bail!("unexpected reply"),
    }
}
