//! Several producers send to one consumer through one channel, as fast as they can.

use super::rules::Rules;
use crate::bound::{Cost, Costs};
use crate::case::Role;
use crate::spec::Scope;

pub(super) struct FanIn;

impl Rules for FanIn {
    fn result(&self) -> &'static str {
        "a message of a fan-in takes"
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

    fn opens_end_per_producer(&self, role: Role) -> bool {
        matches!(role, Role::Consumer(_))
    }

    fn handling(&self, costs: &Costs) -> Option<(Cost, f64)> {
        costs.of_one_receiver()
    }
}
