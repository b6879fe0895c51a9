//! Whether an instance counts: what disturbed it from outside, and when it is discarded or has
//! failed.

use crate::coordinator::{Failure, FailureKind, Measured};
use crate::discarded::{Discarded, MAX_STEAL};
use crate::other_load::DISTURBING;
use crate::pattern_figures::PatternFigures;
use crate::record::{Figures, MIN_LAPS};
use crate::spec::{Loss, Spec};

/// The maximum share of late messages in an open loop, late because of the sender and not of the
/// mechanism. Above it an instance is discarded.
const MAX_LATE: f64 = 0.01;

/// What disturbed an instance from outside.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Disturbance<'a> {
    /// The laps in which the machine changed. Their slices are left out.
    pub(crate) discarded_laps: &'a [u64],
    /// Whether the host moved the cores during some of these laps.
    pub(crate) cores_moved: bool,
    /// The part of the cores' time that other processes used. `None` if it could not be read.
    pub(crate) other_load: Option<f64>,
}

/// Why an instance with `slices` valid slices is discarded, if it is. `late` is the part of its
/// messages that were late because of their sender.
pub(super) fn discarded(
    is_broken: bool,
    measured: &Measured,
    disturbance: Disturbance,
    late: f64,
    slices: usize,
) -> Option<Discarded> {
    if is_broken {
        return Some(Discarded::FailedVerification);
    }
    // Without enough slices, the whole window counts, and with it the time of a disturbance.
    if slices < MIN_LAPS {
        if let Some(stolen) = stolen_time(measured) {
            return Some(stolen);
        }
        if disturbance.cores_moved {
            return Some(Discarded::CoresMoved);
        }
    }
    (late > MAX_LATE).then_some(Discarded::LateSender { share: late })
}

/// Whether a hypervisor took so much time from the instance's cores that it is discarded.
fn stolen_time(measured: &Measured) -> Option<Discarded> {
    if measured.steal > MAX_STEAL {
        return Some(Discarded::StolenTime { share: measured.steal });
    }
    let share = measured.peer_load.map(|load| load.steal).filter(|steal| *steal > MAX_STEAL)?;
    Some(Discarded::StolenTimeOfPeer { share })
}

/// The result of an instance in which no message arrived. If something outside disturbed it, it is
/// discarded and repeated. Otherwise it has failed.
pub(super) fn without_messages(spec: &Spec, measured: &Measured, disturbance: Disturbance) -> Result<Figures, Failure> {
    let disturbing = |load: Option<f64>| load.filter(|share| *share > DISTURBING);
    let here = || disturbing(disturbance.other_load).map(|share| Discarded::OtherLoad { share });
    let there = || disturbing(measured.peer_load?.other_load).map(|share| Discarded::OtherLoadOfPeer { share });
    if let Some(discarded) = stolen_time(measured).or_else(here).or_else(there) {
        return Ok(empty_figures(measured, discarded));
    }
    let why = match spec.loss {
        Loss::BestEffort => "it lost all of them, or needs a longer --window",
        Loss::Never => "choose a longer --window",
    };
    Err(Failure { kind: FailureKind::Empty, text: format!("no message arrived within the window: {why}") })
}

/// The figures of an instance that received nothing.
pub(super) fn empty_figures(measured: &Measured, discarded: Discarded) -> Figures {
    Figures {
        messages: 0,
        window_ns: 1,
        latency: None,
        cpu_ns_per_message: None,
        sender_cpu_ns: None,
        receiver_cpu_ns: None,
        switches_per_message: None,
        offered: 0,
        delivered: 0,
        of_pattern: PatternFigures::None,
        memory: None,
        fairness: None,
        lost_in_window: 0,
        faults: measured.faults,
        breach: None,
        steal: measured.steal,
        peer_load: measured.peer_load,
        clock_error: measured.clock_error,
        discarded: Some(discarded),
        slices: Vec::new(),
        unpaused_run_ns: None,
        paused_slices: Vec::new(),
    }
}
