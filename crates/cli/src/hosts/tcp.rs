//! Sessions over TCP: connects to a peer, and waits for coordinators.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use estafette_measure::hosts::{OtherHost, peer, refuse, remote};
use rustix::net::sockopt;
use rustls::ServerConfig;

use super::greeting::hello;
use super::target::Target;
use super::tls;
use super::token::{Token, VARIABLE};
use crate::args::ToHost;
use crate::terminal::report_to_stderr;

/// How long a connection, and everything until the greeting, may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// After how long a host that has vanished is given up: it acknowledges neither data nor a probe.
const VANISHED: Duration = Duration::from_secs(50);
/// The maximum number of connections that have not greeted yet.
const MAX_OPENING: usize = 8;
/// The maximum number of them from one network, so that one stranger does not keep all others out.
const MAX_OPENING_OF_NETWORK: usize = 4;
/// The maximum number of refusals that are reported within [`REFUSALS_TIME`].
const MAX_REFUSALS: u32 = 20;
const REFUSALS_TIME: Duration = Duration::from_secs(60);
/// The pause after a failed `accept`, for example because no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens a session with a peer that listens at `address`, `HOST:PORT`.
///
/// # Errors
/// If there is no token or no peer, or it refuses.
pub(super) fn connect(address: &str, args: &ToHost) -> Result<OtherHost> {
    let name = Target::Tcp(address.to_owned()).to_string();
    let Some(token) = Token::given(args.token_file.as_deref())? else {
        bail!("{name} needs the token that `estafette peer` printed there: set {VARIABLE}, or give --token-file");
    };
    let stream = open(address).with_context(|| {
        format!("cannot connect to {name}: start `estafette peer --listen` there, and open the port in its firewall")
    })?;
    let ours = args.address.map_or_else(|| stream.local_addr().map(|address| address.ip()), Ok)?;
    prepare(&stream)?;
    let (link, deadline) = tls::connect(stream, &token, Instant::now() + OPEN_TIMEOUT).context(name.clone())?;
    let greeted = remote::greet(link, &hello()).context(name.clone())?;
    deadline.lift();
    greeted.start(ours, name)
}

fn open(address: &str) -> Result<TcpStream> {
    let mut last = None;
    for address in address.to_socket_addrs().context("looking up its address")? {
        match TcpStream::connect_timeout(&address, OPEN_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error.into()),
        None => bail!("the name has no address"),
    }
}

/// Small packets leave at once, and a host that has vanished is noticed within a minute.
fn prepare(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(20))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(stream, 3)?;
    // Keepalive does not work while sent data is not acknowledged.
    sockopt::set_tcp_user_timeout(stream, VANISHED.as_millis() as u32)?;
    Ok(())
}

/// A coordinator that has proved the token and greeted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) greeted: peer::GreetedCoordinator,
    /// The coordinator's address.
    pub(crate) from: SocketAddr,
    /// The address of this host at which the measured programs listen.
    pub(crate) at: IpAddr,
}

/// What the threads that accept coordinators share.
#[derive(Debug)]
pub(crate) struct Door {
    token: Token,
    config: Arc<ServerConfig>,
    /// The address at which the measured programs listen, if it is not the one of the session.
    address: Option<IpAddr>,
    /// Whether there is a session. Then others are refused.
    is_busy: AtomicBool,
    /// The networks of the connections that have not greeted yet.
    opening: Mutex<Vec<IpAddr>>,
    refusals: Mutex<Refusals>,
}

/// The refusals that were reported within the current minute. Strangers must not fill a log.
#[derive(Debug, Default)]
struct Refusals {
    since: Option<Instant>,
    count: u32,
}

impl Refusals {
    /// Returns what to print for a refusal. `None` if there were too many.
    fn line(&mut self, refusal: &str, now: Instant) -> Option<String> {
        if self.since.is_none_or(|since| now.duration_since(since) >= REFUSALS_TIME) {
            *self = Refusals { since: Some(now), count: 0 };
        }
        self.count = self.count.saturating_add(1);
        match self.count {
            ..MAX_REFUSALS => Some(refusal.to_owned()),
            MAX_REFUSALS => Some(format!("{refusal}; more refusals within this minute are not shown")),
            _ => None,
        }
    }
}

/// A connection that has not greeted yet. It counts until this is dropped.
struct Opening {
    door: Arc<Door>,
    network: IpAddr,
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut opening = self.door.opening();
        if let Some(at) = opening.iter().position(|network| *network == self.network) {
            opening.swap_remove(at);
        }
    }
}

/// The network of an address: whoever has one address of IPv6 has usually the 2^64 beside it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

impl Door {
    /// `address` is the one at which the measured programs listen, if it is not the one of the
    /// session.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub(crate) fn new(token: Token, address: Option<IpAddr>) -> Result<Arc<Door>> {
        let config = tls::server_config()?;
        Ok(Arc::new(Door {
            token,
            config,
            address,
            is_busy: AtomicBool::new(false),
            opening: Mutex::default(),
            refusals: Mutex::default(),
        }))
    }

    /// Lets the next coordinator in, after a session.
    pub(crate) fn reopen(&self) {
        self.is_busy.store(false, Ordering::Release);
    }

    /// Accepts connections until the process ends, in a thread of its own. Each coordinator that
    /// has greeted is passed to `accepted`, one at a time.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn accept_all(
        self: &Arc<Door>,
        listener: TcpListener,
        accepted: impl Fn(Accepted) + Send + Sync + 'static,
    ) -> Result<()> {
        let (door, accepted) = (Arc::clone(self), Arc::new(accepted));
        let accept = move || {
            loop {
                let Ok((stream, from)) = listener.accept() else {
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                };
                // One too many is closed.
                let Some(opening) = door.count(from.ip()) else { continue };
                let accepted = Arc::clone(&accepted);
                let started = thread::Builder::new().spawn(move || opening.open(stream, from, &*accepted));
                if let Err(error) = started {
                    report_to_stderr(&format!("refused {from}: starting a thread: {error}"));
                }
            }
        };
        thread::Builder::new().spawn(accept).context("starting a thread")?;
        Ok(())
    }

    fn report_refusal(&self, refusal: &str, now: Instant) {
        let line = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).line(refusal, now);
        line.iter().for_each(|line| report_to_stderr(line));
    }

    fn opening(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection. `None` if there are too many.
    fn count(self: &Arc<Door>, from: IpAddr) -> Option<Opening> {
        let network = network(from);
        let mut opening = self.opening();
        let of_network = opening.iter().filter(|other| **other == network).count();
        if opening.len() >= MAX_OPENING || of_network >= MAX_OPENING_OF_NETWORK {
            return None;
        }
        opening.push(network);
        Some(Opening { door: Arc::clone(self), network })
    }

    /// Checks a coordinator and greets it. `None` if it is refused because there is a session
    /// already.
    fn admit(&self, stream: TcpStream, from: SocketAddr) -> Result<Option<Accepted>> {
        prepare(&stream)?;
        let at = self.address.map_or_else(|| stream.local_addr().map(|at| at.ip()), Ok)?;
        let opened = tls::accept(stream, &self.config, &self.token, Instant::now() + OPEN_TIMEOUT);
        let (mut link, deadline) = opened?;
        if self.is_busy.swap(true, Ordering::AcqRel) {
            refuse(&mut link, "it is busy with another session: wait until that has ended, or stop it");
            return Ok(None);
        }
        let greeted = peer::greet(link, &hello().with_addresses(at, None));
        deadline.lift();
        if greeted.is_err() {
            self.reopen();
        }
        Ok(Some(Accepted { greeted: greeted?, from, at }))
    }
}

impl Opening {
    /// Admits a coordinator, or reports why not.
    fn open(self, stream: TcpStream, from: SocketAddr, accepted: &dyn Fn(Accepted)) {
        let admitted = self.door.admit(stream, from);
        let door = Arc::clone(&self.door);
        drop(self);
        match admitted {
            Ok(Some(coordinator)) => accepted(coordinator),
            Ok(None) => {}
            Err(error) => door.report_refusal(&format!("refused {from}: {error:#}"), Instant::now()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_does_not_keep_others_out_and_connections_count_until_they_end() {
        let door = Door::new(Token::random().unwrap(), None).unwrap();
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        // Addresses of one network of IPv6, which a stranger can have at will.
        let mut opening: Vec<_> = (0..20).filter_map(|n| door.count(ip(&format!("2001:db8::{n:x}")))).collect();
        assert_eq!(opening.len(), MAX_OPENING_OF_NETWORK);
        opening.extend((0..20).filter_map(|_| door.count(ip("192.0.2.1"))));
        assert_eq!(opening.len(), MAX_OPENING);
        assert!(door.count(ip("192.0.2.2")).is_none());
        opening.pop();
        assert!(door.count(ip("192.0.2.2")).is_some());
        drop(opening);
        assert!(door.opening().is_empty());
    }

    #[test]
    fn an_address_of_ipv4_is_its_own_network_in_any_form() {
        let ip = |text: &str| network(text.parse().unwrap());
        assert_eq!(ip("::ffff:192.0.2.1"), ip("192.0.2.1"));
        assert_ne!(ip("192.0.2.1"), ip("192.0.2.2"));
        assert_eq!(ip("2001:db8::1"), ip("2001:db8::ffff:0:0:1"));
        assert_ne!(ip("2001:db8::1"), ip("2001:db8:0:1::1"));
    }

    #[test]
    fn strangers_do_not_fill_a_log() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let lines: Vec<_> = (0..100).filter_map(|_| refusals.line("refused", now)).collect();
        assert_eq!(lines.len(), MAX_REFUSALS as usize);
        assert!(lines.last().unwrap().contains("not shown"), "{lines:?}");
        assert_eq!(refusals.line("refused", now + REFUSALS_TIME), Some(String::from("refused")));
    }
}
