//! How two ends come by what lies between them, where that is a name: a key, a subject, a topic.

use anyhow::Result;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_measure::case::{Case, Role};
use estafette_measure::{Ends, Generator, Rendezvous};

/// Where messages go.
const FORWARD: &str = "forward";

/// The names that an end sends to: one, or one for each client that a server answers.
pub(super) struct Names<N>(Vec<N>);

impl<N> Names<N> {
    /// The name that the next message goes to.
    #[inline(always)]
    pub(super) fn of(&self, next: &Generator) -> &N {
        &self.0[next.producer().min(self.0.len() - 1)]
    }
}

/// Opens a party's ends: `tx` one that sends to some names, `rx` one that receives from a name. Where each message waits for
/// the answer to the one before, no more than that is under way; what goes one way has credit.
pub(super) fn open<N: From<String>, T, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    tx: impl FnOnce(Names<N>, Option<Spend>) -> Result<T>,
    rx: impl FnOnce(&str, Option<Refund>) -> Result<R>,
) -> Result<Ends<T, R>> {
    let forward = || Names(vec![N::from(String::from(FORWARD))]);
    let reply = |client: usize| format!("reply{client}");
    let answers = case.pattern.both_ways();
    match role {
        Role::Producer(client) if answers => Ok(Ends::both(role, tx(forward(), None)?, rx(&reply(client), None)?)),
        Role::Producer(index) => Ok(Ends::producer(index, tx(forward(), Some(Spend::open(case, rendezvous)?))?)),
        Role::Consumer(index) if !answers => {
            Ok(Ends::consumer(index, rx(FORWARD, Some(Refund::open(case, index, rendezvous)?))?))
        }
        _ => {
            let clients = (0..case.producers).map(|client| reply(client).into());
            Ok(Ends::both(role, tx(Names(clients.collect()), None)?, rx(FORWARD, None)?))
        }
    }
}
