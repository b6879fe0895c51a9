//! How connections and datagram sockets begin.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};

use super::Shared;
use crate::Address;
use crate::backend::WritableSwitch;
use crate::codec::websocket::{Awaited, Opening, Side};
use crate::command::Command;
use crate::connection::Connection;
use crate::datagrams::Socket;
use crate::endpoint::Endpoint;
use crate::lock::lock;
use crate::lookup::{LookupOwner, numeric};
use crate::new_endpoint::{Client, Connecting, NewConnection, Origin, PendingPeer};
use crate::proxy::Tunnel;
use crate::resource::{BoundListener, Resource};
use crate::scheme::Scheme;
use crate::slab::Key;
use crate::transport::{Datagrams, Found, Link, Listener, Opened, Options, Pending, PendingDatagrams, WriteInterest};

impl<S> Shared<S> {
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
        // Without the tunnel of the attempt before.
        let options = Options { tunnel: None, ..options.clone() };
        let origin = Origin::Connecting(Box::new(Connecting { address: address.clone(), others: Vec::new(), options }));
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
        let max_len = datagrams.max_len().min(self.limits.message);
        let socket = Arc::new(Socket::new(datagrams, max_len));
        let key = self.insert(Resource::Datagrams(socket.clone()));
        let on_request = socket.datagrams.writable_on_request();
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
