//! The state that the node's thread shares with all handles.

mod connecting;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::Address;
use crate::asleep::Asleep;
use crate::backend::Registry;
use crate::buffer_totals::BufferTotals;
use crate::close_requests::CloseRequests;
use crate::codec::Kind;
use crate::command::Command;
use crate::connection::Connection;
use crate::counters::{Counters, Openings, Total};
use crate::error::Error;
use crate::event::{Endpoint, Outcome};
use crate::last_counters::LastCounters;
use crate::lifecycle::{Lifecycle, Stage};
use crate::limits::Limits;
use crate::lock::lock;
use crate::lookup::Lookups;
use crate::resource::Resource;
use crate::route::Route;
use crate::scheme::Scheme;
use crate::signals::Signals;
use crate::slab::{Key, Slab};
use crate::trace;
use crate::transport::Transport;

/// The state that the node's thread shares with all handles.
pub(crate) struct Shared<S> {
    pub(crate) limits: Limits,
    pub(crate) transports: RwLock<HashMap<String, Arc<dyn Transport>>>,
    pub(crate) resources: RwLock<Slab<Resource>>,
    /// How many of them are connections.
    connections: AtomicUsize,
    pub(crate) totals: Arc<BufferTotals>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) commands: Arc<Mutex<Vec<Command>>>,
    pub(crate) close_requests: CloseRequests,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) signals: Mutex<Signals<S>>,
    pub(crate) asleep: Asleep,
    pub(crate) stopped: AtomicBool,
    /// How the connections of this node opened.
    pub(crate) openings: Openings,
    /// The counters of endpoints that have ended.
    ended: Total,
    pub(crate) last_counters: LastCounters,
    pub(crate) lifecycle: Lifecycle,
    /// The node was dropped: no command is handled any more.
    pub(crate) gone: AtomicBool,
}

impl<S> Shared<S> {
    /// Whether other threads, or a callback, have left work for the node: signals that are due,
    /// commands, or a request to stop.
    pub(crate) fn has_work(&self, now: Instant) -> bool {
        let signals = lock(&self.signals);
        !signals.urgent.is_empty()
            || !signals.usual.is_empty()
            || signals.next_due().is_some_and(|due| due <= now)
            || !lock(&self.commands).is_empty()
            || self.stopped.load(Ordering::SeqCst)
    }

    pub(crate) fn new(
        limits: Limits,
        registry: Arc<dyn Registry>,
        transports: HashMap<String, Arc<dyn Transport>>,
    ) -> Shared<S> {
        let commands = Arc::<Mutex<Vec<Command>>>::default();
        let (results, waker) = (commands.clone(), registry.clone());
        let report = move |key, waiting, found| {
            lock(&results).push(Command::Found(key, waiting, found));
            // Wakes the node whether it sleeps or not: a wait that begins later ends at once.
            waker.wake();
        };
        Shared {
            lookups: Arc::new(Lookups::new(Box::new(report))),
            limits,
            transports: RwLock::new(transports),
            resources: RwLock::new(Slab::new()),
            connections: AtomicUsize::new(0),
            totals: Arc::default(),
            registry,
            commands,
            close_requests: CloseRequests::default(),
            signals: Mutex::new(Signals::new()),
            asleep: Asleep::new(),
            stopped: AtomicBool::new(false),
            openings: Openings::default(),
            ended: Total::default(),
            last_counters: LastCounters::default(),
            lifecycle: Lifecycle::new(),
            gone: AtomicBool::new(false),
        }
    }

    /// Wakes the node's thread if it sleeps or is about to. Call it after the thread's work was
    /// queued.
    pub(crate) fn wake(&self) {
        if self.asleep.must_wake() {
            self.registry.wake();
        }
    }

    pub(crate) fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        self.wake();
    }

    /// Requests that an endpoint is closed, with this payload of a closing frame. From now on its
    /// sends are refused.
    pub(crate) fn request_close(&self, key: Key, farewell: Vec<u8>) {
        lock(&self.commands).push(Command::Close(key, farewell));
        loop {
            match self.route(key) {
                Some(Route::Stream(connection)) if !connection.request_close() => continue,
                Some(Route::Datagrams(socket)) => socket.request_close(),
                _ => {}
            }
            break;
        }
        self.close_requests.add();
        self.wake();
    }

    /// Requests that every endpoint is closed, and that what is left then is cut.
    pub(crate) fn request_shutdown(&self, within: Duration) {
        self.lifecycle.advance(Stage::ShuttingDown);
        lock(&self.commands).push(Command::Shutdown(Instant::now(), within));
        self.close_requests.add();
        self.wake();
    }

    /// Fails if no endpoint may be created any more.
    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match self.lifecycle.stage() {
            Stage::Running => Ok(()),
            Stage::ShuttingDown | Stage::ShutDown => Err(Error::ShuttingDown),
        }
    }

    pub(crate) fn resource<T>(&self, key: Key, get: impl FnOnce(&Resource) -> Option<T>) -> Option<T> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).get(key).and_then(get)
    }

    pub(crate) fn insert(&self, resource: Resource) -> Key {
        if matches!(resource, Resource::Stream(_)) {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
        self.resources.write().unwrap_or_else(PoisonError::into_inner).insert_with(|_| resource)
    }

    /// Removes a resource. Its counters are added to those of its node and its listener.
    pub(crate) fn remove(&self, key: Key) -> Option<Resource> {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        let removed = resources.remove(key)?;
        let counters = removed.counters();
        self.ended.add(&counters);
        if let Some(acceptor) = removed.accepted_by() {
            acceptor.ended.add(&counters);
        }
        if matches!(removed, Resource::Stream(_)) {
            self.last_counters.update(key, counters);
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
        Some(removed)
    }

    /// The counters of the node. While the resources are locked, none of them is counted twice or
    /// left out.
    pub(crate) fn counters(&self) -> Counters {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.ended.get();
        resources.values().for_each(|(_, resource)| all.add(&resource.counters()));
        self.openings.add_to(&mut all);
        all
    }

    /// All resources, with their keys.
    pub(crate) fn all(&self) -> Vec<(Key, Resource)> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        resources.values().map(|(key, resource)| (key, resource.clone())).collect()
    }

    /// The counters of one endpoint, while it exists and while its last event is delivered.
    pub(crate) fn counters_of(&self, key: Key) -> Option<Counters> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let bound = match resources.get(key) {
            None => return self.last_counters.get(key),
            Some(Resource::Listener(bound)) => bound,
            Some(resource) => return Some(resource.counters()),
        };
        let mut all = bound.acceptor.ended.get();
        let own = |resource: &&Resource| resource.accepted_by().is_some_and(|by| Arc::ptr_eq(by, &bound.acceptor));
        resources.values().map(|(_, resource)| resource).filter(own).for_each(|own| all.add(&own.counters()));
        bound.acceptor.openings.add_to(&mut all);
        Some(all)
    }

    /// Confirms a new resource. If the node was dropped or has shut down meanwhile, removes the
    /// resource and fails.
    pub(crate) fn unless_gone(&self, key: Key) -> Result<Key, Error> {
        let error = if self.gone.load(Ordering::SeqCst) {
            Error::Gone
        } else if self.lifecycle.stage() == Stage::ShutDown {
            Error::ShuttingDown
        } else {
            return Ok(key);
        };
        if let Some(Resource::Listener(bound)) = self.remove(key) {
            bound.listener.close();
        }
        // No thread will handle these commands.
        lock(&self.commands).clear();
        Err(error)
    }

    /// How many connections there are, including those that are opening or closing.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many endpoints there are.
    pub(crate) fn count(&self) -> usize {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn connection(&self, key: Key) -> Option<Arc<Connection>> {
        self.resource(key, |resource| match resource {
            Resource::Stream(connection) => Some(connection.clone()),
            _ => None,
        })
    }

    /// The outcome of a send to a key without a route.
    #[cold]
    pub(crate) fn outcome_without_route(&self, key: Key) -> Outcome {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        if resources.issued(key) { Outcome::Closed } else { Outcome::ForeignEndpoint }
    }

    /// How to send to the endpoint with this key.
    #[inline]
    pub(crate) fn route(&self, key: Key) -> Option<Route> {
        self.resource(key, |resource| match resource {
            Resource::Stream(connection) => Some(Route::Stream(connection.clone())),
            Resource::Datagrams(socket) => Some(Route::Datagrams(socket.clone())),
            Resource::Listener(_) => None,
        })
    }

    /// Sends a message: see [`Handle::send`](crate::Handle::send).
    #[inline]
    pub(crate) fn send(&self, to: Endpoint, kind: Kind, message: &[u8]) -> Outcome {
        loop {
            return match self.route(to.key) {
                Some(Route::Stream(connection)) => match connection.send(kind, message) {
                    Ok(Some(Outcome::Full)) => {
                        trace::full(to, &connection);
                        Outcome::Full
                    }
                    Ok(Some(outcome)) => outcome,
                    // Another connection has replaced it.
                    Ok(None) => continue,
                    Err(error) => {
                        let outcome = connection.refused_outcome();
                        self.command(Command::SendFailed(to.key, connection, error));
                        outcome
                    }
                },
                Some(Route::Datagrams(socket)) => socket.send(message, to.remote),
                None => self.outcome_without_route(to.key),
            };
        }
    }

    /// Finds the transport of an address, and the message framing on top of it.
    pub(crate) fn transport(&self, address: &Address) -> Result<(Arc<dyn Transport>, Scheme), Error> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(Error::Gone);
        }
        let (base, scheme) = Scheme::of(address.scheme());
        let transports = self.transports.read().unwrap_or_else(PoisonError::into_inner);
        match transports.get(base) {
            Some(transport) => Ok((transport.clone(), scheme)),
            None => {
                let tls = if transports.contains_key("tls") { Some("wss") } else { None };
                let mut known: Vec<_> = transports.keys().map(String::as_str).chain(["ws"]).chain(tls).collect();
                known.sort_unstable();
                let missing = if cfg!(feature = "tls") { "" } else { "; tls and wss with the feature `tls`" };
                let known = format!("{}; +msg after tcp, unix and the like{missing}", known.join(", "));
                Err(Error::Scheme { address: address.clone(), known })
            }
        }
    }
}
