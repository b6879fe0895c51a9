//! Suites: named presets of cells. The mechanisms of a registry take part in every cell that they
//! can run.

use crate::case::{Arrivals, Cell, Load, Pattern, Payload, PayloadKind, Place};
use crate::spec::{Loss, Runtime, Scope, Spec, Standing, Tier, Wait};

/// A named preset of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// A few cells of every scope.
    Overview,
    /// Channels between tasks and threads, with the parameters of `async-channels-bench`.
    Channels,
    /// Mechanisms between processes of one machine.
    Ipc,
    /// The cost of sending a typed value instead of bytes, with the parameters of
    /// `ipc-channel-throughput`.
    IpcTyped,
    /// Mechanisms through the network stack, with the parameters of `message-io-performance`.
    Net,
    /// Functions in WASM sandboxes, with the parameters of `wasm-pipeline-throughput`.
    Flow,
}

crate::names::names!(
    Suite,
    "suite",
    Overview = "overview",
    Channels = "channels",
    Ipc = "ipc",
    IpcTyped = "ipc-typed",
    Net = "net",
    Flow = "flow"
);

impl Suite {
    /// The cells of the suite in a profile.
    pub fn cells(self, profile: Profile) -> Vec<Cell> {
        match self {
            Suite::Overview => overview(profile),
            Suite::Channels => channels(profile),
            Suite::Ipc => ipc(profile),
            Suite::IpcTyped => ipc_typed(profile),
            Suite::Net => net(profile),
            Suite::Flow => flow(profile),
        }
    }

    /// Whether a mechanism is measured in a cell of the suite when the user does not name it.
    /// `axes` are the values that the user has given.
    pub fn includes(self, profile: Profile, cell: &Cell, spec: &Spec, axes: &Axes) -> bool {
        // Messages with a topic and data are only sent in one suite.
        let typed = |kind: &PayloadKind| *kind == PayloadKind::Message;
        let carries = spec.payloads.iter().any(|kind| typed(kind) == (self == Suite::IpcTyped));
        // Baselines check the harness. They only run when the user names them.
        carries
            && spec.standing != Standing::Baseline
            && match (self, profile) {
                (Suite::Overview, _) => spec.tier == Tier::Overview,
                // Where reliable mechanisms send one byte, as message-io-performance does, a
                // datagram needs 8 bytes for its sequence number.
                (Suite::Net, _) if !fits_loss(cell, spec) && axes.payloads.is_empty() => false,
                (_, Profile::Quick) => spec.tier <= Tier::Suite,
                // A run has time for a third of the mechanisms in every cell. So each is measured
                // in the base cell of its pattern, in each of its wait modes, and only some of them
                // in the other cells.
                (Suite::Ipc, Profile::Standard) => spec.tier <= Tier::StandardAllCells || is_base(cell, axes),
                (Suite::Net, Profile::Standard) => {
                    let central = || net(Profile::Quick).contains(cell) || net_of_several().contains(cell);
                    spec.tier <= Tier::StandardAllCells || !axes.is_empty() || central()
                }
                _ => true,
            }
    }
}

/// How many cells of a suite are measured, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The base cells. Takes about a minute.
    Quick,
    /// The base cells, and cells in which one parameter differs from a base cell.
    Standard,
    /// The grid of the benchmark that the suite reproduces, if there is one.
    Full,
}

crate::names::names!(Profile, "profile", Quick = "quick", Standard = "standard", Full = "full");

/// The user's values for the parameters of a cell. If a list is empty, the suite's own values stay.
#[derive(Clone, Debug, Default)]
pub struct Axes {
    /// Who sends to whom.
    pub patterns: Vec<Pattern>,
    /// The kind and the size of messages.
    pub payloads: Vec<Payload>,
    /// The number of producers, for patterns that can have several.
    pub producers: Vec<usize>,
    /// The number of messages that fit between the ends.
    pub capacities: Vec<usize>,
    /// The runtimes of the ends.
    pub runtimes: Vec<Runtime>,
    /// How the ends wait.
    pub waits: Vec<Wait>,
    /// The cores on which the ends run.
    pub places: Vec<Place>,
    /// How fast producers send, for patterns without replies.
    pub loads: Vec<Load>,
    /// When messages are due, where they are sent at a rate.
    pub arrivals: Vec<Arrivals>,
}

impl Axes {
    /// Whether the user has given no value.
    fn is_empty(&self) -> bool {
        let Axes { patterns, payloads, producers, capacities, runtimes, waits, places, loads, arrivals } = self;
        let given = [patterns.len(), payloads.len(), producers.len(), capacities.len(), runtimes.len(), waits.len()];
        given.iter().all(|len| *len == 0) && places.is_empty() && loads.is_empty() && arrivals.is_empty()
    }
}

/// A cell with the default parameters of its scope and pattern.
pub(crate) fn usual_cell(scope: Scope, pattern: Pattern, payload: Payload) -> Cell {
    let rules = pattern.rules();
    let (producers, capacity) = (rules.default_producers(scope), rules.default_capacity());
    let (runtime, wait, place) = match scope {
        Scope::Task => (Runtime::TokioMulti, Wait::Block, Place::Free),
        // The processes of a pipeline wait in their own way.
        _ if pattern.is_pipeline() => (Runtime::Thread, Wait::Adaptive, rules.default_place()),
        Scope::Thread if !pattern.is_one_thread() && !pattern.is_one_sender() => {
            (Runtime::Thread, Wait::Spin, rules.default_place())
        }
        _ => (Runtime::Thread, Wait::Block, rules.default_place()),
    };
    Cell { scope, pattern, payload, producers, capacity, runtime, wait, place, load: Load::Saturated }
}

/// The cells that the overview shows of every scope: a round trip, one way, and several senders in
/// one process.
fn base() -> Vec<Cell> {
    use Pattern::{FanIn, PingPong, Stream};
    use Payload::{Bytes, U64};
    let thread = |pattern, wait| Cell { wait, ..usual_cell(Scope::Thread, pattern, U64) };
    let mut cells = vec![
        usual_cell(Scope::Task, PingPong, U64),
        usual_cell(Scope::Task, FanIn, U64),
        thread(PingPong, Wait::Adaptive),
        thread(FanIn, Wait::Adaptive),
        thread(Stream, Wait::Spin),
        Cell { wait: Wait::Spin, ..usual_cell(Scope::Process, PingPong, Bytes(64)) },
    ];
    for scope in [Scope::Process, Scope::Network, Scope::Sandbox] {
        cells.extend([usual_cell(scope, PingPong, Bytes(64)), usual_cell(scope, Stream, Bytes(4096))]);
    }
    cells
}

/// The cells of the overview in a profile.
pub fn overview(profile: Profile) -> Vec<Cell> {
    let mut base = base();
    if profile == Profile::Quick {
        return base;
    }
    base.push(usual_cell(Scope::Process, Pattern::FanIn, Payload::Bytes(4096)));
    base.push(Cell { wait: Wait::Block, ..usual_cell(Scope::Thread, Pattern::Stream, Payload::U64) });
    let mut cells = base.clone();
    for cell in &base {
        // One parameter at a time. A mechanism does not take part in cells that it cannot run.
        let sizes = [8, 64, 1024, 4096, 65_536].map(Payload::Bytes);
        cells.extend(sizes.map(|payload| Cell { payload, ..cell.clone() }));
        if cell.pattern == Pattern::FanIn {
            let counts: &[usize] = if cell.scope == Scope::Task { &[2, 8, 64] } else { &[2, 4] };
            cells.extend(counts.iter().map(|&producers| Cell { producers, ..cell.clone() }));
        }
        if cell.runtime == Runtime::TokioMulti {
            cells.push(Cell { runtime: Runtime::TokioCurrent, ..cell.clone() });
        }
        if cell.wait == Wait::Block && cell.runtime == Runtime::Thread {
            cells.push(Cell { place: Place::SameCore, ..cell.clone() });
        }
    }
    distinct(cells)
}

/// The total capacity in the grid of `async-channels-bench`.
const REFERENCE_CAPACITY: usize = 65_536;
/// The length of messages in `async-channels-bench`, in bytes. They share one buffer.
const REFERENCE_LEN: usize = 1200;
/// The numbers of tasks in `async-channels-bench`.
const REFERENCE_TASKS: [usize; 9] = [1, 2, 4, 8, 16, 64, 128, 256, 512];

/// The cells of the suite `channels` in a profile. `Full` is the grid of `async-channels-bench`.
pub fn channels(profile: Profile) -> Vec<Cell> {
    use Pattern::{Burst, Cancel, FanIn, Merge, Mpmc, PingPong, Stream};
    let task = |pattern| usual_cell(Scope::Task, pattern, Payload::U64);
    let thread = |pattern, wait| Cell { wait, ..usual_cell(Scope::Thread, pattern, Payload::U64) };
    let quick = vec![task(FanIn), task(Merge), thread(FanIn, Wait::Adaptive), thread(Stream, Wait::Spin)];
    match profile {
        Profile::Quick => quick,
        Profile::Standard => {
            let mut cells = quick;
            cells.extend([task(Mpmc), thread(Mpmc, Wait::Adaptive)]);
            let base = task(FanIn);
            cells.push(Cell { producers: 512, ..base.clone() });
            cells.extend([0, 1].map(|capacity| Cell { capacity, ..base.clone() }));
            let shared = Payload::Shared(REFERENCE_LEN);
            let payloads = [Payload::Inline, Payload::Bytes(REFERENCE_LEN), shared, Payload::Unread(REFERENCE_LEN)];
            cells.extend(payloads.map(|payload| Cell { payload, ..base.clone() }));
            cells.extend(
                [Runtime::TokioCurrent, Runtime::TokioMultiUnconstrained]
                    .map(|runtime| Cell { runtime, ..base.clone() }),
            );
            cells.extend([task(Cancel), task(Stream), task(PingPong)]);
            cells.extend([10_000, 100_000].map(|rate| Cell { load: Load::Rate(rate), ..task(Stream) }));
            cells.push(task(Burst));
            cells.extend([Stream, PingPong, Burst].map(|pattern| thread(pattern, Wait::Adaptive)));
            // Ends that sleep at once are in a cell of their own, apart from ends that spin first.
            cells.push(thread(FanIn, Wait::Block));
            distinct(cells)
        }
        Profile::Full => {
            let reference = |pattern| {
                REFERENCE_TASKS.map(|producers| Cell {
                    producers,
                    capacity: REFERENCE_CAPACITY,
                    payload: Payload::Shared(REFERENCE_LEN),
                    ..task(pattern)
                })
            };
            [reference(FanIn), reference(Merge)].concat()
        }
    }
}

/// The additional lengths of messages between processes, in bytes: those of the benchmarks that the
/// suite reproduces, each in the pattern that they measure, and 1 MiB.
const ROUND_TRIPS: [usize; 3] = [100, 1000, 4096];
const STREAMS: [usize; 5] = [1024, 10_240, 51_200, 102_400, 1 << 20];

/// The cells of the suite `ipc` in a profile. `Full` has every length in both patterns.
pub fn ipc(profile: Profile) -> Vec<Cell> {
    use Pattern::{Duplex, FanIn, PingPong, PubSub, RequestReply, Stream};
    let process = |pattern, size| usual_cell(Scope::Process, pattern, Payload::Bytes(size));
    let mut quick = vec![process(PingPong, 64), process(Stream, 4096)];
    quick.extend([PingPong, Stream].map(|pattern| Cell { wait: Wait::Spin, ..base_of(pattern) }));
    match profile {
        Profile::Quick => quick,
        Profile::Standard => {
            let mut cells = quick;
            cells.extend([FanIn, Duplex].map(|pattern| process(pattern, 4096)));
            cells.push(Cell { producers: 4, ..process(RequestReply, 64) });
            cells.push(Cell { producers: 4, ..process(PubSub, 4096) });
            for payload in [Payload::U64, Payload::None] {
                cells.extend([PingPong, Stream].map(|pattern| Cell { payload, ..base_of(pattern) }));
            }
            cells.extend(ROUND_TRIPS.map(|size| process(PingPong, size)));
            cells.extend(STREAMS.map(|size| process(Stream, size)));
            cells.push(Cell { place: Place::SameCore, ..base_of(PingPong) });
            cells
        }
        Profile::Full => {
            let sizes = [&[1, 8, 64][..], &ROUND_TRIPS, &STREAMS].concat();
            let grid = |pattern| sizes.iter().map(move |&size| process(pattern, size));
            [PingPong, Stream].into_iter().flat_map(grid).collect()
        }
    }
}

/// The base cell of a pattern between processes. Other cells of the pattern differ from it in one
/// parameter.
fn base_of(pattern: Pattern) -> Cell {
    let size = if pattern.is_round_trip() { 64 } else { 4096 };
    usual_cell(Scope::Process, pattern, Payload::Bytes(size))
}

/// Whether a cell is the base cell of its pattern, or the corresponding cell of a mechanism that
/// carries no bytes.
///
/// Fan-in and duplex have no base cell, because their results follow from those of streams.
/// Parameters for which the user has given values are not compared.
fn is_base(cell: &Cell, axes: &Axes) -> bool {
    let Cell { payload, place, .. } = base_of(cell.pattern);
    if matches!(cell.pattern, Pattern::FanIn | Pattern::Duplex) && axes.patterns.is_empty() {
        return false;
    }
    let is_base_place = !axes.places.is_empty() || cell.place == place;
    is_base_place
        && (!axes.payloads.is_empty() || cell.payload == payload || !matches!(cell.payload, Payload::Bytes(_)))
}

/// The lengths of messages in the tables of `ipc-channel-throughput`, in bytes.
const TYPED_SIZES: [usize; 4] = [1024, 10_240, 51_200, 102_400];

/// The cells of the suite `ipc-typed` in a profile. `Full` is the grid of `ipc-channel-throughput`.
pub fn ipc_typed(profile: Profile) -> Vec<Cell> {
    let messages = |pattern, sizes: &[usize]| -> Vec<Cell> {
        let scope = if pattern == Pattern::Codec { Scope::Thread } else { Scope::Process };
        sizes.iter().map(|&size| usual_cell(scope, pattern, Payload::Message(size))).collect()
    };
    let [short, .., long] = TYPED_SIZES;
    match profile {
        Profile::Quick => [messages(Pattern::Stream, &[short, long]), messages(Pattern::Codec, &[long])].concat(),
        Profile::Standard => {
            [Pattern::Stream, Pattern::Codec, Pattern::PingPong].map(|pattern| messages(pattern, &TYPED_SIZES)).concat()
        }
        Profile::Full => [Pattern::Stream, Pattern::Codec].map(|pattern| messages(pattern, &TYPED_SIZES)).concat(),
    }
}

/// The maximum length of a UDP datagram in bytes, which `message-io-performance` sends.
const MAX_DATAGRAM_LEN: usize = 65_507;
/// The minimum length of a message with a sequence number, in bytes.
const MIN_NUMBERED_LEN: usize = 8;

/// Whether the length of a cell's messages suits this mechanism. Of the two short lengths in the
/// suite, lossy mechanisms use 8 bytes and others 1 byte.
fn fits_loss(cell: &Cell, spec: &Spec) -> bool {
    cell.payload.len() > MIN_NUMBERED_LEN || (cell.payload.len() == MIN_NUMBERED_LEN) == (spec.loss == Loss::BestEffort)
}

fn network(pattern: Pattern, size: usize) -> Cell {
    usual_cell(Scope::Network, pattern, Payload::Bytes(size))
}

/// The base cells of the network in which several send.
fn net_of_several() -> [Cell; 3] {
    [Pattern::Writers, Pattern::Connections, Pattern::FanIn].map(|pattern| network(pattern, 64))
}

/// The cells of the suite `net` in a profile. `Full` is the grid of `message-io-performance`.
pub fn net(profile: Profile) -> Vec<Cell> {
    use Pattern::{Connections, Duplex, PingPong, SameThread, Stream, Writers};
    let reference = [SameThread, PingPong].map(|pattern| [1, MIN_NUMBERED_LEN].map(|size| network(pattern, size)));
    let mut cells = [&[network(Stream, MAX_DATAGRAM_LEN)][..], &reference.concat()].concat();
    if profile == Profile::Standard {
        // Show whether the overhead of a library depends on the size.
        cells.extend([64, 1024, 1 << 20].map(|size| network(Stream, size)));
        cells.extend([1024, MAX_DATAGRAM_LEN].map(|size| network(PingPong, size)));
        cells.extend([64, MAX_DATAGRAM_LEN].map(|size| Cell { wait: Wait::Adaptive, ..network(PingPong, size) }));
        cells.extend([64, MAX_DATAGRAM_LEN].map(|size| network(Duplex, size)));
        cells.push(Cell { load: Load::Rate(10_000), ..network(Stream, 64) });
        // Show how many threads can share a connection, and how many connections a thread can
        // serve.
        cells.extend(net_of_several());
        cells.push(network(Writers, 1024));
        cells.extend([1, 10, 1000].map(|producers| Cell { producers, ..network(Connections, 64) }));
    }
    cells
}

/// The lengths of messages in `wasm-pipeline-throughput`, in bytes.
const FLOW_SIZES: [usize; 3] = [1_000, 10_000, 100_000];

/// The cells of the suite `flow` in a profile: the three pipelines of `wasm-pipeline-throughput`,
/// verified streams of the same lengths, and a round trip. In `Quick` only the first pipeline has
/// all lengths.
pub fn flow(profile: Profile) -> Vec<Cell> {
    use Pattern::{SendChecksum, SendCompete, SendReceive};
    let sandbox = |pattern, size| usual_cell(Scope::Sandbox, pattern, Payload::Bytes(size));
    let [short, middle, _] = FLOW_SIZES;
    let round_trip = sandbox(Pattern::PingPong, 64);
    let mut cells = FLOW_SIZES.map(|size| sandbox(SendReceive, size)).to_vec();
    if profile == Profile::Quick {
        cells.extend([SendChecksum, SendCompete].map(|pattern| sandbox(pattern, middle)));
        cells.extend([round_trip, sandbox(Pattern::Stream, short)]);
        return cells;
    }
    for pattern in [SendChecksum, SendCompete, Pattern::Stream] {
        cells.extend(FLOW_SIZES.map(|size| sandbox(pattern, size)));
    }
    cells.push(round_trip.clone());
    if profile == Profile::Standard {
        cells.extend([Wait::Adaptive, Wait::Spin].map(|wait| Cell { wait, ..round_trip.clone() }));
        cells.extend(FLOW_SIZES.map(|size| sandbox(Pattern::PingPong, size)));
        cells.push(sandbox(Pattern::Stream, 64));
    }
    cells
}

/// Replaces the suite's values by the user's. Returns all combinations, without duplicates.
pub fn replace(cells: Vec<Cell>, axes: &Axes) -> Vec<Cell> {
    let mut cells = cells;
    if !axes.patterns.is_empty() {
        cells = cells.iter().flat_map(|cell| axes.patterns.iter().filter_map(|pattern| with(cell, *pattern))).collect();
    }
    let is_configurable = |cell: &Cell| !cell.pattern.is_pipeline();
    expand(&mut cells, &axes.payloads, |cell, &payload| Cell { payload, ..cell.clone() });
    expand(&mut cells, &axes.capacities, |cell, &capacity| match is_configurable(cell) {
        true => Cell { capacity, ..cell.clone() },
        false => cell.clone(),
    });
    expand(&mut cells, &axes.waits, |cell, &wait| match is_configurable(cell) {
        true => Cell { wait, ..cell.clone() },
        false => cell.clone(),
    });
    expand(&mut cells, &axes.runtimes, |cell, &runtime| Cell { runtime, ..cell.clone() });
    expand(&mut cells, &axes.places, |cell, &place| Cell { place, ..cell.clone() });
    expand(&mut cells, &axes.loads, |cell, &load| match cell.pattern {
        pattern if pattern.is_round_trip() => cell.clone(),
        _ => Cell { load, ..cell.clone() },
    });
    expand(&mut cells, &axes.arrivals, |cell, &arrivals| Cell { load: cell.load.with(arrivals), ..cell.clone() });
    expand(&mut cells, &axes.producers, |cell, &producers| match cell.pattern.has_several_parties() {
        true => Cell { producers, ..cell.clone() },
        false => cell.clone(),
    });
    distinct(cells)
}

/// A cell with another pattern. `None` if one of the two patterns is a pipeline and the other is
/// not.
fn with(cell: &Cell, pattern: Pattern) -> Option<Cell> {
    if pattern == cell.pattern {
        return Some(cell.clone());
    }
    if pattern.is_pipeline() != cell.pattern.is_pipeline() {
        return None;
    }
    // Number of producers, capacity and load depend on the pattern, so they are the defaults of the
    // new one.
    let Cell { runtime, wait, place, .. } = *cell;
    let [before, usual] = [cell.pattern, pattern].map(|pattern| self::usual_cell(cell.scope, pattern, cell.payload));
    // Keep a placement that differs from the default, except between one thread and several.
    let keeps_place = place != before.place && pattern.is_one_thread() == cell.pattern.is_one_thread();
    let place = if keeps_place { place } else { usual.place };
    Some(Cell { runtime, wait, place, ..usual })
}

fn expand<T>(cells: &mut Vec<Cell>, values: &[T], with: impl Fn(&Cell, &T) -> Cell) {
    if !values.is_empty() {
        *cells =
            cells.iter().flat_map(|cell| values.iter().map(|value| with(cell, value)).collect::<Vec<_>>()).collect();
    }
}

fn distinct(cells: Vec<Cell>) -> Vec<Cell> {
    let mut seen = std::collections::BTreeSet::new();
    cells.into_iter().filter(|cell| seen.insert(cell.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_overview_has_all_quick_cells_and_no_duplicates() {
        let (quick, standard) = (overview(Profile::Quick), overview(Profile::Standard));
        assert!(quick.iter().all(|cell| standard.contains(cell)));
        assert_eq!(distinct(standard.clone()), standard);
    }

    #[test]
    fn full_channels_is_the_grid_of_the_reproduced_benchmark() {
        let cells = channels(Profile::Full);
        assert_eq!(cells.len(), 2 * 9);
        assert!(cells.iter().all(|cell| cell.payload.to_string() == "shared-1200B" && cell.capacity == 65_536));
    }

    #[test]
    fn typed_messages_have_the_sizes_of_the_reproduced_benchmark() {
        for profile in [Profile::Standard, Profile::Full] {
            for pattern in [Pattern::Stream, Pattern::Codec] {
                let cells = ipc_typed(profile).into_iter().filter(|cell| cell.pattern == pattern);
                assert!(cells.map(|cell| cell.payload).eq(TYPED_SIZES.map(Payload::Message)));
            }
        }
    }

    #[test]
    fn typed_mechanisms_are_only_in_their_own_suite() {
        let typed = Spec::new("process/typed").payloads(&[PayloadKind::Message]);
        let both = Spec::new("process/both").payloads(&[PayloadKind::Bytes, PayloadKind::Message]);
        let cell = usual_cell(Scope::Process, Pattern::Stream, Payload::Message(1024));
        let takes = |spec| Suite::ALL.map(|suite| suite.includes(Profile::Quick, &cell, spec, &Axes::default()));
        assert_eq!(takes(&typed), [false, false, false, true, false, false]);
        assert_eq!(takes(&both), [true; 6]);
        assert_eq!(takes(&Spec::new("process/pipe")), [true, true, true, false, true, true]);
    }

    #[test]
    fn lossy_mechanisms_send_short_messages_with_a_sequence_number() {
        let cells = net(Profile::Quick);
        let lengths = |spec: &Spec| -> Vec<usize> {
            let round_trips = cells.iter().filter(|cell| cell.pattern.is_round_trip());
            round_trips
                .filter(|cell| Suite::Net.includes(Profile::Quick, cell, spec, &Axes::default()))
                .map(|cell| cell.payload.len())
                .collect()
        };
        assert_eq!(lengths(&Spec::new("network/a")), [1, 1]);
        assert_eq!(lengths(&Spec::new("network/b").loss(Loss::BestEffort)), [8, 8]);
    }

    #[test]
    fn mechanisms_of_base_cells_also_take_part_in_cells_that_the_user_gives() {
        let spec = Spec::new("process/other").tier(Tier::Standard);
        let cell = |size| usual_cell(Scope::Process, Pattern::PingPong, Payload::Bytes(size));
        let takes = |size, axes: &Axes| Suite::Ipc.includes(Profile::Standard, &cell(size), &spec, axes);
        assert!(takes(64, &Axes::default()) && !takes(1024, &Axes::default()));
        let fan_in = Cell { pattern: Pattern::FanIn, ..cell(4096) };
        let takes_fan_in = |axes: &Axes| Suite::Ipc.includes(Profile::Standard, &fan_in, &spec, axes);
        assert!(takes_fan_in(&Axes { patterns: vec![Pattern::FanIn], ..Axes::default() }));
        assert!(!takes_fan_in(&Axes::default()));
        assert!(takes(1024, &Axes { payloads: vec![Payload::Bytes(1024)], ..Axes::default() }));
    }

    #[test]
    fn full_flow_has_the_pipelines_of_the_reproduced_benchmark() {
        let cells = flow(Profile::Full);
        for pattern in [Pattern::SendReceive, Pattern::SendChecksum, Pattern::SendCompete] {
            let like = cells.iter().filter(|cell| cell.pattern == pattern);
            assert!(like.map(|cell| cell.payload).eq(FLOW_SIZES.map(Payload::Bytes)), "{pattern}");
        }
        let quick = flow(Profile::Quick);
        assert!(quick.iter().all(|cell| cells.contains(cell)));
        assert_eq!(distinct(cells.clone()), cells);
    }

    #[test]
    fn patterns_are_not_replaced_by_pipelines_nor_pipelines_by_patterns() {
        let of = |patterns: &[Pattern]| {
            let axes = Axes { patterns: patterns.to_vec(), waits: vec![Wait::Spin], ..Axes::default() };
            replace(flow(Profile::Quick), &axes)
        };
        let pipelines = of(&[Pattern::SendReceive]);
        assert!(pipelines.iter().all(|cell| cell.pattern.is_pipeline() && cell.wait == Wait::Adaptive));
        assert_eq!(pipelines.len(), FLOW_SIZES.len());
        let streams = of(&[Pattern::Stream]);
        assert!(streams.iter().all(|cell| cell.pattern == Pattern::Stream && cell.wait == Wait::Spin));
        assert_eq!(of(&[Pattern::SendReceive, Pattern::Stream]).len(), pipelines.len() + streams.len());
    }

    #[test]
    fn the_users_values_replace_the_suites_values() {
        let arrivals = vec![Arrivals::Constant, Arrivals::Poisson];
        let axes = Axes { loads: vec![Load::Saturated, Load::Rate(1_000)], arrivals, ..Axes::default() };
        let loads: Vec<_> = replace(vec![usual_cell(Scope::Task, Pattern::Stream, Payload::U64)], &axes)
            .into_iter()
            .map(|cell| cell.load)
            .collect();
        assert_eq!(loads, [Load::Saturated, Load::Rate(1_000), Load::Poisson(1_000)]);
        let axes = Axes { payloads: vec![Payload::Bytes(100)], producers: vec![2, 3], ..Axes::default() };
        let cells = replace(overview(Profile::Quick), &axes);
        assert!(cells.iter().all(|cell| cell.payload == Payload::Bytes(100)));
        assert!(cells.iter().any(|cell| cell.producers == 3));
        assert!(cells.iter().all(|cell| cell.pattern == Pattern::FanIn || cell.producers == 1));
    }
}
