//! Plans: which cases are measured, in which order, for how long.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::case::{Case, Cell};
use crate::entry::{Entry, Registry, can_run};
use crate::spec::Standing;
use crate::window::Window;

/// One case of a run. Where it is the control, the same mechanism stands in the cell a second time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entrant {
    /// The case.
    pub case: Case,
    /// Whether it is its cell's A/A control.
    pub control: bool,
    /// How many messages may be under way, as tried before the run; none where that could not be told.
    #[serde(default, alias = "room")]
    pub effective_capacity: Option<u64>,
    /// System calls for one message, or round trip, of all children together, as counted before the run in instances that
    /// were traced and not timed; none where that could not be, or was not to be for a single round.
    #[serde(default)]
    pub calls: Option<f64>,
}

impl Entrant {
    /// One of which nothing has been tried.
    pub fn new(case: Case, control: bool) -> Entrant {
        Entrant { case, control, effective_capacity: None, calls: None }
    }
}

/// A mechanism that cannot take part in a cell, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    /// The case that is not measured.
    pub case: Case,
    /// The reason.
    pub why: String,
}

/// How long an instance may take beyond its window, where nobody says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a slice is, where nobody says otherwise. Longer ones follow the drift of the machine less closely; of shorter ones
/// more is lost to stopping and starting.
pub const SLICE: Duration = Duration::from_millis(2);
/// How long a window by count may take, where nobody says otherwise.
pub const COUNT_TIMEOUT: Duration = Duration::from_secs(300);

/// When a run that goes on beyond its planned rounds stops: on precision or budget, never on significance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// A cell gets no more rounds once it shows differences this small, as a ln ratio.
    pub resolution: f64,
    /// No round begins later than this after the start of the run.
    pub budget: Duration,
}

/// Everything a run is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What each instance measures.
    pub window: Window,
    /// How often each case is measured.
    pub rounds: usize,
    /// Whether more rounds follow, and for how long; none where the number of rounds is fixed.
    pub precision: Option<Precision>,
    /// Decides the order and what messages are made of.
    pub seed: u64,
    /// The cases, cell by cell.
    pub entrants: Vec<Entrant>,
    /// The cases that cannot be measured.
    pub refusals: Vec<Refusal>,
    /// The cores that may be used.
    pub cpus: Vec<usize>,
    /// How long the slices are in which the mechanisms of a cell take turns; none where each is measured in one piece.
    pub slice: Option<Duration>,
    /// How long an instance may take beyond its window before it is taken for hung.
    pub timeout: Duration,
    /// How long its window may take where it is given by count.
    pub count_timeout: Duration,
}

/// Brings cells and mechanisms together: the entrants, each cell's control among them, and those who cannot take part.
pub fn enter(
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
                Err(why) => refusals.push(Refusal { case, why }),
            }
        }
        // The control is the cell's first candidate, by order of enrolment: the same in every run.
        let control = able.iter().find(|(standing, _)| *standing == Standing::Candidate).or(able.first()).cloned();
        entrants.extend(able.into_iter().map(|(_, case)| Entrant::new(case, false)));
        let control = control.filter(|_| cell.pattern.ranks());
        entrants.extend(control.map(|(_, case)| Entrant::new(case, true)));
    }
    (entrants, refusals)
}

/// The order of one round: cells shuffled, and the entrants within each shuffled and back to back.
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
    fn a_round_holds_every_entrant_once_with_cells_together() {
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
