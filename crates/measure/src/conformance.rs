//! The cases with which a mechanism shows that it keeps its promises.

use crate::case::{Cell, Load, Payload, PayloadKind, Place};
use crate::spec::{Runtime, Spec};
use crate::suite;

/// The lengths of byte messages: the smallest that identifies itself, one that is no multiple of a machine word, one of several pages.
const LENGTHS: [usize; 3] = [8, 1_001, 65_536];

/// One cell for each thing that a description says the mechanism can do: every pattern with every payload; and with the first payload
/// also every wait mode, runtime and placement. Some of them may be refused ([`crate::admission::can_run`]).
pub fn cells(spec: &Spec) -> Vec<Cell> {
    let mut cells = Vec::new();
    let payloads: Vec<Payload> = spec.payloads.iter().flat_map(|kind| sizes(spec, *kind)).collect();
    for pattern in &spec.patterns {
        let Some(first) = payloads.first() else { continue };
        let usual = suite::usual_cell(spec, *pattern, *first);
        cells.extend(payloads.iter().map(|payload| Cell { payload: *payload, ..usual.clone() }));
        cells.extend(spec.waits.iter().map(|wait| Cell { wait: *wait, ..usual.clone() }));
        cells.extend(spec.runtimes.iter().map(|runtime| Cell { runtime: *runtime, ..usual.clone() }));
        if usual.runtime == Runtime::Thread {
            cells.extend([Place::OtherCore, Place::SameCore, Place::Free].map(|place| Cell { place, ..usual.clone() }));
        }
        cells.push(Cell { load: Load::Rate(1_000), ..usual });
    }
    let mut distinct: Vec<Cell> = Vec::new();
    for cell in cells {
        if !distinct.contains(&cell) {
            distinct.push(cell);
        }
    }
    distinct
}

/// The payloads of a kind that are tried.
fn sizes(spec: &Spec, kind: PayloadKind) -> Vec<Payload> {
    let longest = spec.max_message.unwrap_or(usize::MAX);
    let lengths = || {
        let mut lengths: Vec<usize> = LENGTHS.iter().map(|len| (*len).min(longest)).collect();
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
    use crate::case::Pattern;
    use crate::spec::Wait;

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
    }
}
