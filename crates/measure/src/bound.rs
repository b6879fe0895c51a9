//! Bounds: the least time that this machine allows for a case, shown beside each result.

use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::case::{Cell, Load, Payload, PayloadKind, Place};
use crate::limits::{CopyBandwidth, Limits, Link};
use crate::message::{Generator, Shared, Value as _, Verifier};
use crate::spec::{Runtime, Scope, Spec, Wait};

/// The time to fill and check a message on one core, with the message in its cache, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Handling {
    /// The payload that is filled and checked.
    pub payload: Payload,
    /// Nanoseconds to fill a message and check it.
    pub ns: f64,
    /// Nanoseconds of that to fill it; none in records of older versions.
    #[serde(default)]
    pub fill_ns: Option<f64>,
    /// Nanoseconds to check a message that is already there; none in records of older versions.
    #[serde(default)]
    pub check_ns: Option<f64>,
}

impl Handling {
    /// Measures both, as the fastest of several batches: a bound must not depend on whether the machine
    /// was disturbed while it was measured. Blocks for some milliseconds.
    pub fn measure(payload: Payload) -> Handling {
        Handling::fastest_of(payload, BATCHES)
    }

    /// Measures both again, with fewer batches, and keeps what was faster. A core may run at another
    /// speed at the beginning of a run than later.
    pub(crate) fn update(&mut self) {
        let again = Handling::fastest_of(self.payload, FEWER_BATCHES);
        let faster = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a.min(b));
        self.ns = self.ns.min(again.ns);
        self.fill_ns = faster(self.fill_ns, again.fill_ns);
        self.check_ns = faster(self.check_ns, again.check_ns);
    }

    fn fastest_of(payload: Payload, batches: usize) -> Handling {
        let mut source = Generator::new(1, 0, payload.len());
        let mut verifier = Verifier::new(1, 1, payload.len()).with_body_checks(!matches!(payload, Payload::Unread(_)));
        let mut buffer = vec![0; payload.len()];
        let ns = fastest_ns(batches, || match payload {
            Payload::None => {
                black_box(source.empty_message());
                verifier.empty_message();
            }
            Payload::U64 => verifier.word(black_box(source.word())),
            Payload::Bytes(_) | Payload::Inline => {
                source.fill(&mut buffer);
                verifier.bytes(black_box(&buffer));
            }
            Payload::Message(_) => {
                let topic = source.message(&mut buffer);
                verifier.message(black_box(topic), black_box(&buffer));
            }
            Payload::Shared(_) | Payload::Unread(_) => black_box(Shared::make(&mut source)).check(&mut verifier),
        });
        let fill_ns = fastest_ns(batches, || match payload {
            Payload::None => drop(black_box(source.empty_message())),
            Payload::U64 => drop(black_box(source.word())),
            Payload::Bytes(_) | Payload::Inline => {
                source.fill(&mut buffer);
                black_box(&buffer);
            }
            Payload::Message(_) => {
                black_box(source.message(&mut buffer));
                black_box(&buffer);
            }
            Payload::Shared(_) | Payload::Unread(_) => drop(black_box(Shared::make(&mut source))),
        });
        Handling { payload, ns, fill_ns: Some(fill_ns.min(ns)), check_ns: Some(check_ns(payload, batches).min(ns)) }
    }

    /// Nanoseconds of the slower of filling and checking: a lower bound of a stream whose two ends
    /// have a core each.
    fn slower_ns(&self) -> f64 {
        self.fill_ns.map_or(self.ns / 2.0, |fill_ns| fill_ns.max(self.check_ns()))
    }

    /// Nanoseconds to check a message. 0 in records of older versions, which do not have it.
    fn check_ns(&self) -> f64 {
        self.check_ns.unwrap_or_else(|| self.fill_ns.map_or(0.0, |fill_ns| self.ns - fill_ns))
    }
}

/// Measures what it takes to check a message that is already in the cache. It is timed by itself:
/// the difference of two times of less than a nanosecond would have an error of half of it.
fn check_ns(payload: Payload, batches: usize) -> f64 {
    let mut source = Generator::new(1, 0, payload.len());
    let mut verifier = Verifier::new(1, 1, payload.len()).with_body_checks(!matches!(payload, Payload::Unread(_)));
    let len = payload.len();
    match payload {
        Payload::None => fastest_ns(batches, || verifier.empty_message()),
        Payload::U64 => fastest_check_ns(batches, len, || source.word(), |word| verifier.word(*word)),
        Payload::Bytes(_) | Payload::Inline => {
            let fill = || {
                let mut message = vec![0; len];
                source.fill(&mut message);
                message
            };
            fastest_check_ns(batches, len, fill, |message| verifier.bytes(message))
        }
        Payload::Message(_) => {
            let fill = || {
                let mut data = vec![0; len];
                (source.message(&mut data), data)
            };
            fastest_check_ns(batches, len, fill, |(topic, data)| verifier.message(*topic, data))
        }
        Payload::Shared(_) | Payload::Unread(_) => {
            fastest_check_ns(batches, len, || Shared::make(&mut source), |message| message.check(&mut verifier))
        }
    }
}

/// The time of `check` for a message of `len` bytes, in the fastest of some batches of messages
/// from `fill`.
fn fastest_check_ns<T>(batches: usize, len: usize, mut fill: impl FnMut() -> T, mut check: impl FnMut(&T)) -> f64 {
    /// The bytes of a batch. They fit into the second cache of a core, and take much longer to
    /// check than to read the clock.
    const BATCH_BYTES: usize = 256 << 10;
    let count = (BATCH_BYTES / len.max(8)).max(1);
    let mut timed = || {
        let batch: Vec<T> = (0..count).map(|_| fill()).collect();
        let start = Instant::now();
        batch.iter().for_each(|message| check(black_box(message)));
        start.elapsed().as_nanos() as f64 / count as f64
    };
    (0..batches).map(|_| timed()).fold(f64::INFINITY, f64::min)
}

/// The number of batches before the first round.
const BATCHES: usize = 15;
/// The number of batches after each round.
const FEWER_BATCHES: usize = 3;

/// The time of `one` in the fastest of some batches that are long enough for the clock.
fn fastest_ns(batches: usize, mut one: impl FnMut()) -> f64 {
    let mut timed = |count: u32| {
        let start = Instant::now();
        (0..count).for_each(|_| one());
        start.elapsed()
    };
    let mut count = 1u32;
    while timed(count) < Duration::from_micros(200) && count < 1 << 24 {
        count *= 2;
    }
    (0..batches).map(|_| timed(count).as_nanos() as f64 / f64::from(count)).fold(f64::INFINITY, f64::min)
}

/// A cost that no mechanism can avoid in a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Filling each message and checking it, one after the other on one core.
    FillAndCheck,
    /// The slower of filling and checking, which overlap on two cores.
    FillOrCheck,
    /// Checking each message: one receiver checks what several senders fill, on any number of
    /// cores.
    Check,
    /// Half of filling and checking: two cores each do both.
    FillAndCheckOnTwoCores,
    /// Moving the message's bytes from one core's cache to the other's.
    CopyAcrossCores,
    /// A cache line's way to the other core and back.
    CacheLineRoundTrip,
    /// Waking a sleeping thread, which wakes the first one in turn.
    WakeRoundTrip,
    /// One system call to send and one to receive.
    TwoSystemCalls,
    /// A codec that copies the message's bytes and reads the copy.
    CopyAndRead,
    /// The fastest round trip of a minimal packet on the link between the hosts, and the bytes of
    /// the message on each way at the link's rate.
    LinkRoundTrip,
    /// The bytes of the message at the rate of the link between the hosts.
    LinkRate,
    /// Two native processes which do the same work as a pipeline, over the same shared memory.
    NativePair,
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cost::FillAndCheck => "fill and check",
            Cost::FillOrCheck => "fill or check, which overlap",
            Cost::Check => "check",
            Cost::FillAndCheckOnTwoCores => "fill and check on two cores",
            Cost::CopyAcrossCores => "copy between cores",
            Cost::CacheLineRoundTrip => "cache-line round trip",
            Cost::WakeRoundTrip => "two wakes",
            Cost::TwoSystemCalls => "two system calls",
            Cost::CopyAndRead => "copy and read",
            Cost::LinkRoundTrip => "round trip of the link",
            Cost::LinkRate => "rate of the link",
            Cost::NativePair => "native pair",
        })
    }
}

/// The least time a case can take on this machine: a roofline. The largest of the costs binds it.
///
/// Source of the idea: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual
/// performance model for multicore architectures", Communications of the ACM 52 (2009).
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// Every cost that applies, with its nanoseconds per message or round trip; the largest, which
    /// binds, first.
    costs: Vec<(Cost, f64)>,
}

impl Bound {
    /// The bound of these costs; none where there is no usable one.
    pub(crate) fn of(costs: impl IntoIterator<Item = Option<(Cost, f64)>>) -> Option<Bound> {
        let mut costs: Vec<(Cost, f64)> = costs.into_iter().flatten().filter(|(_, ns)| *ns > 0.0).collect();
        costs.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        (!costs.is_empty()).then_some(Bound { costs })
    }

    /// The cost that binds.
    pub fn cost(&self) -> Cost {
        self.costs[0].0
    }

    /// The least time, in the cell's metric: nanoseconds per message or round trip.
    pub fn ns(&self) -> f64 {
        self.costs[0].1
    }

    /// The smaller costs, which the one that binds hides.
    pub fn hidden(&self) -> &[(Cost, f64)] {
        &self.costs[1..]
    }
}

/// The costs of a cell on this machine. The pattern says which of them apply.
pub(crate) struct Costs<'a> {
    cell: &'a Cell,
    limits: &'a Limits,
    /// The median of the reference that took part in the same cell: the copying codec, or the
    /// native pair of a pipeline.
    reference_ns: Option<f64>,
    /// What filling and checking the cell's payload cost in the same run.
    handling: Option<&'a Handling>,
    /// The link between the hosts of a cell whose ends are on two.
    link: Option<&'a Link>,
    /// The median of the fastest mechanism in the cell.
    fastest_ns: Option<f64>,
}

/// A mechanism that takes less than this part of the time that a message takes at the link's rate
/// shows that not the link but TCP limited the rate. The rest of the time is for headers, of which
/// UDP has fewer.
const FASTER_THAN_LINK: f64 = 0.9;

/// The bound of a cell. `None` for an open loop, and if no cost is known. Times are in nanoseconds.
/// `reference_ns` is the median of the reference that took part in the same
/// cell: the copying codec, or the native pair of a pipeline. `handling` is what filling and
/// checking cost in the same run. `link` is the link between the hosts of the run, if there are
/// two. Its rate was measured with TCP: it is no bound if a mechanism, of which `fastest_ns` is the
/// median, is faster.
pub fn bound_of(
    cell: &Cell,
    limits: &Limits,
    reference_ns: Option<f64>,
    handling: &[Handling],
    link: Option<&Link>,
    fastest_ns: Option<f64>,
) -> Option<Bound> {
    // The latency of an open loop includes waiting for the schedule: no cost of throughput bounds it.
    if cell.load != Load::Saturated {
        return None;
    }
    let handling = handling.iter().find(|handling| handling.payload == cell.payload);
    let link = link.filter(|_| cell.place == Place::OtherHost);
    cell.pattern.rules().bound(&Costs { cell, limits, reference_ns, handling, link, fastest_ns })
}

impl Costs<'_> {
    /// Whether all ends run on one core.
    pub(crate) fn is_one_core(&self) -> bool {
        let is_current_thread = matches!(self.cell.runtime, Runtime::TokioCurrent | Runtime::TokioCurrentUnconstrained);
        self.cell.place == Place::SameCore || is_current_thread
    }

    /// Filling each message and checking it, one after the other.
    pub(crate) fn fill_and_check(&self) -> Option<(Cost, f64)> {
        Some((Cost::FillAndCheck, self.handling?.ns))
    }

    /// The slower of filling and checking, which overlap.
    pub(crate) fn fill_or_check(&self) -> Option<(Cost, f64)> {
        Some((Cost::FillOrCheck, self.handling?.slower_ns()))
    }

    /// Half of filling and checking: two cores each do both.
    pub(crate) fn fill_and_check_on_two_cores(&self) -> Option<(Cost, f64)> {
        Some((Cost::FillAndCheckOnTwoCores, self.handling?.ns / 2.0))
    }

    /// What one receiver of several senders does for each message: it checks what they fill on any
    /// number of cores.
    pub(crate) fn of_one_receiver(&self) -> Option<(Cost, f64)> {
        if self.is_one_core() {
            self.fill_and_check()
        } else if self.cell.producers > 1 {
            Some((Cost::Check, self.handling?.check_ns()))
        } else {
            self.fill_or_check()
        }
    }

    /// The time of the reference in the same cell.
    pub(crate) fn reference(&self, cost: Cost) -> Option<(Cost, f64)> {
        Some((cost, self.reference_ns?))
    }

    /// One system call to send and one to receive.
    pub(crate) fn two_system_calls(&self) -> Option<(Cost, f64)> {
        Some((Cost::TwoSystemCalls, 2.0 * self.limits.kernel.syscall_ns))
    }

    /// What moving a message's bytes to the other core costs, where every message crosses.
    pub(crate) fn copy_across_cores(&self) -> Option<(Cost, f64)> {
        let cell = self.cell;
        let crosses = cell.place == Place::OtherCore && !matches!(cell.scope, Scope::Task | Scope::Sandbox);
        let is_read = matches!(cell.payload.kind(), PayloadKind::Bytes | PayloadKind::Message | PayloadKind::Inline);
        if !crosses || !is_read {
            return None;
        }
        let len = cell.payload.len();
        Some((Cost::CopyAcrossCores, len as f64 * 1e9 / cross_core(self.limits, len)?))
    }

    /// The time of a message's bytes on the link between two hosts. In a duplex the link carries
    /// two messages at the same time, one on each way.
    pub(crate) fn link_rate(&self) -> Option<(Cost, f64)> {
        let ns = self.link_transfer_ns()? / self.cell.pattern.rules().messages_on_link();
        let is_limit = self.fastest_ns.is_none_or(|fastest_ns| fastest_ns >= FASTER_THAN_LINK * ns);
        is_limit.then_some((Cost::LinkRate, ns))
    }

    /// The round trip of a message on the link between two hosts.
    fn link_round_trip(&self) -> Option<(Cost, f64)> {
        Some((Cost::LinkRoundTrip, self.link?.round_trip_fastest_ns + 2.0 * self.link_transfer_ns()?))
    }

    /// How long the bytes of a message take at the highest rate of the link that was found.
    fn link_transfer_ns(&self) -> Option<f64> {
        let rate = self.link?.rate_bytes_per_s();
        (rate > 0.0).then(|| self.cell.payload.len() as f64 * 1e9 / rate)
    }

    /// The bound of a round trip: a message is filled and checked on each way, one after the other.
    pub(crate) fn of_round_trip(&self) -> Option<Bound> {
        let Costs { cell, limits, handling, .. } = *self;
        let handled = handling.map(|handling| (Cost::FillAndCheck, 2.0 * handling.ns));
        let crosses = cell.place == Place::OtherCore && cell.scope != Scope::Task;
        let line = limits.cache_line.as_ref().filter(|_| crosses);
        let line = line.map(|line| (Cost::CacheLineRoundTrip, line.fastest_round_trip_ns));
        let sleeps = cell.wait == Wait::Block && cell.scope != Scope::Task;
        Bound::of([handled, line, sleeps.then(|| self.wakes()).flatten(), self.link_round_trip()])
    }

    /// The fastest wake there and back that was seen. The median is no bound: a core that has slept
    /// for a shorter time wakes sooner. Across cores it is not faster than on one core, where a
    /// wake is a context switch: in records of older versions the fastest round trip may be one in
    /// which nobody slept.
    fn wakes(&self) -> Option<(Cost, f64)> {
        let futex = &self.limits.futex;
        let same = Some(&futex.same_core);
        let candidates = match self.cell.place {
            Place::SameCore => [same, None, None],
            Place::OtherCore => [futex.other_core_idle.as_ref(), futex.other_core_busy.as_ref(), None],
            // The bound of two hosts is that of the network between them.
            Place::OtherHost => return None,
            Place::Free => [same, futex.other_core_idle.as_ref(), futex.other_core_busy.as_ref()],
        };
        let fastest = candidates.into_iter().flatten().filter_map(|wake| wake.fastest_round_trip_ns);
        let least = futex.same_core.fastest_round_trip_ns?;
        Some((Cost::WakeRoundTrip, fastest.min_by(f64::total_cmp)?.max(least)))
    }
}

/// The processor time that a mechanism's design needs for one message or round trip, in
/// nanoseconds: its system calls, each like one that does nothing, and the copies that the kernel
/// makes, each like a copy on one core. Its processes sleep, switch and do everything else in
/// addition.
///
/// `None` if the number of calls or of copies is unknown, or if several consumers receive a
/// message.
pub fn kernel_ns(cell: &Cell, spec: &Spec, calls: Option<f64>, limits: &Limits) -> Option<f64> {
    let copies = f64::from(spec.kernel_copies?) * cell.pattern.rules().messages_moved()?;
    let len = cell.payload.len();
    let bandwidth = nearest(limits, len, |copy| Some(copy.same_core_bytes_per_s))?;
    Some(calls? * limits.kernel.syscall_ns + copies * len as f64 * 1e9 / bandwidth)
}

/// The bandwidth across cores, in bytes per second, for the message size nearest to `len` that was
/// measured.
fn cross_core(limits: &Limits, len: usize) -> Option<f64> {
    nearest(limits, len, |copy| copy.cross_core_bytes_per_s)
}

fn nearest(limits: &Limits, len: usize, bandwidth: impl Fn(&CopyBandwidth) -> Option<f64>) -> Option<f64> {
    let distance = |size: u64| (size as f64 / len as f64).ln().abs();
    let measured = limits.copy.iter().filter_map(|copy| Some((copy.size_bytes, bandwidth(copy)?)));
    measured.min_by(|a, b| distance(a.0).total_cmp(&distance(b.0))).map(|(_, bandwidth)| bandwidth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Pattern;
    use crate::limits;

    #[test]
    fn more_bytes_take_longer_to_handle() {
        let [word, page] = [Payload::U64, Payload::Bytes(65_536)].map(Handling::measure);
        assert!(word.ns > 0.0 && page.ns > 10.0 * word.ns, "{word:?} {page:?}");
        // Both are timed by themselves, so together they may take less than one after the other.
        assert!(page.slower_ns() <= page.ns && page.slower_ns() >= page.ns / 10.0, "{page:?}");
    }

    #[test]
    fn the_largest_cost_binds() {
        let bound = Bound::of([Some((Cost::FillOrCheck, 60.0)), None, Some((Cost::CopyAcrossCores, 82.0))]).unwrap();
        assert_eq!((bound.cost(), bound.ns()), (Cost::CopyAcrossCores, 82.0));
        assert_eq!(bound.hidden(), [(Cost::FillOrCheck, 60.0)]);
        assert_eq!(Bound::of([None, Some((Cost::FillOrCheck, f64::NAN))]), None);
    }

    #[test]
    fn the_design_of_a_mechanism_has_its_calls_and_its_copies() {
        let limits =
            limits::measure(&limits::available_cpus()[..1], Duration::from_millis(10), &mut |_| Ok(())).unwrap();
        let cells = crate::suite::Suite::Overview.cells(crate::suite::Profile::Quick);
        let cell = |pattern| Cell { pattern, payload: Payload::Bytes(4096), ..cells[0].clone() };
        let spec = Spec::new("process/pipe").kernel_copies(2);
        let [one_way, round_trip] = [Pattern::Stream, Pattern::PingPong]
            .map(|pattern| kernel_ns(&cell(pattern), &spec, Some(0.0), &limits).unwrap());
        assert!(one_way > 0.0 && (round_trip / one_way - 2.0).abs() < 1e-9, "{one_way} {round_trip}");
        for pattern in [Pattern::Duplex, Pattern::SameThread] {
            assert_eq!(kernel_ns(&cell(pattern), &spec, Some(0.0), &limits), Some(one_way), "per message");
        }
        let calls = kernel_ns(&cell(Pattern::Stream), &spec.clone().kernel_copies(0), Some(3.0), &limits);
        assert_eq!(calls, Some(3.0 * limits.kernel.syscall_ns));
        assert_eq!(kernel_ns(&cell(Pattern::Stream), &spec, None, &limits), None);
        assert_eq!(kernel_ns(&cell(Pattern::PubSub), &spec, Some(3.0), &limits), None);
    }

    #[test]
    fn a_bound_is_the_fastest_of_a_run() {
        let mut handling = Handling { ns: f64::INFINITY, fill_ns: Some(0.0), ..Handling::measure(Payload::U64) };
        handling.update();
        assert!(handling.ns.is_finite() && handling.fill_ns == Some(0.0));
        assert!(handling.check_ns.is_some_and(|ns| ns > 0.0 && ns <= handling.ns), "{handling:?}");
    }

    #[test]
    fn several_senders_fill_on_several_cores() {
        let handled = Handling { payload: Payload::U64, ns: 10.0, fill_ns: Some(7.0), check_ns: None };
        let limits =
            limits::measure(&limits::available_cpus()[..1], Duration::from_millis(10), &mut |_| Ok(())).unwrap();
        let cells = crate::suite::Suite::Overview.cells(crate::suite::Profile::Quick);
        let bound = |pattern: Pattern, producers, place| {
            let cell = Cell { pattern, producers, place, runtime: Runtime::Thread, ..cells[0].clone() };
            let costs = Costs {
                cell: &cell,
                limits: &limits,
                reference_ns: None,
                handling: Some(&handled),
                link: None,
                fastest_ns: None,
            };
            pattern.rules().handling(&costs)
        };
        assert_eq!(bound(Pattern::Stream, 1, Place::OtherCore), Some((Cost::FillOrCheck, 7.0)));
        assert_eq!(bound(Pattern::FanIn, 2, Place::OtherCore), Some((Cost::Check, 3.0)));
        assert_eq!(bound(Pattern::Duplex, 1, Place::OtherCore), Some((Cost::FillAndCheckOnTwoCores, 5.0)));
        assert_eq!(bound(Pattern::Mpmc, 2, Place::OtherCore), None);
        assert_eq!(bound(Pattern::FanIn, 2, Place::SameCore), Some((Cost::FillAndCheck, 10.0)));
    }

    #[test]
    fn a_case_between_hosts_takes_at_least_what_the_link_takes() {
        let limits =
            limits::measure(&limits::available_cpus()[..1], Duration::from_millis(10), &mut |_| Ok(())).unwrap();
        let handled =
            [Handling { payload: Payload::Bytes(1000), ns: 300.0, fill_ns: Some(200.0), check_ns: Some(100.0) }];
        let link = Link {
            round_trip_fastest_ns: 40_000.0,
            round_trip_ns: 50_000.0,
            round_trips: 100,
            round_trips_lost: 0,
            rate_1_bytes_per_s: 1e8,
            rate_4_bytes_per_s: 1e9,
            congestion_control: None,
            loss: crate::limits::PacketLoss::new(0, 100),
        };
        let cells = crate::suite::Suite::Overview.cells(crate::suite::Profile::Quick);
        let bound_with = |pattern, place, link, fastest_ns| {
            let cell = Cell {
                scope: Scope::Network,
                pattern,
                payload: Payload::Bytes(1000),
                producers: 1,
                runtime: Runtime::Thread,
                wait: Wait::Block,
                place,
                ..cells[0].clone()
            };
            bound_of(&cell, &limits, None, &handled, link, fastest_ns).unwrap()
        };
        let bound = |pattern, place, link| bound_with(pattern, place, link, None);
        let between = |pattern| bound(pattern, Place::OtherHost, Some(&link));
        let ping_pong = between(Pattern::PingPong);
        assert_eq!((ping_pong.cost(), ping_pong.ns()), (Cost::LinkRoundTrip, 42_000.0));
        assert_eq!(ping_pong.hidden(), [(Cost::FillAndCheck, 600.0)], "no wake or cache line of this host");
        let stream = between(Pattern::Stream);
        assert_eq!((stream.cost(), stream.ns()), (Cost::LinkRate, 1000.0));
        assert_eq!(stream.hidden(), [(Cost::FillOrCheck, 200.0)], "no copy between cores");
        assert_eq!(between(Pattern::Connections).ns(), 1000.0);
        assert_eq!(between(Pattern::Duplex).ns(), 500.0);
        // A mechanism that is much faster shows that the link is not what limited the measured rate.
        let beside = |fastest_ns| bound_with(Pattern::Stream, Place::OtherHost, Some(&link), Some(fastest_ns)).cost();
        assert_eq!([beside(950.0), beside(850.0)], [Cost::LinkRate, Cost::FillOrCheck]);
        // A link that is faster than filling does not bind, and one host has no link.
        let fast = Link { rate_4_bytes_per_s: 1e11, ..link.clone() };
        assert_eq!(bound(Pattern::Stream, Place::OtherHost, Some(&fast)).cost(), Cost::FillOrCheck);
        assert_eq!(bound(Pattern::Stream, Place::OtherHost, None).cost(), Cost::FillOrCheck);
        assert!(
            bound(Pattern::Stream, Place::Free, Some(&link)).hidden().iter().all(|(cost, _)| *cost != Cost::LinkRate)
        );
    }
}
