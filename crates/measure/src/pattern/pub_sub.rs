//! One publisher sends to several subscribers as fast as it can. Each subscriber gets every
//! message.

use super::rules::Rules;
use crate::case::Cell;
use crate::spec::Scope;

pub(super) struct PubSub;

impl Rules for PubSub {
    fn result(&self) -> &'static str {
        "a published message takes"
    }

    fn has_several_parties(&self) -> bool {
        true
    }

    fn streams(&self, _: &Cell) -> usize {
        1
    }

    fn producers_per_receiver(&self, _: &Cell) -> usize {
        1
    }

    fn default_producers(&self, _: Scope) -> usize {
        2
    }

    fn consumers(&self, cell: &Cell) -> usize {
        cell.producers
    }

    fn copies(&self, cell: &Cell) -> usize {
        cell.producers
    }

    fn messages_moved(&self) -> Option<f64> {
        None
    }
}
