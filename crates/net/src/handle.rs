//! What any thread can do with a node.

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::address::literal;
use crate::backend::Registry;
use crate::batch::{Batch, Way};
use crate::codec::length::LengthDecoder;
use crate::codec::websocket::{Close, Opening, Side, WebSocketDecoder};
use crate::codec::{Decoder, Framing, Kind};
use crate::connection::{Connection, Holdings};
use crate::event::{Endpoint, Outcome};
use crate::limits::Limits;
use crate::slab::{Key, Slab};
use crate::transport::{Datagrams, Link, Listener, Listening, Opened, Options, Transport};
use crate::{Address, AddressError};

/// Why nothing was begun.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be read.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No transport has this scheme.
    #[error("no transport has the scheme of {address}; there are {known}")]
    Scheme {
        /// What was asked for.
        address: Address,
        /// Every scheme that the node knows.
        known: String,
    },
    /// As many connections are there as [`Limits::connections`] allows.
    #[error("{0} connections are there, and that is the most: Limits::connections")]
    TooMany(usize),
    /// The system refused.
    #[error("{doing} {address}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Error {
        match never {}
    }
}

/// What a key names.
pub(crate) enum Resource {
    Stream(Arc<Connection>),
    Datagrams(Arc<Socket>),
    Listener(Arc<dyn Listener>, Scheme),
}

/// A socket of datagrams, and whether a sender waits for room.
pub(crate) struct Socket {
    pub(crate) datagrams: Box<dyn Datagrams>,
    pub(crate) owes_drained: AtomicBool,
    most: usize,
}

/// A connection that the node's thread is to look after.
pub(crate) struct Begun {
    pub(crate) key: Key,
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    pub(crate) how: How,
}

/// Which end of a connection this is.
pub(crate) enum How {
    /// It was asked for here. If it does not come about, the next of these is tried.
    Connecting { address: Address, others: Vec<SocketAddr>, options: Box<Options> },
    /// A peer came to this listener.
    Accepted(Key),
}

/// What the node's thread is asked to do.
pub(crate) enum Command {
    Begin(Box<Begun>),
    Watch(Key),
    /// Everything that waits is written, then it is closed, in time.
    Close(Key, Vec<u8>),
    /// The system reported an error to a sender.
    Broken(Key, io::Error),
}

/// Signals that wait.
pub(crate) struct Signals<S> {
    pub(crate) urgent: VecDeque<S>,
    pub(crate) usual: VecDeque<S>,
    pub(crate) timed: BinaryHeap<Timed<S>>,
    count: u64,
}

/// A signal for later: the earliest is the greatest, and of two at one time the one that was given first.
pub(crate) struct Timed<S> {
    pub(crate) at: Instant,
    order: u64,
    pub(crate) signal: S,
}

impl<S> PartialEq for Timed<S> {
    fn eq(&self, other: &Timed<S>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<S> Eq for Timed<S> {}

impl<S> PartialOrd for Timed<S> {
    fn partial_cmp(&self, other: &Timed<S>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> Ord for Timed<S> {
    fn cmp(&self, other: &Timed<S>) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// How messages lie in a stream, and the transport beneath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Raw,
    Length,
    WebSocket,
}

impl Scheme {
    /// The name of the transport beneath, and what lies on it.
    fn of(scheme: &str) -> (&str, Scheme) {
        match scheme {
            "ws" => ("tcp", Scheme::WebSocket),
            "wss" => ("tls", Scheme::WebSocket),
            _ => match scheme.strip_suffix("+msg") {
                Some(beneath) => (beneath, Scheme::Length),
                None => (scheme, Scheme::Raw),
            },
        }
    }

    fn framing(self, side: Side) -> Framing {
        match self {
            Scheme::Raw => Framing::Raw,
            Scheme::Length => Framing::Length,
            Scheme::WebSocket => Framing::WebSocket(side),
        }
    }

    /// What reads a connection of this end.
    fn decoder(self, side: Side, opening: Opening, limits: &Limits) -> Decoder {
        match self {
            Scheme::Raw => Decoder::Raw,
            Scheme::Length => Decoder::Length(LengthDecoder::new(limits.message)),
            Scheme::WebSocket => {
                Decoder::WebSocket(Box::new(WebSocketDecoder::new(side, opening, limits.message, limits.parts)))
            }
        }
    }

    /// The address of an endpoint of this scheme, from that of the transport beneath.
    fn address(self, beneath: &Address) -> Option<Address> {
        let text = beneath.to_string();
        match (self, text.split_once("://")?) {
            (Scheme::Raw, _) => Some(beneath.clone()),
            (Scheme::Length, (scheme, rest)) => format!("{scheme}+msg://{rest}").parse().ok(),
            (Scheme::WebSocket, ("tls", rest)) => format!("wss://{rest}").parse().ok(),
            (Scheme::WebSocket, (_, rest)) => format!("ws://{rest}").parse().ok(),
        }
    }
}

/// What the node's thread and all handles share.
pub(crate) struct Shared<S> {
    pub(crate) limits: Limits,
    pub(crate) transports: RwLock<HashMap<String, Arc<dyn Transport>>>,
    pub(crate) resources: RwLock<Slab<Resource>>,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) registry: Registry,
    pub(crate) commands: Mutex<Vec<Command>>,
    pub(crate) signals: Mutex<Signals<S>>,
    /// Set by the node's thread before it goes to sleep, cleared by whoever wakes it.
    pub(crate) asleep: AtomicBool,
    pub(crate) stopped: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is a queue that a panic leaves whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Shared<S> {
    pub(crate) fn new(
        limits: Limits,
        registry: Registry,
        transports: HashMap<String, Arc<dyn Transport>>,
    ) -> Shared<S> {
        let signals = Signals { urgent: VecDeque::new(), usual: VecDeque::new(), timed: BinaryHeap::new(), count: 0 };
        Shared {
            limits,
            transports: RwLock::new(transports),
            resources: RwLock::new(Slab::new()),
            holdings: Arc::default(),
            registry,
            commands: Mutex::default(),
            signals: Mutex::new(signals),
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// Wakes the node's thread if it sleeps, or is about to. What it is to see was put into its queue before.
    fn wake(&self) {
        // Pairs with `Node::sleep`: it says that it sleeps, then looks into the queues; we fill the queues, then ask whether it
        // sleeps. Both orders are total, so at least one of us sees the other.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.registry.wake();
        }
    }

    pub(crate) fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        self.wake();
    }

    fn resource<T>(&self, key: Key, get: impl FnOnce(&Resource) -> Option<T>) -> Option<T> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).get(key).and_then(get)
    }

    pub(crate) fn insert(&self, resource: Resource) -> Key {
        self.resources.write().unwrap_or_else(PoisonError::into_inner).insert_with(|_| resource)
    }

    pub(crate) fn remove(&self, key: Key) -> Option<Resource> {
        self.resources.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    pub(crate) fn count(&self) -> usize {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn connection(&self, key: Key) -> Option<Arc<Connection>> {
        self.resource(key, |resource| match resource {
            Resource::Stream(connection) => Some(connection.clone()),
            _ => None,
        })
    }

    /// How something is sent to what a key names.
    #[inline]
    pub(crate) fn way(&self, key: Key) -> Option<Way> {
        self.resource(key, |resource| match resource {
            Resource::Stream(connection) => Some(Way::Stream(connection.clone())),
            Resource::Datagrams(socket) => Some(Way::Datagrams(socket.clone())),
            Resource::Listener(..) => None,
        })
    }

    /// The transport of an address, and what lies on it.
    fn transport(&self, address: &Address) -> Result<(Arc<dyn Transport>, Scheme), Error> {
        let (beneath, scheme) = Scheme::of(address.scheme());
        let transports = self.transports.read().unwrap_or_else(PoisonError::into_inner);
        match transports.get(beneath) {
            Some(transport) => Ok((transport.clone(), scheme)),
            None => {
                let tls = if transports.contains_key("tls") { Some("wss") } else { None };
                let mut known: Vec<_> = transports.keys().map(String::as_str).chain(["ws"]).chain(tls).collect();
                known.sort_unstable();
                Err(Error::Scheme { address: address.clone(), known: known.join(", ") })
            }
        }
    }

    fn make(&self, link: Box<dyn Link>, scheme: Scheme, side: Side) -> Arc<Connection> {
        Arc::new(Connection::new(link, scheme.framing(side), &self.limits, self.holdings.clone()))
    }

    fn watch(&self, source: BorrowedFd<'_>, key: Key) -> io::Result<()> {
        self.registry.add(source, key.index as usize)
    }

    /// Makes a connection of what a listener accepted.
    pub(crate) fn accept(&self, link: Box<dyn Link>, listener: Key, scheme: Scheme) -> io::Result<Begun> {
        let connection = self.make(link, scheme, Side::Server);
        let key = self.insert(Resource::Stream(connection.clone()));
        if let Err(error) = self.watch(connection.link.source(), key) {
            self.remove(key);
            return Err(error);
        }
        let decoder = scheme.decoder(Side::Server, Opening::Request, &self.limits);
        Ok(Begun { key, connection, decoder, how: How::Accepted(listener) })
    }

    /// Connects to the first of `to`; in the place of `instead`, if that did not come about.
    pub(crate) fn begin(
        &self,
        address: &Address,
        to: Vec<SocketAddr>,
        options: &Options,
        instead: Option<(Key, &Arc<Connection>)>,
    ) -> io::Result<Key> {
        let (transport, scheme) = self.transport(address).map_err(io::Error::other)?;
        let options = &Options { host: address.host().map(str::to_owned), ..options.clone() };
        let mut to = to.into_iter();
        let mut place = to.next().map_or_else(|| Ok(address.clone()), |first| numeric(address, first))?;
        let opened = loop {
            match (transport.connect(&place, options), to.next()) {
                (Ok(opened), next) => {
                    // What was taken too early.
                    break (opened, next.into_iter().chain(to).collect());
                }
                (Err(error), None) => return Err(error),
                (Err(_), Some(next)) => place = numeric(address, next)?,
            }
        };
        let (link, others) = match opened {
            (Opened::Stream(link), others) => (link, others),
            (Opened::Datagrams(datagrams), _) => return self.begin_datagrams(datagrams),
        };
        let (opening, request) = match scheme {
            Scheme::WebSocket => Opening::request(&address.authority(), address.target())?,
            _ => (Opening::Request, Vec::new()),
        };
        let connection = self.make(link, scheme, Side::Client);
        let key = match instead {
            Some((key, before)) => {
                let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
                resources.replace(key, Resource::Stream(connection.clone()));
                before.hand_over(&connection);
                key
            }
            None => self.insert(Resource::Stream(connection.clone())),
        };
        connection.first(&request);
        let decoder = scheme.decoder(Side::Client, opening, &self.limits);
        let how = How::Connecting { address: address.clone(), others, options: Box::new(options.clone()) };
        let begun = Begun { key, connection: connection.clone(), decoder, how };
        // The node's thread has to know of it before epoll tells of it.
        lock(&self.commands).push(Command::Begin(Box::new(begun)));
        if let Err(error) = self.watch(connection.link.source(), key) {
            self.command(Command::Broken(key, error));
        }
        self.wake();
        Ok(key)
    }

    fn begin_datagrams(&self, datagrams: Box<dyn Datagrams>) -> io::Result<Key> {
        let most = datagrams.most().min(self.limits.message);
        let socket = Arc::new(Socket { datagrams, owes_drained: AtomicBool::new(false), most });
        let key = self.insert(Resource::Datagrams(socket.clone()));
        lock(&self.commands).push(Command::Watch(key));
        if let Err(error) = self.watch(socket.datagrams.source(), key) {
            self.remove(key);
            return Err(error);
        }
        self.wake();
        Ok(key)
    }
}

/// The address with a host that needs no resolver.
fn numeric(address: &Address, to: SocketAddr) -> io::Result<Address> {
    format!("{}://{to}", address.scheme()).parse().map_err(io::Error::other)
}

impl Socket {
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Sends datagrams that lie one after the other. How many were sent, their bytes, and what became of the next.
    pub(crate) fn send_many(&self, bytes: &[u8], lengths: &[usize], to: Option<SocketAddr>) -> (usize, usize, Outcome) {
        let mut at = 0;
        for (sent, length) in lengths.iter().enumerate() {
            match self.send(&bytes[at..at + length], to) {
                Outcome::Full => return (sent, at, Outcome::Full),
                // One that the system does not send is gone, as a datagram may be; the others are tried.
                _ => at += length,
            }
        }
        (lengths.len(), at, Outcome::Sent)
    }

    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> Outcome {
        if datagram.len() > self.most {
            return Outcome::TooLarge;
        }
        let mut last_try = false;
        loop {
            match self.datagrams.send(datagram, to) {
                Ok(()) => return Outcome::Sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if last_try {
                        return Outcome::Full;
                    }
                    // Once more, as the node's thread may have been told of room just before it could know that we wait.
                    self.owes_drained.store(true, Ordering::SeqCst);
                    last_try = true;
                }
                // Somebody did not listen to an earlier one, which says nothing of this.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !last_try => last_try = true,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                    return Outcome::TooLarge;
                }
                Err(error) => return Outcome::Refused(error.kind()),
            }
        }
    }
}

/// A way to a node, for any thread. Clones are ways to the same.
///
/// Nothing here waits for the network.
pub struct Handle<S = ()> {
    pub(crate) shared: Arc<Shared<S>>,
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Handle<S> {
        Handle { shared: self.shared.clone() }
    }
}

impl<S> fmt::Debug for Handle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("endpoints", &self.shared.count()).finish_non_exhaustive()
    }
}

impl<S> Handle<S> {
    /// Listens at an address. For datagrams the endpoint is the socket, from which nothing can be sent but to a peer whose
    /// message came.
    ///
    /// # Errors
    ///
    /// If the address cannot be read, or the system does not let us listen there.
    pub fn listen<A: TryInto<Address>>(&self, address: A) -> Result<Endpoint, Error>
    where
        Error: From<A::Error>,
    {
        self.listen_with(address, &Options::default())
    }

    /// As [`Handle::listen`], with options for the listener and the connections it accepts.
    ///
    /// # Errors
    ///
    /// As [`Handle::listen`].
    pub fn listen_with<A: TryInto<Address>>(&self, address: A, options: &Options) -> Result<Endpoint, Error>
    where
        Error: From<A::Error>,
    {
        let address: Address = address.try_into()?;
        let (transport, scheme) = self.shared.transport(&address)?;
        let failed = |source| Error::Io { doing: "listening at", address: address.clone(), source };
        let to = resolve(&address).map_err(failed)?;
        let place = match to.first() {
            Some(first) => numeric(&address, *first).map_err(failed)?,
            None => address.clone(),
        };
        let key = match transport.listen(&place, options).map_err(failed)? {
            Listening::Datagrams(datagrams) => self.shared.begin_datagrams(datagrams).map_err(failed)?,
            Listening::Streams(listener) => {
                let listener: Arc<dyn Listener> = listener.into();
                let key = self.shared.insert(Resource::Listener(listener.clone(), scheme));
                lock(&self.shared.commands).push(Command::Watch(key));
                if let Err(error) = self.shared.watch(listener.source(), key) {
                    self.shared.remove(key);
                    listener.close();
                    return Err(failed(error));
                }
                self.shared.wake();
                key
            }
        };
        Ok(Endpoint::new(key))
    }

    /// Begins to connect. `Connected` tells that the connection is there, `Closed` that it did not come about. What is sent
    /// before waits, within limits. A socket of datagrams is there at once, and has no such event.
    ///
    /// A host's name is looked up on this thread, which may take time; numbers are not.
    ///
    /// # Errors
    ///
    /// If the address cannot be read, a name is not known, or the system refuses at once.
    pub fn connect<A: TryInto<Address>>(&self, address: A) -> Result<Endpoint, Error>
    where
        Error: From<A::Error>,
    {
        self.connect_with(address, &Options::default())
    }

    /// As [`Handle::connect`], with options.
    ///
    /// # Errors
    ///
    /// As [`Handle::connect`].
    pub fn connect_with<A: TryInto<Address>>(&self, address: A, options: &Options) -> Result<Endpoint, Error>
    where
        Error: From<A::Error>,
    {
        let address: Address = address.try_into()?;
        self.shared.transport(&address)?;
        let most = self.shared.limits.connections;
        if self.shared.count() >= most {
            return Err(Error::TooMany(most));
        }
        let failed = |source| Error::Io { doing: "connecting to", address: address.clone(), source };
        let to = resolve(&address).map_err(failed)?;
        self.shared.begin(&address, to, options, None).map(Endpoint::new).map_err(failed)
    }

    /// Sends a message, whole or not at all, and never waits.
    ///
    /// Messages of one thread to one endpoint keep their order. A message that was taken is lost only if the connection ends
    /// before the peer has it.
    pub fn send(&self, to: Endpoint, message: &[u8]) -> Outcome {
        self.send_kind(to, Kind::Binary, message)
    }

    /// As [`Handle::send`]; to the peer of a WebSocket it is a message of text.
    pub fn send_text(&self, to: Endpoint, message: &str) -> Outcome {
        self.send_kind(to, Kind::Text, message.as_bytes())
    }

    #[inline]
    fn send_kind(&self, to: Endpoint, kind: Kind, message: &[u8]) -> Outcome {
        match self.shared.way(to.key) {
            Some(Way::Stream(connection)) => connection.send(kind, message).unwrap_or_else(|error| {
                self.shared.command(Command::Broken(to.key, error));
                Outcome::Closed
            }),
            Some(Way::Datagrams(socket)) => socket.send(message, to.remote),
            None => Outcome::Closed,
        }
    }

    /// Collects messages, to be sent together: many small ones are several times faster so.
    pub fn batch(&self, to: Endpoint) -> Batch<S> {
        Batch::new(self, to)
    }

    /// Closes a connection, a listener or a socket. What waits at a connection is written first, for at most
    /// [`Limits::flush`], or once the connection has come about; then `Closed` is told. What the peer sends meanwhile is not.
    ///
    /// A peer of a socket that has several has nothing that could be closed: nothing happens.
    pub fn close(&self, endpoint: Endpoint) {
        self.close_with(endpoint, &Close { code: Some(1000), reason: String::new() });
    }

    /// As [`Handle::close`], telling the peer of a WebSocket why. A reason of more than 123 bytes is cut.
    pub fn close_with(&self, endpoint: Endpoint, why: &Close) {
        if endpoint.remote.is_none() {
            self.shared.command(Command::Close(endpoint.key, why.payload()));
        }
    }

    /// The address of this end, with the port that the system chose.
    pub fn local_address(&self, endpoint: Endpoint) -> Option<Address> {
        self.shared.resource(endpoint.key, |resource| match resource {
            Resource::Stream(connection) => connection.link.local(),
            Resource::Datagrams(socket) => socket.datagrams.local(),
            Resource::Listener(listener, scheme) => scheme.address(&listener.local()?),
        })
    }

    /// The address of the peer, by the transport beneath.
    pub fn peer_address(&self, endpoint: Endpoint) -> Option<Address> {
        match endpoint.remote {
            Some(remote) => format!("udp://{remote}").parse().ok(),
            None => self.shared.connection(endpoint.key)?.link.peer(),
        }
    }

    /// Puts a signal behind the events that are there.
    pub fn signal(&self, signal: S) {
        lock(&self.shared.signals).usual.push_back(signal);
        self.shared.wake();
    }

    /// Puts a signal before everything that the node has not begun to tell.
    pub fn signal_first(&self, signal: S) {
        lock(&self.shared.signals).urgent.push_back(signal);
        self.shared.wake();
    }

    /// Gives the node a signal later; never early, and two in the order of their times.
    pub fn signal_after(&self, delay: Duration, signal: S) {
        let mut signals = lock(&self.shared.signals);
        signals.count += 1;
        // Some two hundred years hence are as good as never.
        let at = Instant::now() + delay.min(Duration::from_secs(1 << 32));
        let order = signals.count;
        signals.timed.push(Timed { at, order, signal });
        drop(signals);
        self.shared.wake();
    }

    /// Makes [`Node::run`](crate::Node::run) return after the event that it is telling.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.wake();
    }
}

/// The addresses of a host that is a name; none where nothing is to be looked up.
fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    let (Some(host), Some(port)) = (address.host(), address.port()) else { return Ok(Vec::new()) };
    if let Some(ip) = literal(host) {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let found: Vec<_> = (host, port).to_socket_addrs()?.collect();
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")));
    }
    Ok(found)
}
