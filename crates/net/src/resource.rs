//! What the key of an endpoint stands for.

use std::sync::Arc;

use crate::Address;
use crate::acceptor::Acceptor;
use crate::connection::Connection;
use crate::counters::Counters;
use crate::datagrams::Socket;
use crate::endpoint_info::EndpointKind;
use crate::scheme::Scheme;
use crate::transport::Listener;
use crate::upgrade_rules::UpgradeRules;

/// What a key identifies.
#[derive(Clone)]
pub(crate) enum Resource {
    Stream(Arc<Connection>),
    Datagrams(Arc<Socket>),
    Listener(Arc<BoundListener>),
}

impl Resource {
    /// Its own counters; those of a listener are empty.
    pub(crate) fn counters(&self) -> Counters {
        match self {
            Resource::Stream(connection) => connection.counters(),
            Resource::Datagrams(socket) => socket.tally.counters(),
            Resource::Listener(_) => Counters::default(),
        }
    }

    /// The kind of its endpoint.
    pub(crate) fn kind(&self) -> EndpointKind {
        match self {
            Resource::Datagrams(_) => EndpointKind::Datagrams,
            Resource::Listener(_) => EndpointKind::Listener,
            Resource::Stream(connection) => {
                let state = connection.state();
                match connection.accepted_by.as_ref().and_then(|acceptor| acceptor.endpoint()) {
                    Some(listener) => EndpointKind::Accepted { listener, state },
                    None => EndpointKind::Outgoing { state },
                }
            }
        }
    }

    pub(crate) fn local(&self) -> Option<Address> {
        match self {
            Resource::Stream(connection) => connection.link.local(),
            Resource::Datagrams(socket) => socket.datagrams.local(),
            Resource::Listener(bound) => bound.scheme.address(&bound.listener.local()?),
        }
    }

    pub(crate) fn peer(&self) -> Option<Address> {
        match self {
            Resource::Stream(connection) => connection.link.peer(),
            Resource::Datagrams(_) | Resource::Listener(_) => None,
        }
    }

    /// The listener that accepted it.
    pub(crate) fn accepted_by(&self) -> Option<&Arc<Acceptor>> {
        match self {
            Resource::Stream(connection) => connection.accepted_by.as_ref(),
            Resource::Datagrams(_) | Resource::Listener(_) => None,
        }
    }
}

/// A listener, and how the connections it accepts are set up.
pub(crate) struct BoundListener {
    pub(crate) listener: Box<dyn Listener>,
    pub(crate) scheme: Scheme,
    pub(crate) half_open: bool,
    /// How WebSocket requests are answered.
    pub(crate) upgrades: Arc<UpgradeRules>,
    pub(crate) acceptor: Arc<Acceptor>,
}
