//! The handle: controls a node from any thread.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::batch::{Batch, Route};
use crate::codec::Kind;
use crate::codec::websocket::{Close, CloseError};
use crate::event::{Endpoint, Outcome};
#[cfg(doc)]
use crate::limits::Limits;
use crate::lookup::{name, numeric, resolve};
use crate::shared::{BoundListener, Command, Resource, Shared, lock};
use crate::signals::Timer;
#[cfg(feature = "tls")]
use crate::transport::TlsInfo;
use crate::transport::{Listening, Options, PeerCredentials};
use crate::upgrade::UpgradeRules;
use crate::{Address, AddressError};

/// Why a connection, listener or socket could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is invalid.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No transport has this scheme.
    #[error("no transport for the scheme of {address}; available: {known}")]
    Scheme {
        /// The requested address.
        address: Address,
        /// Every scheme that the node supports.
        known: String,
    },
    /// The node was dropped.
    #[error("the node is gone")]
    Gone,
    /// The node has reached [`Limits::connections`].
    #[error("the limit of {0} connections is reached: Limits::connections")]
    TooMany(usize),
    /// The endpoint is no TLS listener of this node, or it was closed.
    #[cfg(feature = "tls")]
    #[error("the endpoint is no TLS listener of this node, or it was closed")]
    NoTlsListener,
    /// The operating system reported an error.
    #[error("{doing} {address}: {source}")]
    Io {
        /// What was attempted.
        doing: &'static str,
        /// The address it was attempted at.
        address: Address,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Error {
        match never {}
    }
}

/// Controls a node from any thread. Clones control the same node.
///
/// No method waits for the network, except that [`Handle::listen`] resolves host names.
///
/// An [`Endpoint`] belongs to its node. With an endpoint of another node a send returns
/// [`Outcome::ForeignEndpoint`], an address is `None`, and every other method does nothing.
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
    /// Starts to listen at an address.
    ///
    /// For datagrams the endpoint is the socket itself; it can only send to peers from which a
    /// message has arrived. A host name is resolved before this returns, which may block; a numeric
    /// address is not looked up.
    ///
    /// # Errors
    ///
    /// If the address is invalid, or the operating system refuses to listen there.
    pub fn listen<A: TryInto<Address>>(&self, address: A) -> Result<Endpoint, Error>
    where
        Error: From<A::Error>,
    {
        self.listen_with(address, &Options::default())
    }

    /// As [`Handle::listen`], with options for the listener and for the connections it accepts.
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
        let scheme = scheme.with_options(options, &self.shared.limits).map_err(failed)?;
        let to = resolve(&address).map_err(failed)?;
        let place = match to.first() {
            Some(first) => numeric(&address, *first).map_err(failed)?,
            None => address.clone(),
        };
        let key = match transport.listen(&place, options).map_err(failed)? {
            Listening::Datagrams(datagrams) => self.shared.begin_datagrams(datagrams).map_err(failed)?,
            Listening::Streams(listener) => {
                let bound = Arc::new(BoundListener {
                    listener,
                    scheme,
                    half_open: options.half_open,
                    upgrades: Arc::new(UpgradeRules::new(options)),
                });
                let key = self.shared.insert(Resource::Listener(bound.clone()));
                lock(&self.shared.commands).push(Command::Watch(key));
                if let Err(error) = self.shared.watch_listener(&*bound.listener, key) {
                    self.shared.remove(key);
                    bound.listener.close();
                    return Err(failed(error));
                }
                self.shared.wake();
                key
            }
        };
        self.shared.unless_gone(key).map(Endpoint::new)
    }

    /// Starts to connect. `Connected` reports success, `Closed` reports failure.
    ///
    /// What is sent before `Connected` is queued, up to the limits. A datagram socket is usable at
    /// once and has no such event.
    ///
    /// A host name is resolved on a background thread, eight names at a time. `Closed` reports that
    /// the name has no address. [`Limits::handshake`] applies to the lookup, and again to each of
    /// the host's addresses, which are tried one after the other. A datagram socket has no queue:
    /// until its peer is resolved, a send returns [`Outcome::Full`], and `Drained` reports that the
    /// peer is resolved.
    ///
    /// # Errors
    ///
    /// If the address is invalid, or the operating system refuses at once.
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
        self.shared.tunnel(&address, options).map_err(failed)?;
        let dialled = options.dialled(&address);
        let key = match name(dialled) {
            Some(name) => self.shared.begin_by_name(&address, name, options),
            None => resolve(dialled).and_then(|to| self.shared.begin(&address, to, options)),
        };
        self.shared.unless_gone(key.map_err(failed)?).map(Endpoint::new)
    }

    /// Sends a message, all of it or nothing. Never blocks.
    ///
    /// Messages of one thread to one endpoint keep their order. An accepted message is lost only if
    /// the connection ends before the peer has received it.
    pub fn send(&self, to: Endpoint, message: &[u8]) -> Outcome {
        self.send_kind(to, Kind::Binary, message)
    }

    /// As [`Handle::send`], but a WebSocket peer receives a text message.
    pub fn send_text(&self, to: Endpoint, message: &str) -> Outcome {
        self.send_kind(to, Kind::Text, message.as_bytes())
    }

    #[inline]
    fn send_kind(&self, to: Endpoint, kind: Kind, message: &[u8]) -> Outcome {
        loop {
            return match self.shared.route(to.key) {
                Some(Route::Stream(connection)) => match connection.send(kind, message) {
                    Ok(Some(outcome)) => outcome,
                    Ok(None) => continue,
                    Err(error) => {
                        let outcome = connection.refused_outcome();
                        self.shared.command(Command::SendFailed(to.key, connection, error));
                        outcome
                    }
                },
                Some(Route::Datagrams(socket)) => socket.send(message, to.remote),
                None => self.shared.outcome_without_route(to.key),
            };
        }
    }

    /// Creates a batch, which sends several messages together. For many small messages this is
    /// several times faster.
    pub fn batch(&self, to: Endpoint) -> Batch<S> {
        Batch::new(self, to)
    }

    /// Closes a connection, a listener or a socket. From now on a send to it returns
    /// [`Outcome::Closed`].
    ///
    /// What is queued at a connection is written first, for at most [`Limits::flush`]; a connection
    /// that is still opening opens first. Then `Closed` is reported. No message is delivered
    /// any more: what has arrived, or arrives in the meantime, is discarded. If another thread
    /// closes, the node may deliver a few more before it notices.
    ///
    /// Does nothing for one peer of a socket that is shared by several peers.
    pub fn close(&self, endpoint: Endpoint) {
        self.begin_close(endpoint, &usual_farewell());
    }

    /// As [`Handle::close`], with a code and a reason for a WebSocket peer. The reason is truncated
    /// to 123 bytes.
    ///
    /// # Errors
    ///
    /// If a closing frame cannot carry the code. Nothing is closed then, whatever the endpoint is.
    pub fn close_with(&self, endpoint: Endpoint, why: &Close) -> Result<(), CloseError> {
        why.check()?;
        self.begin_close(endpoint, why);
        Ok(())
    }

    fn begin_close(&self, endpoint: Endpoint, why: &Close) {
        if endpoint.remote.is_none() {
            self.shared.request_close(endpoint.key, why.payload());
        }
    }

    /// Ends the sending direction: what is queued is written, then the peer is notified that no
    /// more follows.
    ///
    /// Messages from the peer are still delivered until it ends its direction too, which `Closed`
    /// reports. [`Handle::close`] does not wait for that.
    ///
    /// A TCP or UNIX peer sees the end of the stream; a TLS peer also receives a close alert. An
    /// Estafette peer reacts by writing what it has queued and ending its own direction, unless it
    /// uses [`Options::half_open`]. A WebSocket has no half-close: the peer receives a closing
    /// frame, and most peers reply at once; what it sends before its own closing frame is
    /// delivered.
    ///
    /// A connection that is still opening is finished once it is open. Does nothing for a listener
    /// or a datagram socket.
    pub fn finish(&self, endpoint: Endpoint) {
        let Some(connection) = self.shared.connection(endpoint.key) else { return };
        self.shared.command(match connection.begin_finish(&usual_farewell().payload()) {
            Ok(()) => Command::Finish(endpoint.key),
            Err(error) => Command::SendFailed(endpoint.key, connection, error),
        });
    }

    /// Stops reading from a connection or a datagram socket, or stops accepting at a listener.
    ///
    /// Back-pressure then makes a connection's peer wait; for a datagram socket the kernel drops
    /// what arrives. The pause takes effect after the current read: up to [`Limits::read_budget`] bytes
    /// may still be delivered after this returns.
    ///
    /// While paused, no read deadline applies, and the peer's end or reset is reported only after
    /// [`Handle::resume`]. Sending and closing work as usual. A connection that is still opening is
    /// paused once it is open.
    ///
    /// Does nothing for one peer of a socket that is shared by several peers.
    pub fn pause(&self, endpoint: Endpoint) {
        self.set_paused(endpoint, true);
    }

    /// Resumes reading after [`Handle::pause`].
    pub fn resume(&self, endpoint: Endpoint) {
        self.set_paused(endpoint, false);
    }

    fn set_paused(&self, endpoint: Endpoint, pauses: bool) {
        if endpoint.remote.is_none() {
            self.shared.command(Command::Pause(endpoint.key, pauses));
        }
    }

    /// Returns the local address, with the port that the system chose.
    pub fn local_address(&self, endpoint: Endpoint) -> Option<Address> {
        self.shared.resource(endpoint.key, |resource| match resource {
            Resource::Stream(connection) => connection.link.local(),
            Resource::Datagrams(socket) => socket.datagrams.local(),
            Resource::Listener(bound) => bound.scheme.address(&bound.listener.local()?),
        })
    }

    /// Returns the peer's address in terms of the underlying transport, or `None` once the
    /// connection has ended or its peer is gone.
    pub fn peer_address(&self, endpoint: Endpoint) -> Option<Address> {
        match endpoint.remote {
            Some(remote) => format!("udp://{remote}").parse().ok(),
            None => self.shared.connection(endpoint.key)?.link.peer(),
        }
    }

    /// Returns which process is at the other end of a UNIX socket. `None` for any other connection,
    /// and once the connection has ended.
    pub fn peer_credentials(&self, endpoint: Endpoint) -> Option<PeerCredentials> {
        self.shared.connection(endpoint.key)?.link.peer_credentials()
    }

    /// Returns the subprotocol that both sides of an open WebSocket agreed upon, if any:
    /// [`Options::subprotocols`].
    pub fn subprotocol(&self, endpoint: Endpoint) -> Option<String> {
        self.shared.connection(endpoint.key)?.subprotocol()
    }

    /// Returns what the TLS handshake of a connection agreed upon: the peer's certificates, the
    /// application protocol, the name that the client asked for.
    ///
    /// `None` for a connection without TLS, before [`Event::Connected`](crate::Event::Connected) or
    /// [`Event::Accepted`](crate::Event::Accepted), and once the connection has ended: keep what
    /// [`Event::Closed`](crate::Event::Closed) is to report.
    #[cfg(feature = "tls")]
    pub fn tls(&self, endpoint: Endpoint) -> Option<TlsInfo> {
        self.shared.connection(endpoint.key)?.link.tls()
    }

    /// Replaces the configuration of a TLS listener, for example when its certificate is renewed.
    ///
    /// Connections that are accepted from now on use the new one. Others continue undisturbed,
    /// also those whose handshake is not over. Clients cannot resume sessions of the old
    /// configuration, so they see the new certificate, unless both share a `session_storage` or a
    /// `ticketer`.
    ///
    /// # Errors
    ///
    /// [`Error::NoTlsListener`].
    #[cfg(feature = "tls")]
    pub fn set_tls_server(&self, listener: Endpoint, config: Arc<rustls::ServerConfig>) -> Result<(), Error> {
        let set = self.shared.resource(listener.key, |resource| match resource {
            Resource::Listener(bound) => bound.listener.set_tls_server(config).then_some(()),
            Resource::Stream(_) | Resource::Datagrams(_) => None,
        });
        set.ok_or(Error::NoTlsListener)
    }

    /// Queues a signal behind the events that are already there. Signals do not delay
    /// [`Handle::close`] and similar calls. To send something in reaction to a signal before
    /// closing, call `close` after the signal was delivered.
    pub fn signal(&self, signal: S) {
        lock(&self.shared.signals).usual.push_back(signal);
        self.shared.wake();
    }

    /// Queues a signal ahead of every event whose delivery has not begun.
    pub fn signal_first(&self, signal: S) {
        lock(&self.shared.signals).urgent.push_back(signal);
        self.shared.wake();
    }

    /// Delivers a signal after a delay: never early, and signals arrive in the order of their
    /// times. The returned [`Timer`] can cancel it; dropping it has no effect.
    pub fn signal_after(&self, delay: Duration, signal: S) -> Timer {
        let timer = lock(&self.shared.signals).push_timed(delay, signal);
        self.shared.wake();
        timer
    }

    /// Cancels a signal of [`Handle::signal_after`] and returns it. It never arrives then, even if
    /// its delay has passed and it waits behind other events.
    ///
    /// `None` if its delivery has begun, if it was cancelled before, or if it is another node's.
    /// The cost grows with the logarithm of the number of delayed signals.
    pub fn cancel_signal(&self, timer: Timer) -> Option<S> {
        lock(&self.shared.signals).take_timed(timer)
    }

    /// Makes [`Node::run`](crate::Node::run) return after the current event. This neither closes
    /// connections nor writes what is queued; dropping the node afterwards discards the queues.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.wake();
    }
}

/// The close code and reason used when the caller gives none.
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

    /// A transport that drops the node during a call.
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
    fn a_listener_is_removed_if_the_node_is_dropped_during_listen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let handle = leaving("unix", Unix);
        assert!(matches!(handle.listen(format!("unix://{}", path.display())), Err(Error::Gone)));
        assert!(!path.exists());
        assert_eq!(handle.shared.count(), 0);
    }

    #[test]
    fn a_connection_is_removed_if_the_node_is_dropped_during_connect() {
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
