//! Several producers send to one consumer as fast as they can, each through its own channel. The
//! consumer receives from all channels. The cell's capacity is divided among the channels.

use super::rules::Rules;
use crate::bound::{Cost, Costs};
use crate::spec::Scope;

pub(super) struct Merge;

impl Rules for Merge {
    fn result(&self) -> &'static str {
        "a merged message takes"
    }

    fn has_several_parties(&self) -> bool {
        true
    }

    fn default_producers(&self, scope: Scope) -> usize {
        if scope == Scope::Task { 8 } else { 2 }
    }

    fn has_open_loop(&self) -> bool {
        true
    }

    fn handling(&self, costs: &Costs) -> Option<(Cost, f64)> {
        costs.of_one_receiver()
    }
}
