//! Suites: named presets of cells. A registry's mechanisms join every cell that they can play.

use crate::case::{Cell, Pattern, Payload, Place};
use crate::spec::{Runtime, Scope, Wait};

/// The names of the suites.
pub const SUITES: [&str; 1] = ["overview"];

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
}

/// The most messages under way in the base cells.
const CAPACITY: usize = 1024;

fn cell(scope: Scope, pattern: Pattern, payload: Payload) -> Cell {
    let (runtime, wait, place) = match scope {
        Scope::Task => (Runtime::TokioMulti, Wait::Block, Place::Free),
        Scope::Thread => (Runtime::Thread, Wait::Spin, Place::OtherCore),
        _ => (Runtime::Thread, Wait::Block, Place::OtherCore),
    };
    let producers = match (pattern, scope) {
        (Pattern::FanIn, Scope::Task) => 8,
        (Pattern::FanIn, _) => 2,
        _ => 1,
    };
    Cell { scope, pattern, payload, producers, capacity: CAPACITY, runtime, wait, place }
}

/// The cells that the overview shows of every distance.
fn base() -> Vec<Cell> {
    use Pattern::{FanIn, PingPong, Stream};
    use Payload::{Bytes, U64};
    let mut cells = Vec::new();
    for pattern in [PingPong, Stream, FanIn] {
        cells.push(cell(Scope::Task, pattern, U64));
    }
    for wait in [Wait::Spin, Wait::Block] {
        for pattern in [PingPong, Stream] {
            cells.push(Cell { wait, ..cell(Scope::Thread, pattern, U64) });
        }
    }
    for (pattern, size) in [(PingPong, 64), (Stream, 4096), (FanIn, 4096)] {
        cells.push(cell(Scope::Process, pattern, Bytes(size)));
    }
    for (pattern, size) in [(PingPong, 64), (Stream, 4096)] {
        cells.push(Cell { wait: Wait::Spin, ..cell(Scope::Process, pattern, Bytes(size)) });
    }
    for scope in [Scope::Network, Scope::Sandbox] {
        for (pattern, size) in [(PingPong, 64), (Stream, 4096)] {
            cells.push(cell(scope, pattern, Bytes(size)));
        }
    }
    cells
}

/// The overview's cells at a profile.
pub fn overview(profile: Profile) -> Vec<Cell> {
    let base = base();
    if profile == Profile::Quick {
        return base;
    }
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

/// Puts the user's values in the place of the suite's.
pub fn replace(cells: Vec<Cell>, axes: &Axes) -> Vec<Cell> {
    let mut cells = cells;
    expand(&mut cells, &axes.patterns, |cell, &pattern| {
        let fresh = self::cell(cell.scope, pattern, cell.payload);
        Cell { pattern, producers: fresh.producers, ..cell.clone() }
    });
    expand(&mut cells, &axes.payloads, |cell, &payload| Cell { payload, ..cell.clone() });
    expand(&mut cells, &axes.capacities, |cell, &capacity| Cell { capacity, ..cell.clone() });
    expand(&mut cells, &axes.waits, |cell, &wait| Cell { wait, ..cell.clone() });
    expand(&mut cells, &axes.runtimes, |cell, &runtime| Cell { runtime, ..cell.clone() });
    expand(&mut cells, &axes.places, |cell, &place| Cell { place, ..cell.clone() });
    expand(&mut cells, &axes.producers, |cell, &producers| match cell.pattern {
        Pattern::FanIn => Cell { producers, ..cell.clone() },
        _ => cell.clone(),
    });
    distinct(cells)
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
    fn an_axis_that_is_given_replaces_the_suites() {
        let axes = Axes { payloads: vec![Payload::Bytes(100)], producers: vec![2, 3], ..Axes::default() };
        let cells = replace(overview(Profile::Quick), &axes);
        assert!(cells.iter().all(|cell| cell.payload == Payload::Bytes(100)));
        assert!(cells.iter().any(|cell| cell.producers == 3));
        assert!(cells.iter().all(|cell| cell.pattern == Pattern::FanIn || cell.producers == 1));
    }
}
