//! How several producers share a capacity, where each has memory of its own.

use estafette_contest_common::capacity::slots;
use estafette_measure::case::{Case, Pattern};

/// Returns the capacity in messages of each producer's own memory. Several producers share the
/// capacity that the case requests.
pub(super) fn share(case: &Case) -> usize {
    let producers = if case.pattern == Pattern::FanIn { case.producers } else { 1 };
    (slots(case) / producers).max(1)
}
