//! Suites: named presets of cells. A registry's mechanisms join every cell that they can play.

use crate::case::{BURST, Cell, Load, Pattern, Payload, PayloadKind, Place};
use crate::spec::{Loss, Runtime, Scope, Spec, Standing, Tier, Wait};

/// A named preset of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// A little of every distance.
    Overview,
    /// Channels between tasks and threads, in the axes of `async-channels-bench`.
    Channels,
    /// Ways between two processes of one machine.
    Ipc,
    /// What it costs to send a value rather than bytes, in the axes of `ipc-channel-throughput`.
    IpcTyped,
    /// Through the network stack, in the axes of `message-io-performance`.
    Net,
    /// Through functions in WASM sandboxes, in the axes of `wasm-pipeline-throughput`.
    Flow,
}

crate::spec::names!(
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
    /// All of them.
    pub const ALL: [Suite; 6] =
        [Suite::Overview, Suite::Channels, Suite::Ipc, Suite::IpcTyped, Suite::Net, Suite::Flow];

    /// Its cells at a profile.
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

    /// Whether a mechanism stands in one of its cells unasked, where `axes` are the user's.
    pub fn takes(self, profile: Profile, cell: &Cell, spec: &Spec, axes: &Axes) -> bool {
        // Messages of a topic and data are what one suite is about; elsewhere nobody sends any.
        let typed = |kind: &PayloadKind| *kind == PayloadKind::Message;
        let carries = spec.payloads.iter().any(|kind| typed(kind) == (self == Suite::IpcTyped));
        // Baselines check the instrument: they run when they are asked for by name.
        carries
            && spec.standing != Standing::Baseline
            && match (self, profile) {
                (Suite::Overview, _) => spec.tier == Tier::Overview,
                // Where the others send a byte, as the reference does, a datagram has to say which one it is.
                (Suite::Net, _) if !says_which(cell, spec) && axes.payloads.is_empty() => false,
                (_, Profile::Quick) => spec.tier <= Tier::Suite,
                // There are three times as many ways as a run has time for in every cell: each plays what it is there for
                // once, in each of its ways to wait, and some of them what lies around.
                (Suite::Ipc, Profile::Standard) => spec.tier <= Tier::StandardAllCells || is_base(cell, axes),
                (Suite::Net, Profile::Standard) => {
                    let central = || net(Profile::Quick).contains(cell) || net_of_several().contains(cell);
                    spec.tier <= Tier::StandardAllCells || !axes.is_empty() || central()
                }
                _ => true,
            }
    }
}

/// How much of a suite is measured, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// A look: a minute.
    Quick,
    /// Around each base cell one axis is varied at a time.
    Standard,
    /// As standard, by count and with more rounds.
    Full,
}

crate::spec::names!(Profile, "profile", Quick = "quick", Standard = "standard", Full = "full");

/// Values that replace a suite's own along each axis; none where an axis is empty.
#[derive(Clone, Debug, Default)]
pub struct Axes {
    /// Who sends to whom.
    pub patterns: Vec<Pattern>,
    /// What is sent.
    pub payloads: Vec<Payload>,
    /// How many send, where several can.
    pub producers: Vec<usize>,
    /// How many messages may be under way.
    pub capacities: Vec<usize>,
    /// Where the ends run.
    pub runtimes: Vec<Runtime>,
    /// How the ends wait.
    pub waits: Vec<Wait>,
    /// On which cores.
    pub places: Vec<Place>,
    /// How fast producers send, where it is not one at a time.
    pub loads: Vec<Load>,
}

impl Axes {
    /// Whether the user gave none.
    fn is_empty(&self) -> bool {
        let Axes { patterns, payloads, producers, capacities, runtimes, waits, places, loads } = self;
        let given = [patterns.len(), payloads.len(), producers.len(), capacities.len(), runtimes.len(), waits.len()];
        given.iter().all(|len| *len == 0) && places.is_empty() && loads.is_empty()
    }
}

fn cell(scope: Scope, pattern: Pattern, payload: Payload) -> Cell {
    let (runtime, wait, place) = match scope {
        Scope::Task => (Runtime::TokioMulti, Wait::Block, Place::Free),
        // There is one thread only.
        _ if pattern.in_one_thread() => (Runtime::Thread, Wait::Block, Place::SameCore),
        // Its processes wait in their own way, wherever the scheduler puts them.
        _ if pattern.is_pipeline() => (Runtime::Thread, Wait::Adaptive, Place::Free),
        // On one core they would take turns, and not meet.
        _ if pattern == Pattern::Writers => (Runtime::Thread, Wait::Block, Place::Free),
        Scope::Thread => (Runtime::Thread, Wait::Spin, Place::OtherCore),
        _ => (Runtime::Thread, Wait::Block, Place::OtherCore),
    };
    let producers = match (pattern, scope) {
        (Pattern::FanIn | Pattern::Merge, Scope::Task) => 8,
        (Pattern::FanIn | Pattern::Merge, _) => 2,
        (Pattern::Mpmc | Pattern::Writers, _) => 4,
        (Pattern::Connections, _) => 100,
        (Pattern::RequestReply | Pattern::PubSub, _) => 2,
        _ => 1,
    };
    let capacity = match pattern {
        // With room for one message both sides wait all the time.
        Pattern::Cancel => 1,
        // There has to be room for all of it.
        Pattern::Burst => (BURST as usize).next_power_of_two(),
        _ => Cell::CAPACITY,
    };
    Cell { scope, pattern, payload, producers, capacity, runtime, wait, place, load: Load::Saturated }
}

/// The cells that the overview shows of every distance: a round trip, one way, and several senders in one process.
fn base() -> Vec<Cell> {
    use Pattern::{FanIn, PingPong, Stream};
    use Payload::{Bytes, U64};
    let thread = |pattern, wait| Cell { wait, ..cell(Scope::Thread, pattern, U64) };
    let mut cells = vec![
        cell(Scope::Task, PingPong, U64),
        cell(Scope::Task, FanIn, U64),
        thread(PingPong, Wait::Adaptive),
        thread(FanIn, Wait::Adaptive),
        thread(Stream, Wait::Spin),
        Cell { wait: Wait::Spin, ..cell(Scope::Process, PingPong, Bytes(64)) },
    ];
    for scope in [Scope::Process, Scope::Network, Scope::Sandbox] {
        cells.extend([cell(scope, PingPong, Bytes(64)), cell(scope, Stream, Bytes(4096))]);
    }
    cells
}

/// The overview's cells at a profile.
pub fn overview(profile: Profile) -> Vec<Cell> {
    let base = base();
    if profile == Profile::Quick {
        return base;
    }
    let mut base = base;
    base.push(cell(Scope::Process, Pattern::FanIn, Payload::Bytes(4096)));
    base.push(Cell { wait: Wait::Block, ..cell(Scope::Thread, Pattern::Stream, Payload::U64) });
    let mut cells = base.clone();
    for cell in &base {
        // One axis at a time; what a mechanism cannot play it leaves out.
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

/// How many messages may be under way in the reference's grid, in all.
const REFERENCE_CAPACITY: usize = 65_536;
/// The length of the reference's messages, which share one buffer.
const REFERENCE_LEN: usize = 1200;
/// The reference's numbers of tasks.
const REFERENCE_TASKS: [usize; 9] = [1, 2, 4, 8, 16, 64, 128, 256, 512];

/// The cells of the channels race at a profile. `Full` is the grid of the benchmark it answers.
pub fn channels(profile: Profile) -> Vec<Cell> {
    use Pattern::{Burst, Cancel, FanIn, Merge, Mpmc, PingPong, Stream};
    let task = |pattern| cell(Scope::Task, pattern, Payload::U64);
    let thread = |pattern, wait| Cell { wait, ..cell(Scope::Thread, pattern, Payload::U64) };
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
            // What sleeps without a look around, and is not held against what spins first.
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

/// The lengths of messages that are measured between processes besides the base's: those of the benchmarks that the race
/// answers, in the pattern that they measure, and 1 MiB.
const ROUND_TRIPS: [usize; 3] = [100, 1000, 4096];
const STREAMS: [usize; 5] = [1024, 10_240, 51_200, 102_400, 1 << 20];

/// The cells of the race between processes at a profile. `Full` has every length in both patterns.
pub fn ipc(profile: Profile) -> Vec<Cell> {
    use Pattern::{Duplex, FanIn, PingPong, PubSub, RequestReply, Stream};
    let process = |pattern, size| cell(Scope::Process, pattern, Payload::Bytes(size));
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

/// The cell between processes around which a pattern's others lie.
fn base_of(pattern: Pattern) -> Cell {
    let size = if pattern.asks() { 64 } else { 4096 };
    cell(Scope::Process, pattern, Payload::Bytes(size))
}

/// Whether a cell is its pattern's base, or that of what carries no bytes; streams that meet or come together follow from
/// those that do not. Along an axis that the user gave every cell is.
fn is_base(cell: &Cell, axes: &Axes) -> bool {
    let Cell { payload, place, .. } = base_of(cell.pattern);
    if matches!(cell.pattern, Pattern::FanIn | Pattern::Duplex) && axes.patterns.is_empty() {
        return false;
    }
    let forward = !axes.places.is_empty() || cell.place == place;
    forward && (!axes.payloads.is_empty() || cell.payload == payload || !matches!(cell.payload, Payload::Bytes(_)))
}

/// The lengths of messages in the reference's tables.
const TYPED_SIZES: [usize; 4] = [1024, 10_240, 51_200, 102_400];

/// The cells of the suite of typed messages at a profile. `Full` is the grid of the benchmark it answers.
pub fn ipc_typed(profile: Profile) -> Vec<Cell> {
    let messages = |pattern, sizes: &[usize]| -> Vec<Cell> {
        let scope = if pattern == Pattern::Codec { Scope::Thread } else { Scope::Process };
        sizes.iter().map(|&size| cell(scope, pattern, Payload::Message(size))).collect()
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

/// The longest message that a datagram takes, which the reference sends; and the shortest that says which it is.
const CHUNK: usize = 65_507;
const DATAGRAM: usize = 8;

/// Whether a message of the suite is one that this mechanism sends, of the two that ask.
fn says_which(cell: &Cell, spec: &Spec) -> bool {
    cell.payload.len() > DATAGRAM || (cell.payload.len() == DATAGRAM) == (spec.loss == Loss::BestEffort)
}

fn network(pattern: Pattern, size: usize) -> Cell {
    cell(Scope::Network, pattern, Payload::Bytes(size))
}

/// The cells of the network in which several send, around which others of theirs lie.
fn net_of_several() -> [Cell; 3] {
    [Pattern::Writers, Pattern::Connections, Pattern::FanIn].map(|pattern| network(pattern, 64))
}

/// The cells of the race through the network stack at a profile. `Full` is the grid of the benchmark it answers.
pub fn net(profile: Profile) -> Vec<Cell> {
    use Pattern::{Connections, Duplex, PingPong, SameThread, Stream, Writers};
    let reference = [SameThread, PingPong].map(|pattern| [1, DATAGRAM].map(|size| network(pattern, size)));
    let mut cells = [&[network(Stream, CHUNK)][..], &reference.concat()].concat();
    if profile == Profile::Standard {
        // Is what a library adds the same at any size?
        cells.extend([64, 1024, 1 << 20].map(|size| network(Stream, size)));
        cells.extend([1024, CHUNK].map(|size| network(PingPong, size)));
        cells.extend([64, CHUNK].map(|size| Cell { wait: Wait::Adaptive, ..network(PingPong, size) }));
        cells.extend([64, CHUNK].map(|size| network(Duplex, size)));
        cells.push(Cell { load: Load::Rate(10_000), ..network(Stream, 64) });
        // How many may write to one connection, and how many connections may one thread look after?
        cells.extend(net_of_several());
        cells.push(network(Writers, 1024));
        cells.extend([1, 10, 1000].map(|producers| Cell { producers, ..network(Connections, 64) }));
    }
    cells
}

/// The lengths of the reference's messages.
const FLOW_SIZES: [usize; 3] = [1_000, 10_000, 100_000];

/// The cells of the race through functions at a profile: the reference's three pipelines, verified
/// streams of its lengths, and a round trip. `Quick` has all lengths of the first pipeline only.
pub fn flow(profile: Profile) -> Vec<Cell> {
    use Pattern::{SendChecksum, SendCompete, SendReceive};
    let sandbox = |pattern, size| cell(Scope::Sandbox, pattern, Payload::Bytes(size));
    let [short, middle, _] = FLOW_SIZES;
    let asking = sandbox(Pattern::PingPong, 64);
    let mut cells = FLOW_SIZES.map(|size| sandbox(SendReceive, size)).to_vec();
    if profile == Profile::Quick {
        cells.extend([SendChecksum, SendCompete].map(|pattern| sandbox(pattern, middle)));
        cells.extend([asking, sandbox(Pattern::Stream, short)]);
        return cells;
    }
    for pattern in [SendChecksum, SendCompete, Pattern::Stream] {
        cells.extend(FLOW_SIZES.map(|size| sandbox(pattern, size)));
    }
    cells.push(asking.clone());
    if profile == Profile::Standard {
        cells.extend([Wait::Adaptive, Wait::Spin].map(|wait| Cell { wait, ..asking.clone() }));
        cells.extend(FLOW_SIZES.map(|size| sandbox(Pattern::PingPong, size)));
        cells.push(sandbox(Pattern::Stream, 64));
    }
    cells
}

/// Puts the user's values in the place of the suite's.
pub fn replace(cells: Vec<Cell>, axes: &Axes) -> Vec<Cell> {
    let mut cells = cells;
    if !axes.patterns.is_empty() {
        cells = cells.iter().flat_map(|cell| axes.patterns.iter().filter_map(|pattern| with(cell, *pattern))).collect();
    }
    let waits_as_told = |cell: &Cell| !cell.pattern.is_pipeline();
    expand(&mut cells, &axes.payloads, |cell, &payload| Cell { payload, ..cell.clone() });
    expand(&mut cells, &axes.capacities, |cell, &capacity| match waits_as_told(cell) {
        true => Cell { capacity, ..cell.clone() },
        false => cell.clone(),
    });
    expand(&mut cells, &axes.waits, |cell, &wait| match waits_as_told(cell) {
        true => Cell { wait, ..cell.clone() },
        false => cell.clone(),
    });
    expand(&mut cells, &axes.runtimes, |cell, &runtime| Cell { runtime, ..cell.clone() });
    expand(&mut cells, &axes.places, |cell, &place| Cell { place, ..cell.clone() });
    expand(&mut cells, &axes.loads, |cell, &load| match cell.pattern {
        pattern if pattern.asks() => cell.clone(),
        _ => Cell { load, ..cell.clone() },
    });
    expand(&mut cells, &axes.producers, |cell, &producers| match cell.pattern.gathers() {
        true => Cell { producers, ..cell.clone() },
        false => cell.clone(),
    });
    distinct(cells)
}

/// A cell with another pattern. A pipeline is no variation of another pattern, nor the other way round.
fn with(cell: &Cell, pattern: Pattern) -> Option<Cell> {
    if pattern == cell.pattern {
        return Some(cell.clone());
    }
    if pattern.is_pipeline() != cell.pattern.is_pipeline() {
        return None;
    }
    // What goes with another pattern does not go with this one.
    let Cell { runtime, wait, place, .. } = *cell;
    let [before, usual] = [cell.pattern, pattern].map(|pattern| self::cell(cell.scope, pattern, cell.payload));
    // One thread is on one core, and others are not.
    let stays = place != before.place && pattern.in_one_thread() == cell.pattern.in_one_thread();
    let place = if stays { place } else { usual.place };
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
    fn the_star_holds_the_base_and_no_cell_twice() {
        let (quick, standard) = (overview(Profile::Quick), overview(Profile::Standard));
        assert!(quick.iter().all(|cell| standard.contains(cell)));
        assert_eq!(distinct(standard.clone()), standard);
    }

    #[test]
    fn the_full_race_is_the_references_grid() {
        let cells = channels(Profile::Full);
        assert_eq!(cells.len(), 2 * 9);
        assert!(cells.iter().all(|cell| cell.payload.to_string() == "shared-1200B" && cell.capacity == 65_536));
    }

    #[test]
    fn typed_messages_have_the_references_sizes() {
        for profile in [Profile::Standard, Profile::Full] {
            for pattern in [Pattern::Stream, Pattern::Codec] {
                let cells = ipc_typed(profile).into_iter().filter(|cell| cell.pattern == pattern);
                assert!(cells.map(|cell| cell.payload).eq(TYPED_SIZES.map(Payload::Message)));
            }
        }
    }

    #[test]
    fn typed_mechanisms_are_in_their_own_suite_alone() {
        let typed = Spec::new("process/typed").payloads(&[PayloadKind::Message]);
        let both = Spec::new("process/both").payloads(&[PayloadKind::Bytes, PayloadKind::Message]);
        let cell = cell(Scope::Process, Pattern::Stream, Payload::Message(1024));
        let takes = |spec| Suite::ALL.map(|suite| suite.takes(Profile::Quick, &cell, spec, &Axes::default()));
        assert_eq!(takes(&typed), [false, false, false, true, false, false]);
        assert_eq!(takes(&both), [true; 6]);
        assert_eq!(takes(&Spec::new("process/pipe")), [true, true, true, false, true, true]);
    }

    #[test]
    fn what_may_be_lost_is_measured_where_it_can_say_which_it_is() {
        let cells = net(Profile::Quick);
        let asked = |spec: &Spec| -> Vec<usize> {
            let asking = cells.iter().filter(|cell| cell.pattern.asks());
            asking
                .filter(|cell| Suite::Net.takes(Profile::Quick, cell, spec, &Axes::default()))
                .map(|cell| cell.payload.len())
                .collect()
        };
        assert_eq!(asked(&Spec::new("network/a")), [1, 1]);
        assert_eq!(asked(&Spec::new("network/b").loss(Loss::BestEffort)), [8, 8]);
    }

    #[test]
    fn what_stands_in_base_cells_alone_stands_where_the_user_points() {
        let spec = Spec::new("process/other").tier(Tier::Standard);
        let cell = |size| cell(Scope::Process, Pattern::PingPong, Payload::Bytes(size));
        let takes = |size, axes: &Axes| Suite::Ipc.takes(Profile::Standard, &cell(size), &spec, axes);
        assert!(takes(64, &Axes::default()) && !takes(1024, &Axes::default()));
        let fan_in = Cell { pattern: Pattern::FanIn, ..cell(4096) };
        let takes_fan_in = |axes: &Axes| Suite::Ipc.takes(Profile::Standard, &fan_in, &spec, axes);
        assert!(takes_fan_in(&Axes { patterns: vec![Pattern::FanIn], ..Axes::default() }));
        assert!(!takes_fan_in(&Axes::default()));
        assert!(takes(1024, &Axes { payloads: vec![Payload::Bytes(1024)], ..Axes::default() }));
    }

    #[test]
    fn the_full_race_through_functions_has_the_references_pipelines() {
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
    fn a_pipeline_is_no_variation_of_another_pattern() {
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
    fn an_axis_that_is_given_replaces_the_suites() {
        let axes = Axes { payloads: vec![Payload::Bytes(100)], producers: vec![2, 3], ..Axes::default() };
        let cells = replace(overview(Profile::Quick), &axes);
        assert!(cells.iter().all(|cell| cell.payload == Payload::Bytes(100)));
        assert!(cells.iter().any(|cell| cell.producers == 3));
        assert!(cells.iter().all(|cell| cell.pattern == Pattern::FanIn || cell.producers == 1));
    }
}
