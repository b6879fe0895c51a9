//! Opens ends that communicate through a named object: a key, a subject or a topic.

use anyhow::Result;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_measure::case::{Case, Role};
use estafette_measure::{Ends, Generator, Rendezvous};

/// The name that requests and one-way messages are sent to.
const FORWARD: &str = "forward";

/// The names that an end sends to: one, or for a server one per client.
pub(super) struct Names<N>(Vec<N>);

impl<N> Names<N> {
    /// Returns the name for the next message.
    #[inline(always)]
    pub(super) fn of(&self, source: &Generator) -> &N {
        &self.0[source.producer().min(self.0.len() - 1)]
    }
}

/// Opens a party's ends: `tx` creates a sending end for the given names, `rx` a receiving end for a
/// name. Round trips need no credit, because each message waits for the reply to the one before.
/// One-way messages use credit.
pub(super) fn open<N: From<String>, T, R>(
    case: &Case,
    role: Role,
    rendezvous: &mut Rendezvous,
    tx: impl FnOnce(Names<N>, Option<Spend>) -> Result<T>,
    rx: impl FnOnce(&str, Option<Refund>) -> Result<R>,
) -> Result<Ends<T, R>> {
    let forward = || Names(vec![N::from(String::from(FORWARD))]);
    let reply = |client: usize| format!("reply{client}");
    let has_reply = case.pattern.is_bidirectional();
    match role {
        Role::Producer(client) if has_reply => Ok(Ends::both(role, tx(forward(), None)?, rx(&reply(client), None)?)),
        Role::Producer(index) => Ok(Ends::producer(index, tx(forward(), Some(Spend::open(case, rendezvous)?))?)),
        Role::Consumer(index) if !has_reply => {
            Ok(Ends::consumer(index, rx(FORWARD, Some(Refund::open(case, index, rendezvous)?))?))
        }
        _ => {
            let clients = (0..case.producers).map(|client| reply(client).into());
            Ok(Ends::both(role, tx(Names(clients.collect()), None)?, rx(FORWARD, None)?))
        }
    }
}
