//! The state that the node's thread shares with all handles.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::Address;
use crate::asleep::Asleep;
use crate::backend::{Registry, WritableSwitch};
use crate::codec::websocket::{Awaited, Opening, Side};
use crate::codec::{Decoder, Kind};
use crate::connection::{Acceptor, BufferTotals, Connection};
use crate::counters::{Counters, Openings, Total};
use crate::datagrams::Socket;
use crate::endpoint_info::EndpointKind;
use crate::error::Error;
use crate::event::{Endpoint, Outcome};
use crate::lifecycle::{Lifecycle, Stage};
use crate::limits::Limits;
pub(crate) use crate::lock::lock;
use crate::lookup::{LookupOwner, Lookups, numeric};
use crate::proxy::Tunnel;
use crate::route::Route;
use crate::scheme::Scheme;
use crate::signals::Signals;
use crate::slab::{Key, Slab};
use crate::trace;
use crate::transport::{
    Datagrams, Found, Link, Listener, Opened, Options, Pending, PendingDatagrams, Transport, WriteInterest,
};
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
    fn counters(&self) -> Counters {
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
    fn accepted_by(&self) -> Option<&Arc<Acceptor>> {
        match self {
            Resource::Stream(connection) => connection.accepted_by.as_ref(),
            Resource::Datagrams(_) | Resource::Listener(_) => None,
        }
    }
}

/// A new connection for the node's thread to serve.
pub(crate) struct NewConnection {
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    pub(crate) origin: Origin,
}

/// Which end of a connection this is.
pub(crate) enum Origin {
    /// This side connects.
    Connecting(Box<Connecting>),
    /// A peer connected to a listener. Its address is noted before a handshake, because the system
    /// does not know it after a reset.
    Accepted { listener: Key, peer: Option<Arc<Address>> },
}

/// The target of a connection. If an attempt fails, the next of `others` is tried.
pub(crate) struct Connecting {
    pub(crate) address: Address,
    pub(crate) others: Vec<SocketAddr>,
    pub(crate) options: Options,
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

/// The peer of a datagram socket, while its name is being resolved.
pub(crate) struct PendingPeer {
    pub(crate) address: Address,
    pub(crate) options: Options,
    pub(crate) found: Found,
}

/// What connecting created.
pub(crate) enum Client {
    Stream(Box<NewConnection>),
    Datagrams(Box<dyn Datagrams>),
}

/// A request to the node's thread.
pub(crate) enum Command {
    Begin(Key, Box<NewConnection>),
    /// The result of a name lookup, and who waits for it.
    Found(Key, LookupOwner, io::Result<Vec<SocketAddr>>),
    Watch(Key),
    /// A datagram socket whose peer's name is being resolved.
    AwaitPeer(Key, Box<PendingPeer>),
    /// Close: write the queue first, within a time limit. The bytes are the payload of a closing
    /// frame.
    Close(Key, Vec<u8>),
    /// Finish: write the queue, then end the sending direction.
    Finish(Key),
    /// Pause (`true`) or resume (`false`) reading.
    Pause(Key, bool),
    /// Close everything, and cut what is left when this time has passed since then.
    Shutdown(Instant, Duration),
    /// A sender got an error of the operating system from this connection.
    SendFailed(Key, Arc<Connection>, io::Error),
}

/// How many closes were requested. The node looks before each message whether there is a new one, so
/// that no message of a closed connection is delivered.
///
/// It has a cache line of its own, which is written by closes only: a look costs one load. The load
/// is relaxed, because the lock of the commands orders what the node does next. A close that another
/// thread requests at the same time may take effect one turn later.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct CloseRequests(AtomicU32);

impl CloseRequests {
    #[inline(always)]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

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
        self.close_requests.0.fetch_add(1, Ordering::Relaxed);
        self.wake();
    }

    /// Requests that every endpoint is closed, and that what is left then is cut.
    pub(crate) fn request_shutdown(&self, within: Duration) {
        self.lifecycle.advance(Stage::ShuttingDown);
        lock(&self.commands).push(Command::Shutdown(Instant::now(), within));
        self.close_requests.0.fetch_add(1, Ordering::Relaxed);
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

    /// The counters of one endpoint.
    pub(crate) fn counters_of(&self, key: Key) -> Option<Counters> {
        let resources = self.resources.read().unwrap_or_else(PoisonError::into_inner);
        let Resource::Listener(bound) = resources.get(key)? else { return resources.get(key).map(Resource::counters) };
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

    fn make(&self, link: Box<dyn Link>, scheme: Scheme, side: Side, half_open: bool) -> Connection {
        Connection::new(link, scheme.framing(side), half_open, &self.limits, self.totals.clone())
    }

    /// Registers a listener with epoll.
    pub(crate) fn watch_listener(&self, listener: &dyn Listener, key: Key) -> io::Result<()> {
        self.registry.add(listener.source(), key.index as usize, false)
    }

    /// Registers a connection with epoll. While it connects, epoll reports writability too, which
    /// shows the result.
    pub(crate) fn watch(&self, connection: &Connection, key: Key, connects: bool) -> io::Result<()> {
        let writable = connects || connection.link.write_interest() == WriteInterest::Always;
        match connection.link.write_interest() {
            WriteInterest::WhilePending => connection.use_writable_switch(self.writable_switch(key), writable, false),
            WriteInterest::AfterWouldBlock if !writable => {
                connection.use_writable_switch(self.writable_switch(key), writable, true)
            }
            _ => {}
        }
        self.registry.add(connection.link.source(), key.index as usize, writable)
    }

    fn writable_switch(&self, key: Key) -> WritableSwitch {
        WritableSwitch::new(self.registry.clone(), key.index as usize)
    }

    /// Creates a connection from an accepted link.
    pub(crate) fn accept(
        &self,
        link: Box<dyn Link>,
        listener: Key,
        bound: &BoundListener,
    ) -> io::Result<(Key, NewConnection)> {
        let BoundListener { scheme, half_open, ref upgrades, .. } = *bound;
        let peer = if scheme == Scheme::WebSocket { link.peer().map(Arc::new) } else { None };
        let mut connection = self.make(link, scheme, Side::Server, half_open);
        connection.accepted_by = Some(bound.acceptor.clone());
        let connection = Arc::new(connection);
        let key = self.insert(Resource::Stream(connection.clone()));
        if let Err(error) = self.watch(&connection, key, false) {
            self.remove(key);
            return Err(error);
        }
        let opening = || {
            let (rules, peer) = (upgrades.clone(), peer.clone());
            Opening::Request(Box::new(Awaited { rules, endpoint: Endpoint::new(key), peer }))
        };
        let decoder = scheme.decoder(Side::Server, opening, &self.limits);
        Ok((key, NewConnection { connection, decoder, origin: Origin::Accepted { listener, peer } }))
    }

    /// What a proxy is asked for, if the options have one.
    ///
    /// # Errors
    ///
    /// If the address cannot be reached through a proxy.
    pub(crate) fn tunnel(&self, address: &Address, options: &Options) -> io::Result<Option<Arc<Tunnel>>> {
        let Some(proxy) = &options.proxy else { return Ok(None) };
        match Scheme::of(address.scheme()).0 {
            "tcp" | "tls" => Tunnel::new(proxy, address).map(Arc::new).map(Some),
            base => {
                let what = format!("Options::proxy is for TCP, TLS and WebSockets, and not for {base}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        }
    }

    /// Starts to connect, to the first address of `to` that the system does not refuse at once.
    pub(crate) fn client(&self, address: &Address, to: Vec<SocketAddr>, options: &Options) -> io::Result<Client> {
        let (transport, scheme) = self.transport(address).map_err(io::Error::other)?;
        let scheme = scheme.with_options(options, &self.limits)?;
        let host = options.host.clone().or_else(|| address.host().map(str::to_owned));
        let tunnel = self.tunnel(address, options)?;
        let options = Options { host, tunnel, ..options.clone() };
        let mut to = to.into_iter();
        let mut place = to.next().map_or_else(|| Ok(address.clone()), |first| numeric(address, first))?;
        let opened = loop {
            match (transport.connect(&place, &options), to.next()) {
                (Ok(opened), next) => {
                    // The loop took one address too many from `to`: put it back.
                    break (opened, next.into_iter().chain(to).collect());
                }
                (Err(error), None) => return Err(error),
                (Err(_), Some(next)) => place = numeric(address, next)?,
            }
        };
        let (link, others) = match opened {
            (Opened::Stream(link), others) => (link, others),
            (Opened::Datagrams(datagrams), _) => return Ok(Client::Datagrams(datagrams)),
        };
        let (opening, request) = match scheme {
            Scheme::WebSocket => {
                let (opening, request) = Opening::request(address, &options)?;
                (Some(opening), request)
            }
            _ => (None, Vec::new()),
        };
        let connection = Arc::new(self.make(link, scheme, Side::Client, options.half_open));
        connection.set_will_reconnect(options.reconnect.is_some());
        connection.first(&request);
        let opening = || opening.expect("a WebSocket has one");
        let decoder = scheme.decoder(Side::Client, opening, &self.limits);
        let origin = Origin::Connecting(Box::new(Connecting { address: address.clone(), others, options }));
        Ok(Client::Stream(Box::new(NewConnection { connection, decoder, origin })))
    }

    /// Connects to the first usable address of `to`.
    pub(crate) fn begin(&self, address: &Address, to: Vec<SocketAddr>, options: &Options) -> io::Result<Key> {
        let begun = match self.client(address, to, options)? {
            Client::Stream(begun) => begun,
            Client::Datagrams(datagrams) => return self.begin_datagrams(datagrams),
        };
        let connection = begun.connection.clone();
        let key = self.insert(Resource::Stream(connection.clone()));
        // The node's thread has to know the connection before epoll reports events for it.
        lock(&self.commands).push(Command::Begin(key, begun));
        if let Err(error) = self.watch(&connection, key, true) {
            self.command(Command::SendFailed(key, connection, error));
        }
        self.wake();
        Ok(key)
    }

    /// Connects to a host whose name is resolved first.
    pub(crate) fn begin_by_name(&self, address: &Address, name: (&str, u16), options: &Options) -> io::Result<Key> {
        if address.scheme() == "udp" {
            return self.begin_datagrams_by_name(address, name, options);
        }
        let begun = self.pending(address, options)?;
        let connection = begun.connection.clone();
        let key = self.insert(Resource::Stream(connection.clone()));
        // As in `begin`: this command comes before that with the result of the lookup.
        lock(&self.commands).push(Command::Begin(key, begun));
        self.look_up(key, LookupOwner::Stream(Arc::downgrade(&connection)), name)
    }

    /// As [`Shared::begin_by_name`], for a datagram socket. A send returns `Full` until the peer is
    /// resolved.
    fn begin_datagrams_by_name(&self, address: &Address, name: (&str, u16), options: &Options) -> io::Result<Key> {
        let found = Found::default();
        let pending = PendingDatagrams::new(found.clone())?;
        let socket = Arc::new(Socket::new(Box::new(pending), self.limits.message));
        let key = self.insert(Resource::Datagrams(socket.clone()));
        socket.use_writable_switch(self.writable_switch(key));
        let pending_peer = PendingPeer { address: address.clone(), options: options.clone(), found };
        lock(&self.commands).push(Command::AwaitPeer(key, Box::new(pending_peer)));
        self.look_up(key, LookupOwner::Datagrams(Arc::downgrade(&socket)), name)
    }

    /// Starts the lookup of a name for an inserted resource.
    fn look_up(&self, key: Key, waiting: LookupOwner, name: (&str, u16)) -> io::Result<Key> {
        if let Err(error) = self.lookups.begin(key, waiting, name) {
            self.remove(key);
            return Err(error);
        }
        self.wake();
        Ok(key)
    }

    /// Creates a placeholder connection that queues messages until there is a real one.
    fn pending(&self, address: &Address, options: &Options) -> io::Result<Box<NewConnection>> {
        let (_, scheme) = self.transport(address).map_err(io::Error::other)?;
        let scheme = scheme.with_options(options, &self.limits)?;
        let connection = Arc::new(self.make(Box::new(Pending::new()?), scheme, Side::Client, options.half_open));
        connection.set_will_reconnect(options.reconnect.is_some());
        // This decoder is never used: the real connection has its own.
        let decoder = scheme.decoder(Side::Client, || Opening::Answer(Box::default()), &self.limits);
        let (address, options) = (address.clone(), options.clone());
        let origin = Origin::Connecting(Box::new(Connecting { address, others: Vec::new(), options }));
        Ok(Box::new(NewConnection { connection, decoder, origin }))
    }

    /// Starts a new attempt, in the place of a connection that could not connect or was lost.
    pub(crate) fn begin_replacement(
        &self,
        (key, before): (Key, &Connection),
        address: &Address,
        to: Vec<SocketAddr>,
        options: &Options,
    ) -> io::Result<Box<NewConnection>> {
        let Client::Stream(begun) = self.client(address, to, options)? else {
            return Err(io::Error::other("a datagram transport has no connection to open later"));
        };
        self.replace(key, before, &begun.connection);
        Ok(begun)
    }

    /// Puts a placeholder in the place of a lost connection until it reconnects. Returns how many
    /// accepted bytes were not written.
    pub(crate) fn begin_placeholder(
        &self,
        (key, before): (Key, &Connection),
        address: &Address,
        options: &Options,
    ) -> io::Result<(Box<NewConnection>, usize)> {
        let begun = self.pending(address, options)?;
        let unwritten = self.replace(key, before, &begun.connection);
        Ok((begun, unwritten))
    }

    /// Puts one connection in the place of another. Returns how many accepted bytes of the old one
    /// were not written.
    fn replace(&self, key: Key, before: &Connection, connection: &Arc<Connection>) -> usize {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.replace(key, Resource::Stream(connection.clone()));
        // A sender that finds the old one replaced finds the new one under its key.
        before.move_to_successor(connection)
    }

    pub(crate) fn begin_datagrams(&self, datagrams: Box<dyn Datagrams>) -> io::Result<Key> {
        let most = datagrams.most().min(self.limits.message);
        let socket = Arc::new(Socket::new(datagrams, most));
        let key = self.insert(Resource::Datagrams(socket.clone()));
        let on_request = socket.datagrams.room_on_request();
        if on_request {
            socket.use_writable_switch(self.writable_switch(key));
        }
        lock(&self.commands).push(Command::Watch(key));
        if let Err(error) = self.registry.add(socket.datagrams.source(), key.index as usize, !on_request) {
            self.remove(key);
            return Err(error);
        }
        self.wake();
        Ok(key)
    }
}
