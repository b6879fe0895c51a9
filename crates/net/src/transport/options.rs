//! The options of a connection or a listener.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::Address;
#[cfg(feature = "deflate")]
use crate::deflate::Deflate;
use crate::proxy::{Proxy, ProxyFailure, Tunnel};
use crate::reconnect::Reconnect;
use crate::upgrade::{Headers, UpgradeHook, UpgradeRequest, UpgradeResponse};

/// Options of a connection or a listener. Every transport accepts them and ignores those it has no
/// use for.
///
/// One thing needs no option: on Linux a TCP connection to or from a loopback address uses Reno in
/// place of BBR, if that is the system's congestion control. BBR would pace it, and within a
/// machine that only costs time.
///
/// ```
/// use std::time::Duration;
/// use estafette_net::Options;
///
/// let options = Options::default().keepalive(Duration::from_secs(30)).source("192.0.2.1:0".parse()?);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// As set by [`Options::nodelay`].
    pub nodelay: bool,
    /// As set by [`Options::keepalive`].
    pub keepalive: Option<Duration>,
    /// As set by [`Options::user_timeout`].
    pub user_timeout: Option<Duration>,
    /// As set by [`Options::source`].
    pub source: Option<SocketAddr>,
    /// As set by [`Options::device`].
    pub device: Option<String>,
    /// As set by [`Options::records`].
    pub records: Option<usize>,
    /// As set by [`Options::buffer`].
    pub buffer: Option<usize>,
    /// As set by [`Options::backlog`].
    pub backlog: u32,
    /// As set by [`Options::reuse_port`].
    pub reuse_port: bool,
    /// As set by [`Options::permissions`].
    pub permissions: Option<u32>,
    /// As set by [`Options::broadcast`].
    pub broadcast: bool,
    /// As set by [`Options::interface`].
    pub interface: Option<Ipv4Addr>,
    /// As set by [`Options::half_open`].
    pub half_open: bool,
    /// As set by [`Options::reconnect`].
    pub reconnect: Option<Reconnect>,
    /// As set by [`Options::proxy`].
    pub proxy: Option<Proxy>,
    /// Set by the node while it connects through [`Options::proxy`]: the destination.
    pub(crate) tunnel: Option<Arc<Tunnel>>,
    /// As set by [`Options::subprotocols`].
    pub subprotocols: Vec<String>,
    /// As added by [`Options::header`].
    pub headers: Headers,
    /// As set by [`Options::on_upgrade`].
    pub on_upgrade: Option<UpgradeHook>,
    /// As set by [`Options::deflate`].
    #[cfg(feature = "deflate")]
    pub deflate: Option<Deflate>,
    /// As set by [`Options::host`]. If it is unset, the node sets it when it connects: to the host
    /// of the address as written, before name resolution.
    pub host: Option<String>,
    /// As set by [`Options::tls_client`].
    #[cfg(feature = "tls")]
    pub tls_client: Option<Arc<rustls::ClientConfig>>,
    /// As set by [`Options::tls_server`].
    #[cfg(feature = "tls")]
    pub tls_server: Option<Arc<rustls::ServerConfig>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nodelay: true,
            keepalive: Some(Duration::from_secs(60)),
            user_timeout: None,
            source: None,
            device: None,
            records: None,
            buffer: None,
            backlog: 4096,
            reuse_port: false,
            permissions: None,
            broadcast: false,
            interface: None,
            half_open: false,
            reconnect: None,
            proxy: None,
            tunnel: None,
            subprotocols: Vec::new(),
            headers: Headers::default(),
            on_upgrade: None,
            #[cfg(feature = "deflate")]
            deflate: None,
            host: None,
            #[cfg(feature = "tls")]
            tls_client: None,
            #[cfg(feature = "tls")]
            tls_server: None,
        }
    }
}

impl Options {
    /// Whether TCP sends small segments at once (`TCP_NODELAY`). Default: true.
    #[must_use]
    pub fn nodelay(mut self, on: bool) -> Options {
        self.nodelay = on;
        self
    }

    /// Sets after how much silence TCP keep-alive asks whether the peer's host still exists.
    /// Default: 60 s; `None` turns it off.
    ///
    /// Further probes follow at a tenth of this time. If none of six is answered, the connection
    /// ends with an error: by default 96 s after the last sign of life. The peer's kernel answers,
    /// so a peer that does not read, or whose program hangs, is not affected. Times are rounded up
    /// to whole seconds.
    ///
    /// While data is unacknowledged there are no probes: the kernel repeats the data, by default of
    /// Linux for some 15 minutes. For less see [`Options::user_timeout`].
    #[must_use]
    pub fn keepalive(mut self, after: impl Into<Option<Duration>>) -> Options {
        self.keepalive = after.into();
        self
    }

    /// Sets for how long sent data may remain unacknowledged before TCP ends the connection
    /// (`TCP_USER_TIMEOUT`). Default: the system's, on Linux some 15 minutes.
    ///
    /// Linux also ends the connection of a live peer that does not read for this time while
    /// something waits to be sent to it. So there is no default, and a peer that pauses reads
    /// ([`Handle::pause`](crate::Handle::pause)) has to be quicker than this.
    #[must_use]
    pub fn user_timeout(mut self, time: Duration) -> Options {
        self.user_timeout = Some(time);
        self
    }

    /// Sets the local address that a connection by TCP or TLS, or a connected UDP socket, is bound
    /// to. Port 0 lets the system choose the port. Default: the system chooses both.
    #[must_use]
    pub fn source(mut self, address: SocketAddr) -> Options {
        self.source = Some(address);
        self
    }

    /// Binds TCP and UDP sockets to one network device, such as `eth0` (`SO_BINDTODEVICE`): only
    /// what passes through it is sent and received. Some systems allow this to root only.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>) -> Options {
        self.device = Some(name.into());
        self
    }

    /// Delivers a stream without framing (`tcp://`, `unix://`, `tls://`, `inproc://`) in records of
    /// this many bytes, instead of whatever one read returns.
    ///
    /// Records are borrowed from the read buffer like any message. The length is at least 1 and at
    /// most [`Limits::message`](crate::Limits). Sending is not affected. Schemes that keep the
    /// boundaries of messages ignore it.
    #[must_use]
    pub fn records(mut self, bytes: usize) -> Options {
        self.records = Some(bytes);
        self
    }

    /// Sets the size of the kernel's send and receive buffers in bytes, as far as the system
    /// allows. For `inproc` it is the capacity of each direction: the connecting side's value, else
    /// the listener's, else 256 KiB.
    #[must_use]
    pub fn buffer(mut self, bytes: usize) -> Options {
        self.buffer = Some(bytes);
        self
    }

    /// Sets how many connections may wait to be accepted, as far as the system allows. Default:
    /// 4,096.
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Options {
        self.backlog = connections;
        self
    }

    /// Whether several TCP listeners or UDP sockets, also of several processes of one user, may
    /// listen at one address (`SO_REUSEPORT`). Each of them has to set it. Default: false.
    ///
    /// Linux spreads connections, and datagrams, over them by a hash of the two addresses. So a
    /// server with a node per core listens once per node: `examples/all_cores.rs`. The datagrams of
    /// one peer go to the same socket as long as no socket is added or closed. Connections that
    /// wait in the backlog of a listener end when it is closed.
    #[must_use]
    pub fn reuse_port(mut self, on: bool) -> Options {
        self.reuse_port = on;
        self
    }

    /// Sets the permissions of the file of a listening UNIX socket, such as `0o660`: who may write
    /// to the file may connect. Default: `0o777` without the bits of the process's umask.
    ///
    /// They are set before anybody can connect, and the file never has more. The umask does not
    /// matter. To let a group connect, also set the group of the folder, with its set-group-ID bit.
    ///
    /// Listening fails for more than `0o777`, and for an abstract name, which has no permissions:
    /// [`Handle::peer_credentials`](crate::Handle::peer_credentials) says who connected.
    #[must_use]
    pub fn permissions(mut self, mode: u32) -> Options {
        self.permissions = Some(mode);
        self
    }

    /// Whether UDP may send to a broadcast address. Default: false.
    #[must_use]
    pub fn broadcast(mut self, on: bool) -> Options {
        self.broadcast = on;
        self
    }

    /// Sets the interface, by its address, by which a UDP socket joins an IPv4 multicast group and
    /// sends to it. Default: the system chooses. An IPv6 group has its interface in the address, as
    /// `udp://[ff02::1%eth0]:4000`.
    #[must_use]
    pub fn interface(mut self, address: Ipv4Addr) -> Options {
        self.interface = Some(address);
        self
    }

    /// Whether a connection continues when its peer sends no more (TCP half-close). Default: false,
    /// which means that the queue is written and the connection closed.
    ///
    /// The peer's end is reported as [`Event::Finished`](crate::Event::Finished). Sending continues
    /// until [`Handle::finish`](crate::Handle::finish) or [`Handle::close`](crate::Handle::close).
    ///
    /// A TCP peer that has disappeared looks the same until something is sent to it. UNIX sockets
    /// and `inproc` can tell the difference, and the connection is then closed. It is also closed
    /// if the peer's end came in the middle of a message. [`Limits::idle`](crate::Limits) still
    /// applies.
    ///
    /// A listener applies the option to the connections it accepts. A WebSocket ignores it, because
    /// its close handshake ends both directions.
    #[must_use]
    pub fn half_open(mut self, on: bool) -> Options {
        self.half_open = on;
        self
    }

    /// Makes the connection that [`Handle::connect`](crate::Handle::connect) starts reconnect
    /// whenever it ends or cannot connect. This stops with [`Handle::close`](crate::Handle::close)
    /// or, after [`Handle::finish`](crate::Handle::finish), when the peer ends the connection.
    ///
    /// The endpoint stays the same, and a host name is resolved again each time.
    /// [`Event::Lost`](crate::Event::Lost) reports each loss and each failed attempt,
    /// [`Event::Connected`](crate::Event::Connected) each success.
    ///
    /// What is queued when a connection is lost is lost too; `Lost` reports how much. Messages sent
    /// while there is no connection are queued for the next one, up to
    /// [`Limits::queue`](crate::Limits). At the moment of a loss a send may return
    /// [`Full`](crate::Outcome::Full); `Drained` follows when the connection is open again.
    ///
    /// If the system refuses the first attempt at once, `connect` returns that error. Listeners and
    /// datagram sockets ignore this option.
    #[must_use]
    pub fn reconnect(mut self, plan: Reconnect) -> Options {
        self.reconnect = Some(plan);
        self
    }

    /// Connects through a proxy: for `tcp`, `tcp+msg`, `tls`, `tls+msg`, `ws` and `wss`. With any
    /// other scheme connecting fails. Listeners ignore it.
    ///
    /// The proxy resolves the host of the address, and sees that host, the port, and what is sent;
    /// TLS is between this side and the destination. [`Limits::handshake`](crate::Limits) applies
    /// to the proxy's answers and what follows as a whole.
    /// [`Handle::peer_address`](crate::Handle::peer_address) is the proxy's.
    ///
    /// If the proxy refuses or breaks its protocol, the reason is
    /// [`Reason::NotConnected`](crate::Reason::NotConnected) with a
    /// [`ProxyError`](crate::ProxyError), also if it has not connected in time. If the destination
    /// is late after that, the reason is [`Late::Handshake`](crate::Late::Handshake) as without a
    /// proxy.
    ///
    /// User and password go to the proxy unencrypted, as both protocols have it.
    #[must_use]
    pub fn proxy(mut self, proxy: Proxy) -> Options {
        self.proxy = Some(proxy);
        self
    }

    /// The error of a proxy that has not connected in time. `None` if there is no proxy, or if it
    /// has connected.
    pub(crate) fn late_proxy(&self) -> Option<io::Error> {
        let connected = self.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_connected());
        self.proxy.as_ref().filter(|_| !connected).map(|proxy| proxy.failed(ProxyFailure::TimedOut))
    }

    /// The address whose host this side connects to: that of the proxy, if there is one.
    pub(crate) fn dialled<'a>(&'a self, address: &'a Address) -> &'a Address {
        self.proxy.as_ref().map_or(address, Proxy::address)
    }

    /// Sets the subprotocols of a WebSocket, such as `graphql-transport-ws`: RFC 6455, section 1.9.
    ///
    /// A client offers them, the preferred one first. A listener supports them, and chooses the
    /// client's first one that is among them. [`Handle::subprotocol`](crate::Handle::subprotocol)
    /// returns what was chosen. If none was, the WebSocket opens all the same; browsers and some
    /// libraries close it then.
    ///
    /// Listening and connecting fail if a name is not a token of HTTP.
    #[must_use]
    pub fn subprotocols(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Options {
        self.subprotocols = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a header to the request of a WebSocket client, such as `Authorization` or `Cookie`.
    ///
    /// Connecting fails if the name is not a token of HTTP, if the value contains a control
    /// character, or if the header belongs to the handshake itself: `Host`, `Connection`,
    /// `Upgrade`, `Sec-WebSocket-*` and those that announce a body.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Options {
        self.headers.push(name, value);
        self
    }

    /// Sets a function that accepts or rejects each WebSocket of a listener, by its request.
    /// Without it every valid request is accepted.
    ///
    /// The node calls it in its own thread, so it must not block. If it panics, so does the call
    /// that runs the node. [`Event::AcceptFailed`](crate::Event::AcceptFailed) reports what it
    /// rejects. If its response is invalid, the client gets status 500.
    ///
    /// ```
    /// use estafette_net::{Options, UpgradeResponse};
    ///
    /// let options = Options::default().subprotocols(["chat.v1"]).on_upgrade(|request| {
    ///     if request.path() != "/chat" {
    ///         return UpgradeResponse::reject(404, "only /chat is here");
    ///     }
    ///     if request.origin().is_some_and(|origin| origin != "https://example.org") {
    ///         return UpgradeResponse::reject(403, "pages of another site may not connect");
    ///     }
    ///     match request.header("Authorization") {
    ///         Some("Bearer secret") => UpgradeResponse::accept().header("Set-Cookie", "seen=1"),
    ///         _ => UpgradeResponse::reject(401, "a token is needed").header("WWW-Authenticate", "Bearer"),
    ///     }
    /// });
    /// ```
    #[must_use]
    pub fn on_upgrade(
        mut self,
        decide: impl Fn(&UpgradeRequest<'_>) -> UpgradeResponse + Send + Sync + 'static,
    ) -> Options {
        self.on_upgrade = Some(UpgradeHook::new(decide));
        self
    }

    /// Compresses the messages of a WebSocket, if the peer supports it: permessage-deflate, RFC 7692.
    /// Default: no compression.
    ///
    /// Every send of at least [`Deflate::min_len`](crate::Deflate) bytes is compressed in the
    /// sending thread, except before the connection is open. A [`Batch`](crate::Batch) is sent
    /// uncompressed. [`Limits::message`](crate::Limits) applies to the uncompressed length in both
    /// directions: a received message is decompressed up to this limit, and never beyond it.
    ///
    /// Compression makes lengths depend on contents. Do not send a secret in one message with text
    /// that an attacker chooses, as the attack CRIME does; without
    /// [`Deflate::send_context`](crate::Deflate) messages do not affect each other.
    ///
    /// ```
    /// use estafette_net::{Deflate, Options};
    ///
    /// let mut deflate = Deflate::default();
    /// deflate.level = 6;
    /// let options = Options::default().deflate(deflate);
    /// ```
    #[cfg(feature = "deflate")]
    #[must_use]
    pub fn deflate(mut self, deflate: Deflate) -> Options {
        self.deflate = Some(deflate);
        self
    }

    /// Sets the name that a TLS peer has to prove, if it differs from the host of the address.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Options {
        self.host = Some(name.into());
        self
    }

    /// Sets the configuration of a TLS client: trusted roots, client certificate, ALPN protocols.
    /// Default: the system's trusted roots, without a client certificate.
    ///
    /// Connections with the same `Arc` resume each other's sessions, which saves certificates and
    /// signatures: this includes each reconnect of [`Options::reconnect`], and all connections with
    /// the default. The server sends tickets for that behind its handshake. A client that closes
    /// before it has read anything has none. `ClientConfig::resumption` switches it off.
    ///
    /// With TLS 1.3 a client is open before the server has checked its certificate. If the server
    /// refuses it, [`Event::Connected`](crate::Event::Connected) comes first, then
    /// [`Event::Closed`](crate::Event::Closed) with the server's alert.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_client(mut self, config: Arc<rustls::ClientConfig>) -> Options {
        self.tls_client = Some(config);
        self
    }

    /// Sets the configuration of a TLS listener: its certificate, whether clients need one, ALPN
    /// protocols. Required for listening with TLS.
    ///
    /// [`Handle::set_tls_server`](crate::Handle::set_tls_server) replaces it while the listener
    /// runs. `ServerConfig` keeps the last 256 sessions for clients that resume one. Several
    /// processes or nodes behind one address share sessions by a common `ServerConfig::ticketer`.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_server(mut self, config: Arc<rustls::ServerConfig>) -> Options {
        self.tls_server = Some(config);
        self
    }
}
