//! Divides the instances of a cell into heats: groups that are open at the same time.
//!
//! The number of open instances is limited, because with many of them two slices of one lap are far
//! apart. So is the memory in their channels. If a cell needs several heats, each contains an
//! instance of the same entrant, the *anchor*, through which instances of different heats are
//! compared (`pairs.rs`).

use std::fs;

use crate::case::PayloadKind;
use crate::plan::Entrant;

/// The maximum number of instances that are open at the same time.
const MAX_OPEN: usize = 32;
/// The number of bytes that the channels of all open instances may always hold.
const MIN_OPEN_BYTES: usize = 1 << 30;
/// They may hold the machine's available memory divided by this, if that is more.
const MEMORY_DIVISOR: usize = 4;

/// The number of bytes that the channels of all open instances may hold together, on this machine.
pub(crate) fn max_open_bytes() -> usize {
    let available = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(available_bytes);
    available.map_or(MIN_OPEN_BYTES, |bytes| (bytes / MEMORY_DIVISOR).max(MIN_OPEN_BYTES))
}

/// The value of `MemAvailable` in the text of `/proc/meminfo`, in bytes.
fn available_bytes(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Divides the entrants of a cell, given by their indices, into as few heats as possible, of about
/// equal size. If there are several, each begins with the anchor.
pub(crate) fn heats(entrants: &[Entrant], cell: &[usize], max_bytes: usize) -> Vec<Vec<usize>> {
    let bytes: usize = cell.iter().map(|&at| channel_bytes(&entrants[at])).fold(0, usize::saturating_add);
    let Some(anchor) = anchor(entrants, cell) else { return Vec::new() };
    if cell.len() <= MAX_OPEN && bytes <= max_bytes {
        return vec![cell.to_vec()];
    }
    let others: Vec<usize> = cell.iter().copied().filter(|at| *at != anchor).collect();
    let max_others = MAX_OPEN - 1;
    let max_others = others.len().div_ceil(others.len().div_ceil(max_others).max(1));
    let mut heats: Vec<Vec<usize>> = Vec::new();
    let mut open_bytes = 0;
    for at in others {
        let more = channel_bytes(&entrants[at]);
        // An instance that is too large by itself is open with the anchor only.
        match heats.last_mut() {
            Some(heat) if heat.len() <= max_others && more.saturating_add(open_bytes) <= max_bytes => heat.push(at),
            _ => {
                heats.push(vec![anchor, at]);
                open_bytes = channel_bytes(&entrants[anchor]);
            }
        }
        open_bytes = open_bytes.saturating_add(more);
    }
    heats
}

/// The entrant that takes part in every heat of a cell: the one that the control repeats, so that
/// both are in one heat. Without a control, the first. `None` without entrants.
fn anchor(entrants: &[Entrant], cell: &[usize]) -> Option<usize> {
    let control = cell.iter().find(|at| entrants[**at].control);
    let repeated = |at: &&usize| {
        let is_of_control = |control: &usize| entrants[*control].case == entrants[**at].case;
        !entrants[**at].control && control.is_some_and(is_of_control)
    };
    cell.iter().find(repeated).or(cell.iter().min()).copied()
}

/// The number of bytes in the channel of an instance when it is full.
fn channel_bytes(entrant: &Entrant) -> usize {
    const MIN_MESSAGE_BYTES: usize = 64;
    let cell = &entrant.case.cell;
    let messages = entrant.effective_capacity.map_or(cell.capacity, |capacity| capacity as usize);
    let message_bytes = match cell.payload.kind() {
        // All messages of a producer share one buffer.
        PayloadKind::Shared | PayloadKind::Unread => MIN_MESSAGE_BYTES,
        _ => cell.payload.len().max(MIN_MESSAGE_BYTES),
    };
    message_bytes.saturating_mul(messages.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Payload;

    /// A cell of so many entrants, of which the last is the control of the third.
    fn cell(count: usize, payload: Payload) -> (Vec<Entrant>, Vec<usize>) {
        let mut cell = crate::suite::Suite::Overview.cells(crate::suite::Profile::Quick)[1].clone();
        (cell.payload, cell.capacity) = (payload, 1024);
        let named = |name: usize| crate::case::Case { mechanism: format!("task/m{name}"), cell: cell.clone() };
        let mut entrants: Vec<_> = (0..count - 1).map(|at| Entrant::new(named(at), false)).collect();
        entrants.push(Entrant::new(named(2), true));
        (entrants, (0..count).rev().collect())
    }

    #[test]
    fn a_small_cell_is_one_heat() {
        let (entrants, order) = cell(5, Payload::U64);
        assert_eq!(heats(&entrants, &order, MIN_OPEN_BYTES), [[4, 3, 2, 1, 0]]);
        assert!(heats(&[], &[], MIN_OPEN_BYTES).is_empty(), "no heat without instances");
    }

    #[test]
    fn large_cells_have_heats_of_equal_size_that_begin_with_the_anchor() {
        let (entrants, order) = cell(33, Payload::U64);
        let heats = heats(&entrants, &order, MIN_OPEN_BYTES);
        assert_eq!(heats.iter().map(Vec::len).collect::<Vec<_>>(), [17, 17]);
        assert!(heats.iter().all(|heat| heat[0] == 2));
        let mut all: Vec<usize> = heats.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..33).collect::<Vec<_>>());
    }

    #[test]
    fn the_memory_of_open_instances_is_limited_by_what_they_can_hold() {
        // Each holds 1 GiB.
        let (mut entrants, order) = cell(5, Payload::Bytes(1 << 20));
        let sizes = |entrants: &[Entrant], max_bytes| heats(entrants, &order, max_bytes).concat().len();
        assert_eq!(heats(&entrants, &order, 1 << 30), [[2, 4], [2, 3], [2, 1], [2, 0]]);
        assert_eq!(heats(&entrants, &order, 3 << 30), [[2, 4, 3], [2, 1, 0]]);
        assert_eq!(sizes(&entrants, 5 << 30), 5, "one heat, without a second anchor");
        entrants.iter_mut().for_each(|entrant| entrant.effective_capacity = Some(1));
        assert_eq!(sizes(&entrants, 1 << 30), 5, "a pipe holds less than one such message");
    }

    #[test]
    fn available_memory_is_read_from_the_kernel() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2 << 20));
        assert_eq!(available_bytes("MemAvailable: many kB\n"), None);
        assert!(max_open_bytes() >= MIN_OPEN_BYTES);
    }
}
