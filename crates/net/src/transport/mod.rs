//! The transport traits, and the transports of this crate.
//!
//! A custom transport is a type that implements [`Transport`]. Pass it to
//! [`Node::add_transport`](crate::Node::add_transport) with the scheme of its addresses. The node
//! itself provides queues, framing, limits, deadlines and events.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
#[cfg(feature = "tls")]
use std::sync::Arc;

use crate::Address;

mod bell;
mod credentials;
mod inproc;
mod options;
mod pending;
mod platform;
mod socket;
mod tcp;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_info;
mod tunnel;
mod udp;
mod unix;

pub use self::credentials::PeerCredentials;
pub(crate) use self::inproc::Inproc;
pub use self::options::Options;
pub(crate) use self::pending::{Found, Pending, PendingDatagrams};
pub(crate) use self::tcp::Tcp;
#[cfg(feature = "tls")]
pub(crate) use self::tls::Tls;
#[cfg(feature = "tls")]
pub use self::tls_info::TlsInfo;
pub(crate) use self::udp::Udp;
pub(crate) use self::unix::Unix;

/// Opens connections and listens, for addresses of one scheme.
///
/// No method may block: a node calls them from its only thread.
///
/// `examples/own_transport.rs` is a custom transport in one file. The module `conformance` (feature
/// `conformance`) contains a test suite for transports; the transports of this crate pass it.
pub trait Transport: Send + Sync {
    /// Starts to connect. The link may finish connecting later: the node calls [`Link::connected`]
    /// when its descriptor becomes ready.
    ///
    /// # Errors
    ///
    /// If connecting fails at once.
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened>;

    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// If listening at this address fails.
    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening>;
}

/// The result of connecting.
#[non_exhaustive]
pub enum Opened {
    /// A byte stream.
    Stream(Box<dyn Link>),
    /// A datagram socket for one peer.
    Datagrams(Box<dyn Datagrams>),
}

/// The result of listening.
#[non_exhaustive]
pub enum Listening {
    /// Streams: each peer has its own link.
    Streams(Box<dyn Listener>),
    /// Datagrams: all peers share one socket.
    Datagrams(Box<dyn Datagrams>),
}

/// One end of a non-blocking byte stream.
///
/// An operation that cannot proceed returns [`io::ErrorKind::WouldBlock`]. The descriptor of
/// [`Link::source`] becomes ready once it can.
pub trait Link: Send + Sync {
    /// The descriptor that epoll watches, edge-triggered.
    fn source(&self) -> BorrowedFd<'_>;

    /// Reads into the start of `buffer` and returns the number of bytes. 0 means that the peer
    /// sends no more.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is nothing to read; any other error ends the connection.
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes as much as possible of the parts, in order, and returns the number of bytes. Two
    /// threads never call it at once.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing can be written; any other error ends the connection.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Whether a read that did not fill its buffer has read everything, so that epoll reports what
    /// arrives later. True for sockets, false for links that read ahead.
    fn short_read_is_last(&self) -> bool {
        false
    }

    /// When epoll reports that the link is writable. Return [`WriteInterest::Always`] if the link
    /// buffers data that [`Link::flush`] writes, or if [`Link::finish`] may block.
    fn write_interest(&self) -> WriteInterest {
        WriteInterest::Always
    }

    /// Continues to connect, including a handshake of the transport. The node calls it whenever the
    /// descriptor becomes ready, until it succeeds; for an accepted link also at once.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it takes longer; any other error means that connecting failed.
    fn connected(&self) -> io::Result<()> {
        Ok(())
    }

    /// Writes what [`Link::write`] accepted and buffered, for links that buffer. Two threads never
    /// call it, or [`Link::write`], at once.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if something is still buffered; any other error ends the connection.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the sending direction, and notifies the peer of that. If it would block, the node calls
    /// it again when the descriptor becomes ready.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the peer cannot be notified yet. The node ignores any other error.
    fn finish(&self) -> io::Result<()>;

    /// Whether the peer no longer reads, for links whose descriptor does not report that. The node
    /// calls it after the peer has ended its direction.
    fn is_deserted(&self) -> bool {
        false
    }

    /// The peer's address, if it has one.
    fn peer(&self) -> Option<Address> {
        None
    }

    /// The local address, if there is one.
    fn local(&self) -> Option<Address> {
        None
    }

    /// The process at the other end, for links of UNIX sockets.
    fn peer_credentials(&self) -> Option<PeerCredentials> {
        None
    }

    /// What the TLS handshake agreed upon, for links that have one, once it is over.
    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<TlsInfo> {
        None
    }
}

/// When epoll reports that a [`Link`] is writable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteInterest {
    /// From the beginning.
    Always,
    /// From the first write that would block. This saves a useless notification for each accepted
    /// connection. For links that are connected as soon as they are accepted, and that epoll
    /// reports as writable only after such a write, as with TCP.
    AfterWouldBlock,
    /// While the node has something to write. For descriptors that epoll reports as writable
    /// whenever the peer has read, as with UNIX sockets. A node that waits for a reply would
    /// otherwise be woken for nothing.
    WhilePending,
}

/// Accepts connections.
pub trait Listener: Send + Sync {
    /// The descriptor that epoll watches, edge-triggered.
    fn source(&self) -> BorrowedFd<'_>;

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none waits. After any other error, such as a lack of descriptors, the node
    /// tries again a little later.
    fn accept(&self) -> io::Result<Box<dyn Link>>;

    /// The local address, with the port that the system chose.
    fn local(&self) -> Option<Address>;

    /// Uses another TLS configuration for connections that are accepted from now on. Returns
    /// whether the listener has one.
    #[cfg(feature = "tls")]
    fn set_tls_server(&self, _: Arc<rustls::ServerConfig>) -> bool {
        false
    }

    /// Stops listening and removes what it created, such as a socket's file.
    fn close(&self) {}
}

/// A non-blocking datagram socket. `WouldBlock` has the same meaning as for [`Link`].
pub trait Datagrams: Send + Sync {
    /// The descriptor that epoll watches, edge-triggered.
    fn source(&self) -> BorrowedFd<'_>;

    /// Receives one datagram, or several of one sender.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none. Other errors come from the peer (such as a closed port) and
    /// do not end the socket.
    fn receive(&self, buffer: &mut [u8]) -> io::Result<Received>;

    /// Sends one datagram. Without `to`, it goes to the connected peer.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it cannot be sent now.
    fn send(&self, datagram: &[u8], to: Option<SocketAddr>) -> io::Result<()>;

    /// Sends several datagrams of one slice, at least the first, and returns the number of bytes
    /// sent. Each has `each` bytes; the last may be shorter. `each` is not 0.
    ///
    /// # Errors
    ///
    /// As [`Datagrams::send`], for the first datagram.
    fn send_run(&self, datagrams: &[u8], each: usize, to: Option<SocketAddr>) -> io::Result<usize> {
        let first = each.min(datagrams.len());
        self.send(&datagrams[..first], to).map(|()| first)
    }

    /// Whether epoll reports writability only on request, as with [`WriteInterest::WhilePending`].
    fn writable_on_request(&self) -> bool {
        false
    }

    /// The longest datagram, in bytes.
    fn max_len(&self) -> usize;

    /// The local address.
    fn local(&self) -> Option<Address>;
}

/// The result of [`Datagrams::receive`]: one datagram, or several in one buffer.
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
    /// The number of bytes received.
    pub len: usize,
    /// As set by [`Received::each`]; 0 for a single datagram.
    pub each: usize,
    /// As set by [`Received::from`].
    pub from: Option<SocketAddr>,
}

impl Received {
    /// One datagram of `len` bytes from the connected peer.
    #[inline]
    #[must_use]
    pub fn new(len: usize) -> Received {
        Received { len, each: 0, from: None }
    }

    /// Sets that there are several datagrams of this length; the last may be shorter.
    #[inline]
    #[must_use]
    pub fn each(mut self, bytes: usize) -> Received {
        self.each = bytes;
        self
    }

    /// Sets the sender, if the socket is not connected to one peer.
    #[inline]
    #[must_use]
    pub fn from(mut self, peer: SocketAddr) -> Received {
        self.from = Some(peer);
        self
    }
}
