//! Bounds: the limit that binds a case, to stand beside its result.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::{Cell, Load, Pattern, Payload, Place};
use crate::limits::Limits;
use crate::message::{Generator, Shared, Value as _, Verifier};
use crate::spec::{Scope, Wait};

/// What filling and checking a message costs by itself, on one core, with the message in its cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Handling {
    /// What is filled and checked.
    pub payload: Payload,
    /// Nanoseconds a message.
    pub ns: f64,
}

impl Handling {
    /// Measures it: the median of batches, some milliseconds long.
    pub fn measure(payload: Payload) -> Handling {
        const BATCHES: usize = 15;
        let mut next = Generator::new(1, 0, payload.len());
        let mut seen = Verifier::new(1, 1, payload.len()).reading(!matches!(payload, Payload::Unread(_)));
        let mut buffer = vec![0; payload.len()];
        let mut one = || match payload {
            Payload::None => {
                std::hint::black_box(next.pulse());
                seen.pulse();
            }
            Payload::U64 => seen.word(std::hint::black_box(next.word())),
            Payload::Bytes(_) | Payload::Inline => {
                next.fill(&mut buffer);
                seen.bytes(std::hint::black_box(&buffer));
            }
            Payload::Message(_) => {
                let topic = next.message(&mut buffer);
                seen.message(std::hint::black_box(topic), std::hint::black_box(&buffer));
            }
            Payload::Shared(_) | Payload::Unread(_) => std::hint::black_box(Shared::make(&mut next)).check(&mut seen),
        };
        let mut count = 1u32;
        let mut timed = |count: u32| {
            let start = Instant::now();
            (0..count).for_each(|_| one());
            start.elapsed()
        };
        while timed(count) < Duration::from_micros(200) && count < 1 << 24 {
            count *= 2;
        }
        let mut batches: Vec<f64> = (0..BATCHES).map(|_| timed(count).as_nanos() as f64 / f64::from(count)).collect();
        batches.sort_by(f64::total_cmp);
        Handling { payload, ns: batches[BATCHES / 2] }
    }
}

/// The bytes that pass between cores at once.
const LINE: usize = 64;

/// The limit that binds a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Its name.
    pub name: String,
    /// What it allows at best, in the cell's metric: nanoseconds a round trip or a message.
    pub ns: f64,
}

/// The limit that binds a cell. `ring_ns` gives what the reference ring needed in the same run and rounds for the same
/// pattern and payload, where it took part; `handling` what filling and checking costs.
pub fn bind(cell: &Cell, limits: &Limits, ring_ns: Option<f64>, handling: &[Handling]) -> Option<Bound> {
    // An open loop's latency is of messages that wait for their time: no limit of throughput binds it.
    if cell.load != Load::Saturated {
        return None;
    }
    let bound = |name: &str, ns: f64| Some(Bound { name: name.to_owned(), ns });
    let handled = handling.iter().find(|handling| handling.payload == cell.payload).map(|handling| handling.ns);
    if cell.scope == Scope::Task {
        // Two tasks may share a worker: no line has to cross, nobody has to be woken.
        let times = if cell.pattern.asks() { 2.0 } else { 1.0 };
        return bound("fill and check", handled? * times);
    }
    if cell.pattern == Pattern::SameThread {
        // It goes into the system and comes out again.
        return bound("two system calls", 2.0 * limits.kernel.syscall_ns);
    }
    if cell.pattern == Pattern::Codec {
        // A copy of the bytes and a look at them; what that takes is what the row says that does no more.
        return bound("copying and looking", ring_ns?);
    }
    if cell.pattern.is_pipeline() {
        // What two processes need that do the same without a sandbox.
        return bound("native pair", ring_ns?);
    }
    if let Some(ns) = ring_ns {
        return bound("reference ring", ns);
    }
    // A request of several waits for an answer as one of a ping-pong does.
    let pattern = if cell.pattern.asks() { Pattern::PingPong } else { cell.pattern };
    match (pattern, cell.wait, cell.place) {
        (Pattern::PingPong, Wait::Spin | Wait::Adaptive, _) => {
            bound("cache-line round trip", limits.cache_line.as_ref()?.round_trip_ns)
        }
        (Pattern::PingPong, Wait::Block, Place::SameCore) => {
            bound("futex round trip, same core", limits.futex.same_core.round_trip_ns)
        }
        (Pattern::PingPong, Wait::Block, _) => {
            // A core that has not gone to sleep may answer sooner than one that has, or later: the better of the two.
            let other = [&limits.futex.other_core_idle, &limits.futex.other_core_busy];
            let fastest = other.into_iter().flatten().map(|futex| futex.round_trip_ns).min_by(f64::total_cmp);
            bound("futex round trip, other core", fastest.unwrap_or(limits.futex.same_core.round_trip_ns))
        }
        // What has no bytes is not copied, and many at once may be told by one; of less than a line many come in one.
        _ if cell.payload.len() < LINE => None,
        (Pattern::Duplex, _, place) if place != Place::SameCore => bound("fill and check on two cores", handled? / 2.0),
        (_, _, Place::SameCore) => bound("fill and check", handled?),
        _ => bound("copy across cores", cell.payload.len() as f64 * 1e9 / cross_core(limits, cell.payload.len())?),
    }
}

/// The bandwidth across cores for messages of the nearest size that was measured.
fn cross_core(limits: &Limits, len: usize) -> Option<f64> {
    let near = |size: u64| (size as f64 / len as f64).ln().abs();
    let measured = limits.copy.iter().filter_map(|copy| Some((copy.size_bytes, copy.cross_core_bytes_per_s?)));
    measured.min_by(|a, b| near(a.0).total_cmp(&near(b.0))).map(|(_, bandwidth)| bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_take_longer_to_handle() {
        let [word, page] = [Payload::U64, Payload::Bytes(65_536)].map(|payload| Handling::measure(payload).ns);
        assert!(word > 0.0 && page > 10.0 * word, "{word} {page}");
    }
}
