//! The cases with which a mechanism shows that it keeps its promises.

use crate::case::{Cell, Load, Pattern, Payload, PayloadKind, Place};
use crate::pattern::Layout;
use crate::spec::{Runtime, Spec, Wait};
use crate::suite;

/// The lengths of byte messages: the smallest that identifies itself, one that is no multiple of a
/// machine word, one of several pages.
const LENGTHS: [usize; 3] = [8, 1_001, 65_536];
/// A longest message is tried if it is at most this long, in bytes.
const MAX_LEN: usize = 1 << 20;
/// The longest message in bytes of a pattern that fills the channel before it receives.
const MAX_FILLING_LEN: usize = 64;

/// The placements on one host.
const PLACES: [Place; 3] = [Place::OtherCore, Place::SameCore, Place::Free];

/// One cell for each thing that a description says the mechanism can do: every pattern with every
/// payload and length; and with the first payload also every wait mode, runtime, placement, the
/// smallest capacity and an open loop. Some of them may be refused ([`crate::admission::can_run`]).
pub fn cells(spec: &Spec) -> Vec<Cell> {
    let mut cells = Vec::new();
    for pattern in &spec.patterns {
        let rules = pattern.rules();
        let mut payloads: Vec<Payload> = spec.payloads.iter().flat_map(|kind| sizes(spec, *kind)).collect();
        if rules.fills_before_receiving() {
            // Many messages are in memory at once.
            payloads.retain(|payload| payload.len() <= MAX_FILLING_LEN);
        }
        let Some(first) = payloads.first() else { continue };
        let usual = usual(spec, *pattern, *first);
        cells.extend(payloads.iter().map(|payload| Cell { payload: *payload, ..usual.clone() }));
        cells.extend(spec.runtimes.iter().map(|runtime| Cell { runtime: *runtime, ..usual.clone() }));
        if rules.layout() == Layout::Separate || rules.layout() == Layout::OneSender {
            cells.extend(spec.waits.iter().map(|wait| Cell { wait: *wait, ..usual.clone() }));
            let places = if usual.runtime == Runtime::Thread { &PLACES[..] } else { &[] };
            cells.extend(places.iter().map(|place| Cell { place: *place, ..usual.clone() }));
        }
        if usual.capacity == Cell::CAPACITY {
            // A rendezvous; otherwise a message for each producer, since some divide the capacity among them.
            let smallest = if spec.least_capacity == 0 { 0 } else { spec.least_capacity.max(usual.producers) };
            cells.push(Cell { capacity: smallest, ..usual.clone() });
        }
        if spec.open_loop && rules.has_open_loop() {
            cells.push(Cell { load: Load::Rate(1_000), ..usual });
        }
    }
    let mut distinct: Vec<Cell> = Vec::new();
    for cell in cells {
        if !distinct.contains(&cell) {
            distinct.push(cell);
        }
    }
    distinct
}

/// The usual cell of a pattern, with the values that the mechanism can have. Ends that can wait
/// without spinning do, so that they need no core each.
fn usual(spec: &Spec, pattern: Pattern, payload: Payload) -> Cell {
    let usual = suite::usual_cell(spec.scope, pattern, payload);
    let wait = spec.waits.iter().copied().find(|wait| *wait != Wait::Spin).or(spec.waits.first().copied());
    Cell {
        wait: wait.unwrap_or(usual.wait),
        runtime: spec.runtimes.first().copied().unwrap_or(usual.runtime),
        producers: usual.producers.min(spec.max_producers.unwrap_or(usize::MAX)).max(1),
        capacity: usual.capacity.max(spec.least_capacity),
        ..usual
    }
}

/// The payloads of a kind that are tried.
fn sizes(spec: &Spec, kind: PayloadKind) -> Vec<Payload> {
    let longest = spec.max_message.unwrap_or(usize::MAX);
    let lengths = || {
        let mut lengths: Vec<usize> = LENGTHS.iter().map(|len| (*len).min(longest)).collect();
        lengths.extend(spec.max_message.filter(|len| *len <= MAX_LEN));
        lengths.dedup();
        lengths
    };
    match kind {
        PayloadKind::None => vec![Payload::None],
        PayloadKind::U64 => vec![Payload::U64],
        PayloadKind::Inline => vec![Payload::Inline],
        PayloadKind::Bytes => lengths().into_iter().map(Payload::Bytes).collect(),
        PayloadKind::Message => lengths().into_iter().map(Payload::Message).collect(),
        PayloadKind::Shared => vec![Payload::Shared(LENGTHS[1])],
        PayloadKind::Unread => vec![Payload::Unread(LENGTHS[1])],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_description_lists_is_in_a_cell() {
        let spec = Spec::new("process/x")
            .patterns(&[Pattern::Stream, Pattern::FanIn])
            .payloads(&[PayloadKind::Bytes, PayloadKind::U64])
            .waits(&[Wait::Block, Wait::Spin])
            .max_message(2_000);
        let cells = cells(&spec);
        for pattern in [Pattern::Stream, Pattern::FanIn] {
            for payload in [Payload::Bytes(8), Payload::Bytes(1_001), Payload::Bytes(2_000), Payload::U64] {
                assert!(
                    cells.iter().any(|cell| (cell.pattern, cell.payload) == (pattern, payload)),
                    "{pattern} {payload}"
                );
            }
            for wait in [Wait::Block, Wait::Spin] {
                assert!(cells.iter().any(|cell| (cell.pattern, cell.wait) == (pattern, wait)), "{pattern} {wait}");
            }
        }
        assert!(cells.iter().all(|cell| cell.payload.len() <= 2_000));
        assert!(cells.iter().all(|cell| cell.producers == 1), "one producer is the most");
    }
}
