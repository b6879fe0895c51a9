//! System calls for a message, counted in instances of their own, which are traced and not timed.

use std::time::Duration;

use crate::case::{Case, Role};
use crate::entry::Registry;
use crate::window::Window;

use super::{Failure, FailureKind, Instance, Interrupt, Scratch, Setup};

/// Messages of the shorter one of two instances. What the longer one needs in addition is due to messages alone.
const FEW: u64 = 64;
/// So many more has the longer one.
const MORE: u64 = 256;
/// The same where a server is between, which makes some calls by the clock, and as it starts.
const MORE_BY_A_SERVER: u64 = 512;
/// Of long messages, which take many calls each, so many bytes will do.
const BYTES: usize = 16 << 20;
const LEAST: u64 = 32;
/// How long an instance may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many system calls the children of a case make for one message, or round trip, all of them together. None where this
/// machine forbids to trace, where an instance failed, for ends in one process, which ask the kernel for little, for pipelines, and where
/// the consumer must tell its producers how fast to send: those calls would be ours.
///
/// # Errors
/// When the user wants to stop.
pub fn calls(
    registry: &Registry,
    case: &Case,
    cpus: &[usize],
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
) -> Result<Option<f64>, Failure> {
    let Some(entry) = registry.get(&case.mechanism).filter(|_| !case.scope.in_process()) else { return Ok(None) };
    // How a pipeline's processes start, and what they collect before they call, is not a matter of one message.
    if entry.spec().is_paced(case.pattern) || case.pattern.is_pipeline() {
        return Ok(None);
    }
    let mut of = |messages| {
        let setup = Setup {
            case: case.clone(),
            window: Window::Count { warmup: 1, messages },
            seed: 1,
            cpus: cpus.to_vec(),
            timeout: TIMEOUT,
            count_timeout: TIMEOUT,
            traced: true,
        };
        match Instance::run(entry.as_ref(), &setup, scratch, interrupt) {
            Ok(measured) => Ok(measured.calls),
            Err(failure) if failure.kind == FailureKind::Interrupted => Err(failure),
            Err(_) => Ok(None),
        }
    };
    let served = entry.roles(case).contains(&Role::Broker);
    let enough = (BYTES / case.payload.len().max(1)) as u64;
    let more = enough.clamp(LEAST, if served { MORE_BY_A_SERVER } else { MORE });
    let few = more.min(FEW);
    let Some(fewer) = of(few)? else { return Ok(None) };
    let Some(calls) = of(few + more)? else { return Ok(None) };
    Ok(calls.checked_sub(fewer).map(|calls| calls as f64 / more as f64))
}
