//! What any thread can do with a node.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::batch::{Batch, Way};
use crate::codec::Kind;
use crate::codec::websocket::Close;
use crate::event::{Endpoint, Outcome};
#[cfg(doc)]
use crate::limits::Limits;
use crate::lookup::{name, numeric, resolve};
use crate::shared::{Command, Door, Resource, Shared, lock};
use crate::transport::{Listening, Options};
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
    /// The node was dropped.
    #[error("the node is gone")]
    Gone,
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

/// A way to a node, for any thread. Clones are ways to the same.
///
/// Nothing here waits for the network, but for the names of hosts where it says so.
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
    /// message came. A host's name is looked up here and now, which may take time; numbers are not.
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
        let scheme = scheme.told_by(options, &self.shared.limits).map_err(failed)?;
        let to = resolve(&address).map_err(failed)?;
        let place = match to.first() {
            Some(first) => numeric(&address, *first).map_err(failed)?,
            None => address.clone(),
        };
        let key = match transport.listen(&place, options).map_err(failed)? {
            Listening::Datagrams(datagrams) => self.shared.begin_datagrams(datagrams).map_err(failed)?,
            Listening::Streams(listener) => {
                let door = Arc::new(Door { listener, scheme, half_open: options.half_open });
                let key = self.shared.insert(Resource::Listener(door.clone()));
                lock(&self.shared.commands).push(Command::Watch(key));
                if let Err(error) = self.shared.watch_listener(&*door.listener, key) {
                    self.shared.remove(key);
                    door.listener.close();
                    return Err(failed(error));
                }
                self.shared.wake();
                key
            }
        };
        self.shared.unless_gone(key).map(Endpoint::new)
    }

    /// Begins to connect. `Connected` tells that the connection is there, `Closed` that it did not come about. What is sent
    /// before waits, within limits. A socket of datagrams is there at once, and has no such event.
    ///
    /// A host's name is looked up by a thread of the node's own, eight names at a time; that it has no address is told by
    /// `Closed`. [`Limits::handshake`] is the time for looking it up, and again for each of its addresses, one after the other.
    /// A socket of datagrams, at which nothing waits, has no room meanwhile: a send is [`Outcome::Full`], and `Drained` tells that
    /// the peer was found.
    ///
    /// # Errors
    ///
    /// If the address cannot be read, or the system refuses at once.
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
        let key = match name(&address) {
            Some(name) => self.shared.begin_by_name(&address, name, options),
            None => resolve(&address).and_then(|to| self.shared.begin(&address, to, options)),
        };
        self.shared.unless_gone(key.map_err(failed)?).map(Endpoint::new)
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
        loop {
            return match self.shared.way(to.key) {
                Some(Way::Stream(connection)) => match connection.send(kind, message) {
                    Ok(Some(outcome)) => outcome,
                    Ok(None) => continue,
                    Err(error) => {
                        let outcome = connection.refusal();
                        self.shared.command(Command::Broken(to.key, connection, error));
                        outcome
                    }
                },
                Some(Way::Datagrams(socket)) => socket.send(message, to.remote),
                None => Outcome::Closed,
            };
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
        self.close_with(endpoint, &usual_farewell());
    }

    /// As [`Handle::close`], telling the peer of a WebSocket why. A reason of more than 123 bytes is cut.
    pub fn close_with(&self, endpoint: Endpoint, why: &Close) {
        if endpoint.remote.is_none() {
            self.shared.command(Command::Close(endpoint.key, why.payload()));
        }
    }

    /// Sends nothing more: what waits at a connection is written, and then its peer is told that no more comes. What the peer
    /// sends is told as before, until it ends its side too, which is told as `Closed`; [`Handle::close`] does not wait for that.
    ///
    /// To a TCP or UNIX peer it is the end of the stream, to a TLS peer that and TLS's own. By itself our node answers such an
    /// end with what waits there, and its own, unless [`Options::half_open`] asks for more. A WebSocket has no half that could
    /// be closed: the peer is sent a closing frame, what it sends before its own is told, and most peers answer at once.
    ///
    /// A connection that is still being made is finished once it has come about. Of a listener, or a socket of datagrams,
    /// nothing can be finished: nothing happens.
    pub fn finish(&self, endpoint: Endpoint) {
        let Some(connection) = self.shared.connection(endpoint.key) else { return };
        self.shared.command(match connection.begin_finish(&usual_farewell().payload()) {
            Ok(()) => Command::Finish(endpoint.key),
            Err(error) => Command::Broken(endpoint.key, connection, error),
        });
    }

    /// Reads nothing more from a connection, so that its peer, and before long whoever sends there, has to wait; from a socket of
    /// datagrams, which the system then drops; or accepts no more connections from a listener.
    ///
    /// It takes effect as soon as the node is done with what it is reading: up to [`Limits::turn`] bytes are still told, after
    /// this has returned. While nothing is read, nothing is late, and what the peer does is not known: that it ended, or was
    /// reset, is told after [`Handle::resume`]. What waits for the peer is written all the same, and closing works as ever. A
    /// connection that is still being made is paused once it has come about.
    ///
    /// A peer of a socket that has several cannot be paused alone: nothing happens.
    pub fn pause(&self, endpoint: Endpoint) {
        self.set_paused(endpoint, true);
    }

    /// Goes on to read from what was [paused](Handle::pause).
    pub fn resume(&self, endpoint: Endpoint) {
        self.set_paused(endpoint, false);
    }

    fn set_paused(&self, endpoint: Endpoint, pauses: bool) {
        if endpoint.remote.is_none() {
            self.shared.command(Command::Pause(endpoint.key, pauses));
        }
    }

    /// The address of this end, with the port that the system chose.
    pub fn local_address(&self, endpoint: Endpoint) -> Option<Address> {
        self.shared.resource(endpoint.key, |resource| match resource {
            Resource::Stream(connection) => connection.link.local(),
            Resource::Datagrams(socket) => socket.datagrams.local(),
            Resource::Listener(door) => door.scheme.address(&door.listener.local()?),
        })
    }

    /// The address of the peer, by the transport beneath; none once the connection has ended, or its peer is gone.
    pub fn peer_address(&self, endpoint: Endpoint) -> Option<Address> {
        match endpoint.remote {
            Some(remote) => format!("udp://{remote}").parse().ok(),
            None => self.shared.connection(endpoint.key)?.link.peer(),
        }
    }

    /// Puts a signal behind the events that are there. [`Handle::close`] and the like do not wait for signals: what is to be sent for one
    /// is sent before a close only if that is called after it was told.
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
        lock(&self.shared.signals).push_timed(delay, signal);
        self.shared.wake();
    }

    /// Makes [`Node::run`](crate::Node::run) return after the event that it is telling. Nothing is closed or written by that: a node that
    /// is dropped then drops what waits.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.wake();
    }
}

/// What a WebSocket's peer is told where nothing else is to be said.
pub(crate) fn usual_farewell() -> Close {
    Close { code: Some(1000), reason: String::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::transport::{Inproc, Opened, Transport, Unix};
    use crate::{Event, Node, Reason};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A transport whose node is dropped while it is asked for something.
    struct Leaving<T>(T, Mutex<Option<Node<()>>>);

    impl<T: Transport> Transport for Leaving<T> {
        fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
            drop(lock(&self.1).take());
            self.0.connect(address, options)
        }

        fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
            drop(lock(&self.1).take());
            self.0.listen(address, options)
        }
    }

    fn leaving(scheme: &str, transport: impl Transport + 'static) -> Handle<()> {
        let node = Node::new().unwrap();
        let (handle, leaving) = (node.handle(), Arc::new(Leaving(transport, Mutex::new(None))));
        node.add_transport(scheme, leaving.clone());
        *lock(&leaving.1) = Some(node);
        handle
    }

    #[test]
    fn a_listener_does_not_outlive_a_node_that_goes_as_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let handle = leaving("unix", Unix);
        assert!(matches!(handle.listen(format!("unix://{}", path.display())), Err(Error::Gone)));
        assert!(!path.exists());
        assert_eq!(handle.shared.count(), 0);
    }

    #[test]
    fn a_connection_does_not_outlive_a_node_that_goes_as_it_begins() {
        let mut server = Node::<()>::new().unwrap();
        server.handle().listen("inproc://a-node-that-goes").unwrap();
        let handle = leaving("inproc", Inproc);
        assert!(matches!(handle.connect("inproc://a-node-that-goes"), Err(Error::Gone)));
        assert_eq!(handle.shared.count(), 0);
        assert!(matches!(server.next(Some(PATIENCE)).unwrap(), Some(Event::Accepted { .. })));
        let closed = server.next(Some(PATIENCE)).unwrap();
        assert!(matches!(closed, Some(Event::Closed { reason: Reason::Ended, .. })), "{closed:?}");
    }
}
