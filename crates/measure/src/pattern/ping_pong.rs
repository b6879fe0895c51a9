//! Round trips, one at a time: a request and its reply.

use anyhow::Result;

use super::assignment::{LoopPlan, Opened, requests_and_replies};
use super::rules::{Metric, ResultParty, Rules};
use crate::bound::{Bound, Costs};
use crate::case::Pattern;

pub(super) struct PingPong;

impl Rules for PingPong {
    fn result(&self) -> &'static str {
        "a round trip takes"
    }

    fn is_bidirectional(&self) -> bool {
        true
    }

    fn is_between_hosts(&self) -> bool {
        true
    }

    /// The request and its reply.
    fn messages_moved(&self) -> Option<f64> {
        Some(2.0)
    }

    fn assign(&self, pattern: Pattern, parties: &[Opened]) -> Result<Vec<LoopPlan>> {
        requests_and_replies(pattern, parties)
    }

    fn metric(&self) -> Metric {
        Metric::RoundTrip
    }

    fn lead(&self) -> ResultParty {
        ResultParty::Requester
    }

    fn bound(&self, costs: &Costs) -> Option<Bound> {
        costs.of_round_trip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Role;

    #[test]
    fn the_error_names_a_missing_end() {
        let opened = Opened { index: 0, order: 0, role: Role::Producer(0), sends: true, receives: false };
        let error = PingPong.assign(Pattern::PingPong, &[opened]).unwrap_err();
        assert!(error.to_string().contains("no receiving end for producer:0 of a ping-pong"), "{error}");
    }
}
