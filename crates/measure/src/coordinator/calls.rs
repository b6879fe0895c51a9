//! Counts the system calls per message, in separate instances that are traced and not timed.

use std::time::Duration;

use crate::case::{Case, Role};
use crate::entry::Registry;
use crate::window::Window;

use super::{Failure, FailureKind, Instance, Interrupt, Scratch, Setup};

/// The number of messages in the shorter of two instances. The additional calls of the longer
/// instance are due to its additional messages.
const FEW: u64 = 64;
/// The number of additional messages in the longer instance.
const MORE: u64 = 256;
/// As [`MORE`], if a server forwards the messages. A server makes some calls at start and on
/// timers.
const MORE_WITH_SERVER: u64 = 512;
/// The total size of the additional messages in bytes, if they are long. A long message takes many
/// calls.
const BYTES: usize = 16 << 20;
/// The minimum number of additional messages.
const LEAST: u64 = 32;
/// How long an instance may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The number of system calls that all children of a case make together for one message or round
/// trip.
///
/// `None` in these cases:
///
/// - Tracing is forbidden on this machine, or an instance failed.
/// - The ends are in one process. They make few system calls.
/// - The case is a pipeline.
/// - Messages of a stream may be lost. The consumer then reports its progress to the producers, so that they can
///   choose their rate. Those calls belong to the harness and not to the mechanism.
///
/// # Errors
/// When the user interrupts the run.
pub fn calls(
    registry: &Registry,
    case: &Case,
    cpus: &[usize],
    scratch: &mut Scratch,
    interrupt: &mut Interrupt,
) -> Result<Option<f64>, Failure> {
    let Some(entry) = registry.get(&case.mechanism).filter(|_| !case.scope.in_process()) else { return Ok(None) };
    // The processes of a pipeline make calls at start and for batches, which cannot be attributed
    // to single messages.
    if entry.spec().may_lose_stream(case.pattern) || case.pattern.is_pipeline() {
        return Ok(None);
    }
    let mut count_calls = |messages| {
        let setup = Setup {
            case: case.clone(),
            window: Window::Count { warmup: 1, messages },
            seed: 1,
            secret: 1,
            cpus: cpus.to_vec(),
            timeout: TIMEOUT,
            count_timeout: TIMEOUT,
            unpaused_run_ns: 0,
            traced: true,
            other_host: None,
        };
        match Instance::run(entry.as_ref(), &setup, scratch, interrupt) {
            Ok(measured) => Ok(measured.calls),
            Err(failure) if failure.kind == FailureKind::Interrupted => Err(failure),
            Err(_) => Ok(None),
        }
    };
    let has_server = entry.mechanism().roles(case).contains(&Role::Broker);
    let enough = (BYTES / case.payload.len().max(1)) as u64;
    let more = enough.clamp(LEAST, if has_server { MORE_WITH_SERVER } else { MORE });
    let few = more.min(FEW);
    let Some(calls_of_shorter) = count_calls(few)? else { return Ok(None) };
    let Some(calls_of_longer) = count_calls(few + more)? else { return Ok(None) };
    Ok(calls_of_longer.checked_sub(calls_of_shorter).map(|calls| calls as f64 / more as f64))
}
