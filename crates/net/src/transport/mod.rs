//! How bytes leave and arrive: what a transport is, and those that come with the crate.
//!
//! A transport of one's own is a type that implements [`Transport`], and is given to
//! [`Node::add_transport`](crate::Node::add_transport) with the scheme of its addresses. Everything else (queues, frames,
//! limits, deadlines, events) is the node's.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::Address;
use crate::reconnect::Reconnect;

mod inproc;
mod pending;
mod socket;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
mod udp;
mod unix;

pub(crate) use self::inproc::Inproc;
pub(crate) use self::pending::{Found, Pending, PendingDatagrams};
pub(crate) use self::tcp::Tcp;
#[cfg(feature = "tls")]
pub(crate) use self::tls::Tls;
pub(crate) use self::udp::Udp;
pub(crate) use self::unix::Unix;

/// A way to move bytes between two ends.
///
/// None of its functions may block: a node calls them from its only thread.
///
/// `examples/own_transport.rs` is one of somebody's own, in one file. Whether a transport does all that is asked of it, the module
/// `conformance` (feature `conformance`) finds out: a suite to be called from a test, which the transports of this crate pass.
pub trait Transport: Send + Sync {
    /// Begins to connect. The link may come about later: [`Link::connected`] is asked when it becomes writable.
    ///
    /// # Errors
    ///
    /// If it is clear at once that it will not.
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened>;

    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// If that is not possible.
    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening>;
}

/// What connecting gave.
#[non_exhaustive]
pub enum Opened {
    /// A stream of bytes.
    Stream(Box<dyn Link>),
    /// Datagrams to, and from, one peer.
    Datagrams(Box<dyn Datagrams>),
}

/// What listening gave.
#[non_exhaustive]
pub enum Listening {
    /// Every peer has a link of its own.
    Streams(Box<dyn Listener>),
    /// All peers share a socket.
    Datagrams(Box<dyn Datagrams>),
}

/// One end of a stream of bytes, that does not block: where nothing can be done now, a function returns
/// [`io::ErrorKind::WouldBlock`], and the descriptor of [`Link::source`] becomes ready once it can.
pub trait Link: Send + Sync {
    /// What epoll waits for, edge by edge.
    fn source(&self) -> BorrowedFd<'_>;

    /// Reads into the beginning of `buffer`, and says how much. 0 means that the peer sends no more.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where nothing is there; anything else ends the connection.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much of the parts, in order, as there is room for, and says how much. Never called by two threads at once.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where there is no room; anything else ends the connection.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Whether a read that filled less than its buffer has taken everything there was, so that epoll will tell of what comes
    /// later. True of sockets, and of nothing that reads ahead.
    fn short_read_is_last(&self) -> bool {
        false
    }

    /// When epoll is to tell of room. Only [`TellsOfRoom::Always`] is for links that keep what [`Link::flush`] writes, or have to wait
    /// to [finish](Link::finish).
    fn tells_of_room(&self) -> TellsOfRoom {
        TellsOfRoom::Always
    }

    /// Goes on to connect, or to agree with the peer on what has to be agreed on first. Asked whenever the descriptor
    /// becomes ready, until it has come about; of one that was accepted also at once.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where it takes longer; otherwise why it did not come about.
    fn connected(&self) -> io::Result<()> {
        Ok(())
    }

    /// Writes what a call of [`Link::write`] took and kept, if links of this kind do. Never called by two threads at once, nor
    /// beside [`Link::write`].
    ///
    /// # Errors
    ///
    /// `WouldBlock` where something is still kept; anything else ends the connection.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Tells the peer that nothing more will be written. Called again when the descriptor becomes ready, where it would block.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where the peer cannot be told yet. Of others the node takes no notice.
    fn finish(&self) -> io::Result<()>;

    /// Whether the peer reads no more of what is written, where the descriptor does not tell: asked after it has ended its side.
    fn is_deserted(&self) -> bool {
        false
    }

    /// The address of the peer, where it has one.
    fn peer(&self) -> Option<Address> {
        None
    }

    /// The address of this end, where it has one.
    fn local(&self) -> Option<Address> {
        None
    }
}

/// When epoll tells of room at a [`Link`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TellsOfRoom {
    /// From the beginning on.
    Always,
    /// From the first write on that found none, which spares a node the news that each connection it accepts has room. For
    /// links that are there as soon as they are accepted, and of which epoll tells only after such a write, as of TCP.
    OnceAsked,
    /// While something waits for it. For descriptors of which epoll tells whenever the peer has read, as of UNIX sockets: a node
    /// that waits for an answer would be woken for nothing.
    WhileAsked,
}

/// A place where peers connect.
pub trait Listener: Send + Sync {
    /// What epoll waits for, edge by edge.
    fn source(&self) -> BorrowedFd<'_>;

    /// Takes the next connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none waits. After any other the node tries again a little later, as after a lack of descriptors.
    fn accept(&self) -> io::Result<Box<dyn Link>>;

    /// Where it listens, with the port that the system chose.
    fn local(&self) -> Option<Address>;

    /// Undoes what listening left behind, such as a socket's file.
    fn close(&self) {}
}

/// A socket of datagrams. As for [`Link`], nothing blocks.
pub trait Datagrams: Send + Sync {
    /// What epoll waits for, edge by edge.
    fn source(&self) -> BorrowedFd<'_>;

    /// Receives a datagram, or several of one sender.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where none is there. Others are the peer's (as a port where nobody listens) and do not end anything.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Sends one datagram; to the one peer where none is named.
    ///
    /// # Errors
    ///
    /// `WouldBlock` where there is no room.
    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()>;

    /// Sends some of the datagrams that lie one behind the other, the first at least: `each` bytes have all, but for the last,
    /// which may have less. Says how many bytes it sent. `each` is not 0.
    ///
    /// # Errors
    ///
    /// As [`Datagrams::send`], of the first.
    fn send_run(&self, datagrams: &[u8], each: usize, to: Option<SocketAddr>) -> io::Result<usize> {
        let first = each.min(datagrams.len());
        self.send(&datagrams[..first], to).map(|()| first)
    }

    /// Whether epoll is to tell of room only while something waits for it, as [`TellsOfRoom::WhileAsked`].
    fn room_on_request(&self) -> bool {
        false
    }

    /// The longest datagram.
    fn most(&self) -> usize;

    /// The address of this end.
    fn local(&self) -> Option<Address>;
}

/// What [`Datagrams::receive`] brought: one datagram, or several that lie one behind the other.
///
/// ```
/// use estafette_net::Received;
///
/// // Three datagrams, the last of which is shorter.
/// let received = Received::new(2500).each(1000).from("192.0.2.1:4000".parse()?);
/// assert_eq!((received.len, received.each), (2500, 1000));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// How many bytes there are.
    pub len: usize,
    /// As set by [`Received::each`]; 0 where there is one alone.
    pub each: usize,
    /// As set by [`Received::from`].
    pub from: Option<SocketAddr>,
}

impl Received {
    /// One datagram of so many bytes, of the one peer.
    #[inline]
    #[must_use]
    pub fn new(len: usize) -> Received {
        Received { len, each: 0, from: None }
    }

    /// Several datagrams, of so many bytes each; the last may have less.
    #[inline]
    #[must_use]
    pub fn each(mut self, bytes: usize) -> Received {
        self.each = bytes;
        self
    }

    /// Who sent them, where that is not the one peer.
    #[inline]
    #[must_use]
    pub fn from(mut self, peer: SocketAddr) -> Received {
        self.from = Some(peer);
        self
    }
}

/// How a connection is made, or a listener: the same for every transport, which takes no notice of what it has no use for.
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
    /// As set by [`Options::broadcast`].
    pub broadcast: bool,
    /// As set by [`Options::interface`].
    pub interface: Option<std::net::Ipv4Addr>,
    /// As set by [`Options::half_open`].
    pub half_open: bool,
    /// As set by [`Options::reconnect`].
    pub reconnect: Option<Reconnect>,
    /// As set by [`Options::host`]; otherwise the node sets it as it connects, to the host as its address was written, before it
    /// was looked up.
    pub host: Option<String>,
    /// As set by [`Options::tls_client`].
    #[cfg(feature = "tls")]
    pub tls_client: Option<std::sync::Arc<rustls::ClientConfig>>,
    /// As set by [`Options::tls_server`].
    #[cfg(feature = "tls")]
    pub tls_server: Option<std::sync::Arc<rustls::ServerConfig>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            nodelay: true,
            keepalive: None,
            source: None,
            device: None,
            records: None,
            buffer: None,
            backlog: 4096,
            broadcast: false,
            interface: None,
            half_open: false,
            reconnect: None,
            host: None,
            #[cfg(feature = "tls")]
            tls_client: None,
            #[cfg(feature = "tls")]
            tls_server: None,
        }
    }
}

impl Options {
    /// Whether TCP sends small segments at once: it does, unless told otherwise.
    #[must_use]
    pub fn nodelay(mut self, on: bool) -> Options {
        self.nodelay = on;
        self
    }

    /// Asks a silent TCP peer whether it is still there, after this time and then every tenth of it.
    #[must_use]
    pub fn keepalive(mut self, after: Duration) -> Options {
        self.keepalive = Some(after);
        self
    }

    /// The address a connection leaves from; port 0 for any.
    #[must_use]
    pub fn source(mut self, address: SocketAddr) -> Options {
        self.source = Some(address);
        self
    }

    /// The network device that is used, and no other, as `eth0`. Some systems allow that to root only.
    #[must_use]
    pub fn device(mut self, name: impl Into<String>) -> Options {
        self.device = Some(name.into());
        self
    }

    /// Tells a stream that has no messages (`tcp://`, `unix://`, `tls://`, `inproc://`) in records of so many bytes, each where it lies,
    /// rather than in whatever pieces it comes. At least 1, and [`Limits::message`](crate::Limits) at most. What is sent is not
    /// changed by it.
    #[must_use]
    pub fn records(mut self, bytes: usize) -> Options {
        self.records = Some(bytes);
        self
    }

    /// The system's buffers, in bytes, each way; what the system allows of it. Within a process, how much lies between two
    /// ends: 256 KiB, or what the listener asked for, or what the one who connects did.
    #[must_use]
    pub fn buffer(mut self, bytes: usize) -> Options {
        self.buffer = Some(bytes);
        self
    }

    /// How many connections wait to be accepted: 4,096, or what the system allows of it.
    #[must_use]
    pub fn backlog(mut self, connections: u32) -> Options {
        self.backlog = connections;
        self
    }

    /// Whether UDP may send to a broadcast address.
    #[must_use]
    pub fn broadcast(mut self, on: bool) -> Options {
        self.broadcast = on;
        self
    }

    /// The address of the interface by which a multicast group is joined, and sent to.
    #[must_use]
    pub fn interface(mut self, address: std::net::Ipv4Addr) -> Options {
        self.interface = Some(address);
        self
    }

    /// Whether a connection goes on when its peer sends no more, as TCP allows: that is told as
    /// [`Event::Finished`](crate::Event::Finished), and what is sent still arrives, until
    /// [`Handle::finish`](crate::Handle::finish) or [`Handle::close`](crate::Handle::close). Otherwise, what waits is written
    /// and the connection closed.
    ///
    /// A TCP peer that is gone altogether looks the same until something is sent to it; where that can be told, as with UNIX
    /// sockets and within a process, the connection is closed. So it is where the end came in the middle of a message.
    /// [`Limits::idle`](crate::Limits) counts on. It is the same for the connections that a listener accepts; a WebSocket, which
    /// ends in both directions, takes no notice.
    #[must_use]
    pub fn half_open(mut self, on: bool) -> Options {
        self.half_open = on;
        self
    }

    /// Has what [`Handle::connect`](crate::Handle::connect) begins made again whenever it ends or does not come about, until
    /// [`Handle::close`](crate::Handle::close) or, after [`Handle::finish`](crate::Handle::finish), the peer ends it for good.
    /// It keeps its endpoint; a name is looked up again each time. [`Event::Lost`](crate::Event::Lost) tells of each loss and
    /// of each try that failed, [`Event::Connected`](crate::Event::Connected) of each success.
    ///
    /// What waits when a connection is lost is lost too: `Lost` tells how much. What is sent while there is none waits for the
    /// next one, within [`Limits::queue`](crate::Limits), as before the first; just as it is lost, a send may find it
    /// [`Full`](crate::Outcome::Full), and `Drained` follows when it is there again. What the system refuses at once is an error
    /// of `connect`, the first time. A listener takes no notice, nor does a socket of datagrams, which nobody can lose.
    #[must_use]
    pub fn reconnect(mut self, plan: Reconnect) -> Options {
        self.reconnect = Some(plan);
        self
    }

    /// The name that a TLS peer has to prove to be its own, where that is not the host of its address.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Options {
        self.host = Some(name.into());
        self
    }

    /// Whom a TLS client trusts, and how it shows who it is. Without it, those whom the system trusts.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_client(mut self, config: std::sync::Arc<rustls::ClientConfig>) -> Options {
        self.tls_client = Some(config);
        self
    }

    /// The certificate of a TLS listener, which has none otherwise and cannot listen.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls_server(mut self, config: std::sync::Arc<rustls::ServerConfig>) -> Options {
        self.tls_server = Some(config);
        self
    }
}
