//! Plans: the cases to measure, their order and the times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::can_run;
use crate::case::{Case, Cell};
use crate::entry::{Entry, Registry};
use crate::hosts::OtherHost;
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::Standing;
use crate::window::Window;

/// A case of a run. The control is a second entrant with the same mechanism in the same cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Entrant {
    /// The case.
    pub case: Case,
    /// Whether it is the A/A control of its cell.
    pub control: bool,
    /// The number of messages that fit between the ends, as probed before the run. `null` if it
    /// could not be probed.
    #[serde(default, alias = "room")]
    pub effective_capacity: Option<u64>,
    /// System calls of all children together for one message or round trip. They are counted before
    /// the run in instances that are traced and not timed. `null` if they could not be counted, or
    /// if the run has a single round.
    #[serde(default)]
    pub calls: Option<f64>,
}

impl Entrant {
    /// An entrant without probed capacity and counted calls.
    pub fn new(case: Case, control: bool) -> Entrant {
        Entrant { case, control, effective_capacity: None, calls: None }
    }
}

/// A mechanism that cannot run in a cell, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The case that is not measured.
    pub case: Case,
    /// The kind of reason.
    #[serde(default)]
    pub kind: RefusalKind,
    /// The reason.
    pub why: String,
}

/// The default time that an instance may take beyond its window.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The default length of a slice. With longer slices two mechanisms see more of the machine's
/// drift. With shorter ones stopping and resuming takes a larger part of the time.
pub const SLICE: Duration = Duration::from_millis(2);

/// The length of the slices of an instance: at least `shortest`. For long messages it is 32 ns per
/// byte, so that a slice has some tens of them, but at most 50 ms and a sixteenth of `sliced`, the
/// time of all slices. These maxima never go below `shortest`.
pub(crate) fn slice_length(shortest: Duration, len: usize, sliced: Option<Duration>) -> Duration {
    const PER_BYTE: Duration = Duration::from_nanos(32);
    const LONGEST: Duration = Duration::from_millis(50);
    /// Two instances need half of this number in common to be compared slice by slice.
    const MIN_SLICES: u32 = 16;
    let longest = sliced.map_or(LONGEST, |sliced| LONGEST.min(sliced / MIN_SLICES));
    shortest.max(longest.min(PER_BYTE * len as u32))
}

/// The default time that a window may take if it is a number of messages.
pub const COUNT_TIMEOUT: Duration = Duration::from_secs(300);

/// The maximum number of rounds of a run.
pub const MAX_ROUNDS: usize = 1_000;

/// The stopping rule of a run that continues beyond its planned rounds. Only precision, time and a
/// number of rounds decide, never significance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// A cell gets no more rounds when it detects differences this small, as a ln ratio.
    pub resolution: f64,
    /// The maximum number of rounds of a cell, with the planned ones.
    pub max_rounds: usize,
    /// The time limit of the run, from its start. No further round starts if it would probably
    /// exceed the limit, by the mean time per instance so far.
    pub budget: Duration,
}

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The window of each instance.
    pub window: Window,
    /// The number of planned rounds. Each case is measured once in a round.
    pub rounds: usize,
    /// The stopping rule for rounds after the planned ones. `None` if there are no such rounds.
    pub precision: Option<Precision>,
    /// The seed of the order and of the messages' contents.
    pub seed: u64,
    /// The cases, cell by cell.
    pub entrants: Vec<Entrant>,
    /// The cases that cannot be measured.
    pub refusals: Vec<Refusal>,
    /// The cores that may be used.
    pub cpus: Vec<usize>,
    /// The length of the slices in which the mechanisms of a cell take turns. `None` if each is
    /// measured in one piece.
    pub slice: Option<Duration>,
    /// How long an instance may take beyond its window before it counts as hung.
    pub timeout: Duration,
    /// How long the window may take if it is a number of messages.
    pub count_timeout: Duration,
    /// The host on which the consumers run. `None` if everything runs on this one.
    pub other_host: Option<OtherHost>,
}

/// Combines cells and mechanisms. Returns the entrants, with the control of each cell, and the
/// cases that cannot run.
///
/// `wanted` selects the mechanisms of a cell. `cores` is the number of cores that may be used.
pub fn combine(
    registry: &Registry,
    cells: &[Cell],
    wanted: impl Fn(&dyn Entry, &Cell) -> bool,
    cores: usize,
) -> (Vec<Entrant>, Vec<Refusal>) {
    let (mut entrants, mut refusals) = (Vec::new(), Vec::new());
    for cell in cells {
        let mut able = Vec::new();
        for entry in registry.iter().filter(|entry| entry.spec().scope == cell.scope && wanted(entry.as_ref(), cell)) {
            let case = Case { mechanism: entry.spec().name.clone(), cell: cell.clone() };
            match can_run(entry.as_ref(), &case, cores) {
                Ok(()) => able.push((entry.spec().standing, case)),
                Err(Inadmissible { kind, why }) => refusals.push(Refusal { case, kind, why }),
            }
        }
        // The control is the cell's first candidate in the order of the registry, so it is the same
        // in every run.
        let control = able.iter().find(|(standing, _)| *standing == Standing::Candidate).or(able.first()).cloned();
        entrants.extend(able.into_iter().map(|(_, case)| Entrant::new(case, false)));
        let control = control.filter(|_| cell.pattern.is_ranked());
        entrants.extend(control.map(|(_, case)| Entrant::new(case, true)));
    }
    (entrants, refusals)
}

/// The order of one round, as indices of entrants. The cells are shuffled, and the entrants of each
/// cell are shuffled and stay together.
pub fn shuffled(entrants: &[Entrant], random: &mut fastrand::Rng) -> Vec<usize> {
    let mut cells: Vec<Vec<usize>> = Vec::new();
    for (index, entrant) in entrants.iter().enumerate() {
        match cells.iter_mut().find(|cell| entrants[cell[0]].case.cell == entrant.case.cell) {
            Some(cell) => cell.push(index),
            None => cells.push(vec![index]),
        }
    }
    random.shuffle(&mut cells);
    for cell in &mut cells {
        random.shuffle(cell);
    }
    cells.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Profile, overview};

    #[test]
    fn a_round_has_every_entrant_once_and_keeps_cells_together() {
        let cells = overview(Profile::Quick);
        let entrants: Vec<_> = cells
            .iter()
            .flat_map(|cell| (0..3).map(|n| Case { mechanism: format!("m{n}"), cell: cell.clone() }))
            .map(|case| Entrant::new(case, false))
            .collect();
        let mut random = fastrand::Rng::with_seed(1);
        let order = shuffled(&entrants, &mut random);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..entrants.len()).collect::<Vec<_>>());
        for three in order.chunks(3) {
            assert!(three.iter().all(|&at| entrants[at].case.cell == entrants[three[0]].case.cell));
        }
        assert_ne!(order, shuffled(&entrants, &mut random));
    }
}
