//! The adapter for message brokers. A broker's file connects clients; the adapter starts the server
//! for each instance, says which end uses which name (a key, a subject or a topic), and limits the
//! messages in flight by credit.

use anyhow::Result;
use estafette_contest_common::capacity::slots;
use estafette_contest_common::credit::{Refund, Spend};
use estafette_contest_common::server::{self, Server};
use estafette_measure::case::{Case, Role};
use estafette_measure::spec::Tier;
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx};

use super::credited::{CreditedRx, CreditedTx};

/// The name that requests and one-way messages are sent to.
const FORWARD: &str = "forward";

/// A message broker, and how its clients pass messages.
pub(super) trait Broker: Send + Sync + 'static {
    /// What both ends of a party share, such as a connection.
    type Client;
    /// The type of a name in the client library.
    type Name: From<String> + Send + 'static;
    /// The sending end.
    type Tx: Tx;
    /// The receiving end.
    type Rx: Rx;

    /// The description. The adapter adds what holds for all brokers.
    fn spec(&self) -> Spec;

    /// The server program.
    fn server(&self) -> &Server;

    /// Starts the server, and stops it when every party has reported.
    ///
    /// # Errors
    ///
    /// If the server cannot be started, or a party has exited.
    fn serve(&self, rendezvous: &mut Rendezvous) -> Result<Usage>;

    /// The messages that may be in flight. By default as many as credit allows.
    fn effective_capacity(&self, case: &Case) -> usize {
        slots(case)
    }

    /// Prepares the client of a party, once the server accepts connections.
    ///
    /// # Errors
    ///
    /// If the server has exited.
    fn connect(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Self::Client>;

    /// Opens a sending end.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    fn sender(&self, client: &Self::Client, names: Names<Self::Name>) -> Result<Self::Tx>;

    /// Opens a receiving end. Messages that are sent to `name` after it returns arrive.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or rejects the subscription.
    fn receiver(&self, client: &Self::Client, name: &str) -> Result<Self::Rx>;
}

/// A message broker as a mechanism.
pub(super) struct Brokered<B>(pub(super) B);

impl<B: Broker> Mechanism for Brokered<B> {
    fn spec(&self) -> Spec {
        self.0.spec().max_producers(None).tier(Tier::Standard)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(self.0.effective_capacity(case) as u64)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        server::roles(case)
    }

    fn broker(&self, _: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        self.0.serve(rendezvous)
    }

    fn server(&self) -> Option<String> {
        self.0.server().version()
    }

    fn check_available(&self) -> Result<(), String> {
        self.0.server().check_available()
    }
}

impl<B: Broker> Transport<Raw> for Brokered<B> {
    type Tx = CreditedTx<B::Tx>;
    type Rx = CreditedRx<B::Rx>;

    /// Opens a party's ends. Round trips need no credit, because each message waits for the reply
    /// to the one before. One-way messages use credit.
    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let Brokered(broker) = self;
        let client = broker.connect(case, role, rendezvous)?;
        let tx = |names: Vec<String>, credit| {
            let names = Names(names.into_iter().map(B::Name::from).collect());
            broker.sender(&client, names).map(|tx| CreditedTx { tx, credit })
        };
        let rx = |name: &str, credit| broker.receiver(&client, name).map(|rx| CreditedRx { rx, credit });
        let forward = || vec![String::from(FORWARD)];
        let reply = |client: usize| format!("reply{client}");
        let has_reply = case.pattern.is_bidirectional();
        match role {
            Role::Producer(client) if has_reply => {
                Ok(Ends::both(role, tx(forward(), None)?, rx(&reply(client), None)?))
            }
            Role::Producer(index) => Ok(Ends::producer(index, tx(forward(), Some(Spend::open(case, rendezvous)?))?)),
            Role::Consumer(index) if !has_reply => {
                Ok(Ends::consumer(index, rx(FORWARD, Some(Refund::open(case, index, rendezvous)?))?))
            }
            _ => Ok(Ends::both(role, tx((0..case.producers).map(reply).collect(), None)?, rx(FORWARD, None)?)),
        }
    }
}

/// The names that an end sends to: one, or for a server one per client.
pub(super) struct Names<N>(Vec<N>);

impl<N> Names<N> {
    /// The name of an end that sends to one.
    pub(super) fn one(name: N) -> Names<N> {
        Names(vec![name])
    }

    /// Returns the name for the next message.
    #[inline(always)]
    pub(super) fn of(&self, source: &Generator) -> &N {
        &self.0[source.producer().min(self.0.len() - 1)]
    }
}
