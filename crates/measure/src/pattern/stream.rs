//! One producer sends to one consumer as fast as it can.

use super::rules::Rules;
use crate::bound::{Bound, Costs};

pub(super) struct Stream;

impl Rules for Stream {
    fn result(&self) -> &'static str {
        "a message of a stream takes"
    }

    fn is_between_hosts(&self) -> bool {
        true
    }

    fn has_open_loop(&self) -> bool {
        true
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        // Every message crosses from one core or host to the other.
        Bound::of([self.handling(costs), costs.copy_across_cores(), costs.link_rate()])
    }
}
