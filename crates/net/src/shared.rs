//! What the node's thread and all handles share.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::Address;
use crate::asleep::Asleep;
use crate::backend::{Registry, Room};
use crate::batch::Way;
use crate::codec::Decoder;
use crate::codec::websocket::{Opening, Side};
use crate::connection::{Connection, Holdings};
use crate::datagrams::Socket;
use crate::handle::Error;
use crate::limits::Limits;
use crate::lookup::{Lookups, Waiting, numeric};
use crate::scheme::Scheme;
use crate::signals::Signals;
use crate::slab::{Key, Slab};
use crate::transport::{
    Datagrams, Found, Link, Listener, Opened, Options, Pending, PendingDatagrams, TellsOfRoom, Transport,
};

/// What a key names.
pub(crate) enum Resource {
    Stream(Arc<Connection>),
    Datagrams(Arc<Socket>),
    Listener(Arc<Door>),
}

/// A connection that the node's thread is to look after.
pub(crate) struct Begun {
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    pub(crate) how: How,
}

/// Which end of a connection this is.
pub(crate) enum How {
    /// It was asked for here.
    Connecting(Box<Connecting>),
    /// A peer came to this listener.
    Accepted(Key),
}

/// Where a connection is to lead. If it does not come about, the next of the others is tried.
pub(crate) struct Connecting {
    pub(crate) address: Address,
    pub(crate) others: Vec<SocketAddr>,
    pub(crate) options: Options,
}

/// A place where peers connect, and how messages lie in what they send.
pub(crate) struct Door {
    pub(crate) listener: Box<dyn Listener>,
    pub(crate) scheme: Scheme,
    pub(crate) half_open: bool,
}

/// The peer of a socket of datagrams, while its name is looked up.
pub(crate) struct Sought {
    pub(crate) address: Address,
    pub(crate) options: Options,
    pub(crate) found: Found,
}

/// The end of a client.
pub(crate) enum Client {
    Stream(Box<Begun>),
    Datagrams(Box<dyn Datagrams>),
}

/// What the node's thread is asked to do.
pub(crate) enum Command {
    Begin(Key, Box<Begun>),
    /// The addresses of a host, and who waits for them.
    Found(Key, Waiting, io::Result<Vec<SocketAddr>>),
    Watch(Key),
    /// A socket of datagrams whose peer has a name, which is being looked up.
    Seek(Key, Box<Sought>),
    /// Everything that waits is written, then it is closed, in time.
    Close(Key, Vec<u8>),
    /// Everything that waits is written, then the peer is told that no more comes.
    Finish(Key),
    /// Nothing is read for now, or it is again.
    Pause(Key, bool),
    /// The system reported an error to a sender by this connection.
    Broken(Key, Arc<Connection>, io::Error),
}

/// All of it.
pub(crate) struct Shared<S> {
    pub(crate) limits: Limits,
    pub(crate) transports: RwLock<HashMap<String, Arc<dyn Transport>>>,
    pub(crate) resources: RwLock<Slab<Resource>>,
    pub(crate) holdings: Arc<Holdings>,
    pub(crate) registry: Arc<dyn Registry>,
    pub(crate) commands: Arc<Mutex<Vec<Command>>>,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) signals: Mutex<Signals<S>>,
    pub(crate) asleep: Asleep,
    pub(crate) stopped: AtomicBool,
    /// The node was dropped: nobody looks after anything any more.
    pub(crate) gone: AtomicBool,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind these locks is a queue that a panic leaves whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> Shared<S> {
    pub(crate) fn new(
        limits: Limits,
        registry: Arc<dyn Registry>,
        transports: HashMap<String, Arc<dyn Transport>>,
    ) -> Shared<S> {
        let commands = Arc::default();
        Shared {
            lookups: Arc::new(Lookups::new(Arc::clone(&commands), registry.clone())),
            limits,
            transports: RwLock::new(transports),
            resources: RwLock::new(Slab::new()),
            holdings: Arc::default(),
            registry,
            commands,
            signals: Mutex::new(Signals::new()),
            asleep: Asleep::new(),
            stopped: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        }
    }

    /// Wakes the node's thread if it sleeps, or is about to. What it is to see was put into its queue before.
    pub(crate) fn wake(&self) {
        if self.asleep.must_wake() {
            self.registry.wake();
        }
    }

    pub(crate) fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        self.wake();
    }

    pub(crate) fn resource<T>(&self, key: Key, get: impl FnOnce(&Resource) -> Option<T>) -> Option<T> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).get(key).and_then(get)
    }

    pub(crate) fn insert(&self, resource: Resource) -> Key {
        self.resources.write().unwrap_or_else(PoisonError::into_inner).insert_with(|_| resource)
    }

    pub(crate) fn remove(&self, key: Key) -> Option<Resource> {
        self.resources.write().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// What was just begun, unless the node went meanwhile, and may not see it: then nothing stays of it.
    pub(crate) fn unless_gone(&self, key: Key) -> Result<Key, Error> {
        if !self.gone.load(Ordering::SeqCst) {
            return Ok(key);
        }
        if let Some(Resource::Listener(door)) = self.remove(key) {
            door.listener.close();
        }
        // Nobody will do what it says.
        lock(&self.commands).clear();
        Err(Error::Gone)
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
            Resource::Listener(_) => None,
        })
    }

    /// The transport of an address, and what lies on it.
    pub(crate) fn transport(&self, address: &Address) -> Result<(Arc<dyn Transport>, Scheme), Error> {
        if self.gone.load(Ordering::SeqCst) {
            return Err(Error::Gone);
        }
        let (beneath, scheme) = Scheme::of(address.scheme());
        let transports = self.transports.read().unwrap_or_else(PoisonError::into_inner);
        match transports.get(beneath) {
            Some(transport) => Ok((transport.clone(), scheme)),
            None => {
                let tls = if transports.contains_key("tls") { Some("wss") } else { None };
                let mut known: Vec<_> = transports.keys().map(String::as_str).chain(["ws"]).chain(tls).collect();
                known.sort_unstable();
                let missing = if cfg!(feature = "tls") { "" } else { "; tls and wss with the feature `tls`" };
                let known = format!("{}; +msg behind tcp, unix and the like{missing}", known.join(", "));
                Err(Error::Scheme { address: address.clone(), known })
            }
        }
    }

    fn make(&self, link: Box<dyn Link>, scheme: Scheme, side: Side, half_open: bool) -> Arc<Connection> {
        Arc::new(Connection::new(link, scheme.framing(side), half_open, &self.limits, self.holdings.clone()))
    }

    /// Has epoll tell of a listener.
    pub(crate) fn watch_listener(&self, listener: &dyn Listener, key: Key) -> io::Result<()> {
        self.registry.add(listener.source(), key.index as usize, false)
    }

    /// Has epoll tell of a connection; of room, if that tells whether it has connected.
    pub(crate) fn watch(&self, connection: &Connection, key: Key, connects: bool) -> io::Result<()> {
        let room = connects || connection.link.tells_of_room() == TellsOfRoom::Always;
        match connection.link.tells_of_room() {
            TellsOfRoom::WhileAsked => connection.asks_for(self.room(key), room, false),
            TellsOfRoom::OnceAsked if !room => connection.asks_for(self.room(key), room, true),
            _ => {}
        }
        self.registry.add(connection.link.source(), key.index as usize, room)
    }

    fn room(&self, key: Key) -> Room {
        Room::new(self.registry.clone(), key.index as usize)
    }

    /// Makes a connection of what a listener accepted.
    pub(crate) fn accept(&self, link: Box<dyn Link>, listener: Key, door: &Door) -> io::Result<(Key, Begun)> {
        let Door { scheme, half_open, .. } = *door;
        let connection = self.make(link, scheme, Side::Server, half_open);
        let key = self.insert(Resource::Stream(connection.clone()));
        if let Err(error) = self.watch(&connection, key, false) {
            self.remove(key);
            return Err(error);
        }
        let decoder = scheme.decoder(Side::Server, Opening::Request, &self.limits);
        Ok((key, Begun { connection, decoder, how: How::Accepted(listener) }))
    }

    /// Makes the end of a client, connecting to the first of `to` that the system does not refuse at once.
    pub(crate) fn client(&self, address: &Address, to: Vec<SocketAddr>, options: &Options) -> io::Result<Client> {
        let (transport, scheme) = self.transport(address).map_err(io::Error::other)?;
        let scheme = scheme.told_by(options, &self.limits)?;
        let host = options.host.clone().or_else(|| address.host().map(str::to_owned));
        let options = Options { host, ..options.clone() };
        let mut to = to.into_iter();
        let mut place = to.next().map_or_else(|| Ok(address.clone()), |first| numeric(address, first))?;
        let opened = loop {
            match (transport.connect(&place, &options), to.next()) {
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
            (Opened::Datagrams(datagrams), _) => return Ok(Client::Datagrams(datagrams)),
        };
        let (opening, request) = match scheme {
            Scheme::WebSocket => Opening::request(&address.authority(), address.target())?,
            _ => (Opening::Request, Vec::new()),
        };
        let connection = self.make(link, scheme, Side::Client, options.half_open);
        connection.set_returns(options.reconnect.is_some());
        connection.first(&request);
        let decoder = scheme.decoder(Side::Client, opening, &self.limits);
        let how = How::Connecting(Box::new(Connecting { address: address.clone(), others, options }));
        Ok(Client::Stream(Box::new(Begun { connection, decoder, how })))
    }

    /// Connects to the first of `to`.
    pub(crate) fn begin(&self, address: &Address, to: Vec<SocketAddr>, options: &Options) -> io::Result<Key> {
        let begun = match self.client(address, to, options)? {
            Client::Stream(begun) => begun,
            Client::Datagrams(datagrams) => return self.begin_datagrams(datagrams),
        };
        let connection = begun.connection.clone();
        let key = self.insert(Resource::Stream(connection.clone()));
        // The node's thread has to know of it before epoll tells of it.
        lock(&self.commands).push(Command::Begin(key, begun));
        if let Err(error) = self.watch(&connection, key, true) {
            self.command(Command::Broken(key, connection, error));
        }
        self.wake();
        Ok(key)
    }

    /// Connects to a host whose name is looked up first.
    pub(crate) fn begin_by_name(&self, address: &Address, name: (&str, u16), options: &Options) -> io::Result<Key> {
        if address.scheme() == "udp" {
            return self.begin_datagrams_by_name(address, name, options);
        }
        let begun = self.pending(address, options)?;
        let connection = begun.connection.clone();
        let key = self.insert(Resource::Stream(connection.clone()));
        // As in `begin`: what was found comes after it.
        lock(&self.commands).push(Command::Begin(key, begun));
        self.look_up(key, Waiting::Stream(Arc::downgrade(&connection)), name)
    }

    /// As [`Shared::begin_by_name`]: a socket that has no room until it is known where its peer is.
    fn begin_datagrams_by_name(&self, address: &Address, name: (&str, u16), options: &Options) -> io::Result<Key> {
        let found = Found::default();
        let pending = PendingDatagrams::new(found.clone())?;
        let socket = Arc::new(Socket::new(Box::new(pending), self.limits.message));
        let key = self.insert(Resource::Datagrams(socket.clone()));
        socket.asks_for(self.room(key));
        let sought = Sought { address: address.clone(), options: options.clone(), found };
        lock(&self.commands).push(Command::Seek(key, Box::new(sought)));
        self.look_up(key, Waiting::Datagrams(Arc::downgrade(&socket)), name)
    }

    /// Has a name looked up for what was put there.
    fn look_up(&self, key: Key, waiting: Waiting, name: (&str, u16)) -> io::Result<Key> {
        if let Err(error) = self.lookups.begin(key, waiting, name) {
            self.remove(key);
            return Err(error);
        }
        self.wake();
        Ok(key)
    }

    /// Makes what takes messages for a connection before there is any.
    fn pending(&self, address: &Address, options: &Options) -> io::Result<Box<Begun>> {
        let (_, scheme) = self.transport(address).map_err(io::Error::other)?;
        let scheme = scheme.told_by(options, &self.limits)?;
        let connection = self.make(Box::new(Pending::new()?), scheme, Side::Client, options.half_open);
        connection.set_returns(options.reconnect.is_some());
        // Another decoder will read what comes.
        let decoder = scheme.decoder(Side::Client, Opening::Request, &self.limits);
        let (address, options) = (address.clone(), options.clone());
        let how = How::Connecting(Box::new(Connecting { address, others: Vec::new(), options }));
        Ok(Box::new(Begun { connection, decoder, how }))
    }

    /// Connects to the first of `to`, in the place of a connection that did not come about.
    pub(crate) fn begin_instead(
        &self,
        (key, before): (Key, &Connection),
        address: &Address,
        to: Vec<SocketAddr>,
        options: &Options,
    ) -> io::Result<Box<Begun>> {
        let Client::Stream(begun) = self.client(address, to, options)? else {
            return Err(io::Error::other("a transport of datagrams has no connection that could be made later"));
        };
        self.replace(key, before, &begun.connection);
        Ok(begun)
    }

    /// Takes messages in the place of a connection that was lost, until it is made again. How many bytes were not written.
    pub(crate) fn wait_instead(
        &self,
        (key, before): (Key, &Connection),
        address: &Address,
        options: &Options,
    ) -> io::Result<(Box<Begun>, usize)> {
        let begun = self.pending(address, options)?;
        let unwritten = self.replace(key, before, &begun.connection);
        Ok((begun, unwritten))
    }

    /// Puts a connection in the place of another. How many bytes of that one's were not written.
    fn replace(&self, key: Key, before: &Connection, connection: &Arc<Connection>) -> usize {
        let mut resources = self.resources.write().unwrap_or_else(PoisonError::into_inner);
        resources.replace(key, Resource::Stream(connection.clone()));
        // Who finds that it has moved finds the other in its place.
        before.hand_over(connection)
    }

    pub(crate) fn begin_datagrams(&self, datagrams: Box<dyn Datagrams>) -> io::Result<Key> {
        let most = datagrams.most().min(self.limits.message);
        let socket = Arc::new(Socket::new(datagrams, most));
        let key = self.insert(Resource::Datagrams(socket.clone()));
        let on_request = socket.datagrams.room_on_request();
        if on_request {
            socket.asks_for(self.room(key));
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
