//! The handle: controls a node from any thread.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Address;
use crate::batch::Batch;
use crate::codec::Kind;
use crate::codec::websocket::{Close, CloseError};
use crate::command::Command;
use crate::counters::Counters;
use crate::endpoint_info::EndpointInfo;
use crate::error::Error;
use crate::event::{Endpoint, Outcome};
use crate::lifecycle::Stage;
#[cfg(doc)]
use crate::limits::Limits;
use crate::lock::lock;
use crate::lookup::{name, numeric, resolve};
use crate::resource::{BoundListener, Resource};
use crate::sender::Sender;
use crate::shared::Shared;
use crate::signals::Timer;
use crate::slab::Key;
use crate::trace;
#[cfg(feature = "tls")]
use crate::transport::TlsInfo;
use crate::transport::{Listening, Options, PeerCredentials};
use crate::upgrade_rules::UpgradeRules;

/// Controls a node from any thread. Clones control the same node.
///
/// No method waits for the network, except that [`Handle::listen`] resolves host names. A send, and
/// what reads the state of a connection, waits for a thread that sends on the same connection, for
/// one system call.
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
    /// Starts to listen at an address. When this returns, the kernel accepts connections there; the
    /// node reports them as `Accepted` while it runs.
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
        self.shared.check_running()?;
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
                    acceptor: Arc::default(),
                });
                let key = self.shared.insert(Resource::Listener(bound.clone()));
                bound.acceptor.set_key(key);
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
        let endpoint = self.shared.unless_gone(key).map(Endpoint::new)?;
        trace::listening(endpoint, || self.local_address(endpoint).unwrap_or(address));
        Ok(endpoint)
    }

    /// Starts to connect, and returns at once. `Connected` reports success, `Closed` reports
    /// failure.
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
        self.shared.check_running()?;
        self.shared.transport(&address)?;
        let limit = self.shared.limits.connections;
        if self.shared.connections() >= limit {
            return Err(Error::TooMany(limit));
        }
        let failed = |source| Error::Io { doing: "connecting to", address: address.clone(), source };
        self.shared.tunnel(&address, options).map_err(failed)?;
        let dialled = options.dialled(&address);
        let key = match name(dialled) {
            Some(name) => self.shared.begin_by_name(&address, name, options),
            None => resolve(dialled).and_then(|to| self.shared.begin(&address, to, options)),
        };
        let endpoint = self.shared.unless_gone(key.map_err(failed)?).map(Endpoint::new)?;
        trace::connecting(endpoint, &address);
        Ok(endpoint)
    }

    /// Sends a message, all of it or nothing. Never waits for the peer.
    ///
    /// If nothing is queued, this is one system call, which takes the message from the caller's
    /// memory; otherwise the message is copied to the queue. While another thread sends on the same
    /// connection, this waits for its system call or shares it.
    ///
    /// Messages of one thread to one endpoint keep their order. An accepted message is lost only if
    /// the connection ends before the peer has received it. See [`Outcome`] for what else may
    /// happen.
    ///
    /// Each call looks the endpoint up. A [`Sender`] does that once.
    pub fn send(&self, to: Endpoint, message: &[u8]) -> Outcome {
        self.shared.send(to, Kind::Binary, message)
    }

    /// As [`Handle::send`], but a WebSocket peer receives a text message.
    pub fn send_text(&self, to: Endpoint, message: &str) -> Outcome {
        self.shared.send(to, Kind::Text, message.as_bytes())
    }

    /// Creates a sender, which sends to one endpoint without looking it up for each message. That
    /// matters where several threads send many short messages on one connection.
    pub fn sender(&self, to: Endpoint) -> Sender<S> {
        Sender::new(self.shared.clone(), to)
    }

    /// Creates a batch, which collects messages and sends them by one system call. For many small
    /// messages this is several times faster. The batch allocates up to 64 KiB when it is filled;
    /// keep it for further messages.
    pub fn batch(&self, to: Endpoint) -> Batch<S> {
        Batch::new(self.sender(to))
    }

    /// Closes a connection, a listener or a socket. Returns at once; from now on a send to it
    /// returns [`Outcome::Closed`].
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
    /// more follows. Returns at once; there is no time limit.
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
    /// Returns at once.
    ///
    /// Back-pressure then makes a connection's peer wait. The kernel drops datagrams once its
    /// buffer is full. New connections wait in a listener's backlog. The pause takes effect after
    /// the current read: up to [`Limits::read_budget`] bytes may still be delivered after this
    /// returns.
    ///
    /// While paused, no read deadline applies, and the peer's end or reset is reported only after
    /// [`Handle::resume`]. Sending and closing work as usual. A connection that is still opening is
    /// paused once it is open.
    ///
    /// Does nothing for one peer of a socket that is shared by several peers.
    pub fn pause(&self, endpoint: Endpoint) {
        self.set_paused(endpoint, true);
    }

    /// Resumes reading after [`Handle::pause`]. Returns at once; nothing was lost of a connection.
    pub fn resume(&self, endpoint: Endpoint) {
        self.set_paused(endpoint, false);
    }

    fn set_paused(&self, endpoint: Endpoint, pauses: bool) {
        if endpoint.remote.is_none() {
            self.shared.command(Command::Pause(endpoint.key, pauses));
        }
    }

    /// Returns the local address, with the port that the system chose, or `None` once the endpoint
    /// has ended. Costs one system call.
    pub fn local_address(&self, endpoint: Endpoint) -> Option<Address> {
        self.shared.resource(endpoint.key, Resource::local)
    }

    /// Returns the peer's address in terms of the underlying transport, or `None` once the
    /// connection has ended or its peer is gone. Costs one system call; to log the address at the
    /// end of a connection, keep it.
    pub fn peer_address(&self, endpoint: Endpoint) -> Option<Address> {
        match endpoint.remote {
            Some(remote) => format!("udp://{remote}").parse().ok(),
            None => self.shared.resource(endpoint.key, Resource::peer),
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

    /// Returns all endpoints that exist now, with their kinds and addresses, in no particular
    /// order. Single peers of a shared datagram socket are not listed.
    ///
    /// Endpoints may appear and end while this runs, which takes two system calls for each
    /// endpoint. Other threads go on meanwhile. Waits while another thread sends, for one system
    /// call at each connection at most. For values of your own by endpoint see
    /// [`EndpointMap`](crate::EndpointMap).
    ///
    /// ```
    /// use estafette_net::{EndpointKind, Node};
    ///
    /// let node = Node::<()>::new()?;
    /// let handle = node.handle();
    /// handle.listen("tcp+msg://127.0.0.1:0")?;
    /// for info in handle.endpoints() {
    ///     assert_eq!(info.kind, EndpointKind::Listener);
    ///     println!("{:?}", info.local);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn endpoints(&self) -> Vec<EndpointInfo> {
        let info = |(key, resource): (Key, Resource)| EndpointInfo {
            endpoint: Endpoint::new(key),
            kind: resource.kind(),
            local: resource.local(),
            peer: resource.peer(),
        };
        self.shared.all().into_iter().map(info).collect()
    }

    /// Returns the counters of the node: the sum over all its endpoints, with those that have
    /// ended.
    ///
    /// The figures are those of this moment, except that the received messages of one read are
    /// counted when they have been delivered. Takes some 10 ns for each endpoint; meanwhile no
    /// endpoint can be created or removed. Waits while another thread sends, for one system call at
    /// each connection at most. Messages cost the same whether the counters are read or not.
    ///
    /// ```
    /// # use estafette_net::{Event, Node};
    /// # let mut node = Node::<()>::new()?;
    /// # let handle = node.handle();
    /// # let listener = handle.listen("tcp+msg://127.0.0.1:0")?;
    /// # let client = handle.connect(handle.local_address(listener).ok_or("no address")?)?;
    /// # handle.send(client, b"hello");
    /// # node.run(|event| if let Event::Message(..) = event { handle.stop() })?;
    /// let all = handle.counters();
    /// assert_eq!((all.accepted, all.sent_messages, all.queued_bytes), (1, 1, 0));
    /// let sent = handle.counters_of(client).ok_or("the connection has ended")?;
    /// assert_eq!(sent.sent_bytes, 9); // a length of four bytes, and the message
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Returns the counters of one endpoint, or `None` once it has ended. For a listener: the sum
    /// over the connections that it accepted, with those that have ended. For one peer of a socket
    /// that is shared by several peers: those of the socket.
    ///
    /// While [`Event::Closed`](crate::Event::Closed) or
    /// [`Event::AcceptFailed`](crate::Event::AcceptFailed) is being delivered, they are the last
    /// ones of its endpoint: until the callback returns, or [`Node::next`](crate::Node::next) is
    /// called again. A connection that ends by its peer's fault is reported at once, and may go on
    /// counting for a moment.
    ///
    /// As [`Handle::counters`], but takes some 10 ns, and for a listener some 10 ns for each
    /// endpoint of the node. A connection that reconnects goes on counting.
    pub fn counters_of(&self, endpoint: Endpoint) -> Option<Counters> {
        self.shared.counters_of(endpoint.key)
    }

    /// Queues a signal for the node's thread. It is delivered once, as
    /// [`Event::Signal`](crate::Event::Signal), unless the node is dropped first. Returns at once;
    /// there is no limit to how many may wait. Costs an allocation now and then, and a system call
    /// if the node sleeps.
    ///
    /// The signal has its place behind the events that are already there. Signals do not delay
    /// [`Handle::close`] and similar calls. To send something in reaction to a signal before
    /// closing, call `close` after the signal was delivered.
    pub fn signal(&self, signal: S) {
        lock(&self.shared.signals).usual.push_back(signal);
        self.shared.wake();
    }

    /// As [`Handle::signal`], but ahead of every event whose delivery has not begun.
    pub fn signal_first(&self, signal: S) {
        lock(&self.shared.signals).urgent.push_back(signal);
        self.shared.wake();
    }

    /// As [`Handle::signal`], but after a delay: never early, and signals arrive in the order of
    /// their times. The returned [`Timer`] can cancel it; dropping it has no effect.
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

    /// Ends the node in order. Returns at once: the node's thread does the work while it runs.
    ///
    /// Listeners stop accepting. Every connection is closed as by [`Handle::close`], with `within`
    /// in place of [`Limits::flush`]: it writes its queue and waits until its peer has ended the
    /// connection too. A WebSocket peer receives the code 1001 ("going away"). When `within` has
    /// passed, what is left is cut. Each endpoint is reported as `Closed`, or as `AcceptFailed` if
    /// its handshake was not over. After the last one [`Node::run`](crate::Node::run) returns, and
    /// [`Node::next`](crate::Node::next) and `AsyncNode::next` return `None`, as after
    /// [`Handle::stop`]. A loop by [`Node::poll`](crate::Node::poll) asks
    /// [`Handle::has_shut_down`].
    ///
    /// What may be lost:
    ///
    /// - What this side has queued, if a peer does not read it within the time. `Closed` then says
    ///   [`Reason::Unwritten`](crate::Reason::Unwritten) and how many bytes.
    /// - Messages of peers that were not delivered when the node handles this, which it does before
    ///   it delivers the next message.
    /// - Connections in the backlog of a listener, which the kernel resets, and those whose
    ///   handshake is not over. Connections that were started here with something to send open
    ///   first, and write it.
    ///
    /// To answer requests that are in progress, close the listeners first, and call this when the
    /// last answer is sent.
    ///
    /// Listening and connecting fail with [`Error::ShuttingDown`] from now on. A second call can
    /// only shorten the time: `shutdown(Duration::ZERO)` cuts at once.
    ///
    /// ```
    /// use std::time::Duration;
    /// use estafette_net::{Event, Node};
    ///
    /// let mut node = Node::<()>::new()?;
    /// let handle = node.handle();
    /// let listener = handle.listen("ws://127.0.0.1:0")?;
    /// let client = handle.connect(handle.local_address(listener).ok_or("no address")?)?;
    /// handle.send(client, b"the last message");
    /// let mut closed = 0;
    /// node.run(|event| match event {
    ///     Event::Message(_, message) => {
    ///         assert_eq!(*message, *b"the last message");
    ///         handle.shutdown(Duration::from_secs(10));
    ///     }
    ///     Event::Closed { .. } => closed += 1,
    ///     _ => {}
    /// })?;
    /// assert!(handle.has_shut_down());
    /// assert_eq!(closed, 3); // the listener and both ends of the connection
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, within: Duration) {
        self.shared.request_shutdown(within);
    }

    /// Whether a [`Handle::shutdown`] is over: every endpoint was closed and reported.
    pub fn has_shut_down(&self) -> bool {
        self.shared.lifecycle.stage() == Stage::ShutDown
    }

    /// Makes [`Node::run`](crate::Node::run) return after the current event. This neither closes
    /// connections nor writes what is queued; dropping the node afterwards discards the queues.
    ///
    /// Dropping the node also removes the files of its UNIX sockets. A process that a signal ends
    /// drops nothing. So a program that listens at a path should call this when SIGTERM or SIGINT
    /// arrives, for example with `tokio::signal` or the crate `signal-hook`. A file that stays
    /// behind does no harm: the next listener at its path replaces it.
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
    use std::io;
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
