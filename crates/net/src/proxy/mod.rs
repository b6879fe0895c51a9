//! Proxies for clients: which one, why it failed, and the dialogue with it.
//!
//! The dialogues are sans-IO state machines: bytes of the proxy go in, and what to do next comes
//! out. [`TunnelLink`](crate::transport) moves the bytes.

#[cfg(any(test, fuzzing))]
pub(crate) mod exchange;
mod http;
mod login;
mod socks5;
mod url;

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use self::http::HttpConnect;
use self::login::Login;
use self::socks5::Socks5;
pub use self::url::ProxyUrlError;
use crate::Address;
use crate::address::literal;

/// A proxy that a client connects through: [`Options::proxy`](crate::Options::proxy).
///
/// Its URL names the protocol:
///
/// | URL | protocol |
/// |---|---|
/// | `socks5://[user:password@]host:port` | SOCKS5: RFC 1928, with RFC 1929 for user and password |
/// | `http://[user:password@]host:port` | `CONNECT` of HTTP: RFC 9110, section 9.3.6, with Basic authentication |
///
/// Characters with a meaning in a URL are written as `%` and two hexadecimal digits: `%40` for `@`,
/// `%3A` for `:`, `%25` for `%`. `socks5h` is the same as `socks5`, for URLs made for curl. A proxy
/// whose own connection is TLS (`https://`) is not supported.
///
/// `Display` and `Debug` show neither user nor password.
///
/// ```
/// use estafette_net::{Options, Proxy};
///
/// let proxy: Proxy = "socks5://me:secret@192.0.2.1:1080".parse()?;
/// assert_eq!(proxy.to_string(), "socks5://192.0.2.1:1080");
/// let options = Options::default().proxy(proxy);
/// # Ok::<(), estafette_net::ProxyUrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    protocol: Protocol,
    /// Its host and port, as an address of TCP.
    address: Address,
    login: Option<Login>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Socks5,
    HttpConnect,
}

impl Proxy {
    /// Where the proxy is, as an address of TCP.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The error of a failure of this proxy.
    pub(crate) fn failed(&self, failure: ProxyFailure) -> io::Error {
        io::Error::new(failure.kind(), ProxyError { proxy: self.to_string(), failure })
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Socks5 => "socks5",
            Protocol::HttpConnect => "http",
        };
        write!(f, "{scheme}://{}", self.address.authority())
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = if self.login.is_some() { ", with user and password" } else { "" };
        write!(f, "Proxy({self}{login})")
    }
}

/// Why a proxy did not connect a client: the inner error of
/// [`Reason::NotConnected`](crate::Reason::NotConnected).
///
/// ```
/// use estafette_net::{ProxyError, Reason};
///
/// fn of(reason: &Reason) -> Option<&ProxyError> {
///     let Reason::NotConnected(error) = reason else { return None };
///     error.get_ref()?.downcast_ref()
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the proxy {proxy}: {failure}")]
#[non_exhaustive]
pub struct ProxyError {
    /// The URL of the proxy, without user and password.
    pub proxy: String,
    /// What went wrong.
    pub failure: ProxyFailure,
}

/// What went wrong with a proxy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyFailure {
    /// The connection to the proxy itself failed.
    #[error("{what}")]
    Io {
        /// The kind of the system's error.
        kind: ErrorKind,
        /// Its text.
        what: String,
    },
    /// It did not connect within [`Limits::handshake`](crate::Limits): it does not answer, or it
    /// waits for the destination.
    #[error("it did not connect within Limits::handshake")]
    TimedOut,
    /// It ended the connection in the middle of the dialogue.
    #[error("it ended the connection before it had answered")]
    Ended,
    /// What it sent is not the protocol of its URL.
    #[error("it does not speak the protocol: {0}")]
    Malformed(&'static str),
    /// A SOCKS5 proxy accepts no client without a user and password, or none with one.
    #[error("it accepts neither a client without user and password nor, if the URL has them, one with them")]
    NoMethod,
    /// A SOCKS5 proxy refused the user and password.
    #[error("it refused the user and password (status {0})")]
    Login(u8),
    /// A SOCKS5 proxy did not connect: the reply of RFC 1928, section 6.
    #[error("it did not connect: {meaning} (reply {0})", meaning = socks5::meaning(*.0))]
    Reply(u8),
    /// An HTTP proxy did not connect.
    #[error("it did not connect: HTTP status {status} {reason}{}", http::remedy(*.status))]
    Status {
        /// The status of its response.
        status: u16,
        /// The text behind the status.
        reason: String,
    },
}

impl ProxyFailure {
    fn kind(&self) -> ErrorKind {
        match self {
            ProxyFailure::Io { kind, .. } => *kind,
            ProxyFailure::TimedOut => ErrorKind::TimedOut,
            ProxyFailure::Ended => ErrorKind::UnexpectedEof,
            ProxyFailure::Malformed(_) => ErrorKind::InvalidData,
            ProxyFailure::NoMethod | ProxyFailure::Login(_) => ErrorKind::PermissionDenied,
            ProxyFailure::Reply(code) => socks5::kind(*code),
            ProxyFailure::Status { status, .. } => http::kind(*status),
        }
    }
}

/// A destination behind a proxy.
#[derive(Debug)]
pub(crate) struct Tunnel {
    proxy: Proxy,
    to: Destination,
    /// The proxy has connected.
    connected: AtomicBool,
}

/// What a proxy is asked to connect to.
#[derive(Debug)]
struct Destination {
    host: Host,
    port: u16,
}

#[derive(Debug)]
enum Host {
    Ip(IpAddr),
    /// A name, which the proxy resolves.
    Name(Box<str>),
}

impl Tunnel {
    /// A tunnel to the host of an address.
    ///
    /// # Errors
    ///
    /// If the proxy cannot be asked for this host.
    pub(crate) fn new(proxy: &Proxy, address: &Address) -> io::Result<Tunnel> {
        let invalid =
            |what: String| io::Error::new(ErrorKind::InvalidInput, format!("through the proxy {proxy}: {what}"));
        let (Some(host), Some(port)) = (address.host(), address.port()) else {
            return Err(invalid(format!("{address} has no host")));
        };
        let host = match literal(host) {
            Some(ip) => Host::Ip(ip),
            None if host.contains(':') => {
                return Err(invalid(format!("{host} has a zone, which means nothing to another host")));
            }
            None if !host.is_ascii() => {
                return Err(invalid(format!("{host} is not ASCII: write the name in Punycode, as xn--...")));
            }
            None if host.len() > usize::from(u8::MAX) => {
                return Err(invalid(format!("a host's name has at most 255 bytes, not {}", host.len())));
            }
            None => Host::Name(host.into()),
        };
        Ok(Tunnel { proxy: proxy.clone(), to: Destination { host, port }, connected: AtomicBool::new(false) })
    }

    /// Starts the dialogue. Returns it, and what to send first.
    pub(crate) fn begin(&self) -> (Dialogue, Vec<u8>) {
        match self.proxy.protocol {
            Protocol::Socks5 => {
                let (socks5, first) = Socks5::begin(&self.to, self.proxy.login.as_ref());
                (Dialogue::Socks5(socks5), first)
            }
            Protocol::HttpConnect => {
                let (http, first) = HttpConnect::begin(&self.to, self.proxy.login.as_ref());
                (Dialogue::HttpConnect(http), first)
            }
        }
    }

    /// The error of a failure of this proxy.
    pub(crate) fn failed(&self, failure: ProxyFailure) -> io::Error {
        self.proxy.failed(failure)
    }

    /// Notes that the proxy has connected.
    pub(crate) fn set_connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }
}

/// The dialogue with a proxy that precedes the connection.
#[derive(Debug)]
pub(crate) enum Dialogue {
    Socks5(Socks5),
    HttpConnect(HttpConnect),
}

/// What follows what was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The answer is not complete.
    Receive,
    /// This is to be sent, then the answer received.
    Send(Vec<u8>),
    /// The proxy has connected: whatever follows is the destination's.
    Connected,
}

impl Dialogue {
    /// Handles received bytes. Returns how many of them belong to the dialogue, and what follows.
    /// Less than all are consumed only with a step other than [`Step::Receive`].
    ///
    /// # Errors
    ///
    /// If the proxy refuses, or breaks the protocol.
    pub(crate) fn receive(&mut self, input: &[u8]) -> Result<(usize, Step), ProxyFailure> {
        match self {
            Dialogue::Socks5(socks5) => socks5.receive(input),
            Dialogue::HttpConnect(http) => http.receive(input),
        }
    }
}

#[cfg(test)]
mod tests;
