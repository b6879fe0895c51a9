//! Sessions over TCP: connects to a peer, and waits for coordinators.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use estafette_measure::hosts::{OtherHost, peer, refuse, remote};
use rustix::net::sockopt;
use rustls::ServerConfig;

use super::target::Target;
use super::tls;
use super::token::{Token, VARIABLE};
use crate::args::ToHost;
use crate::report_to_stderr;

/// How long a connection, and everything until the greeting, may take.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the other side may not receive what is sent to it.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of connections whose token is being checked at the same time.
const MAX_OPENING: usize = 8;
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
    let copy = stream.try_clone()?;
    let deadline = Instant::now() + OPEN_TIMEOUT;
    let link = tls::connect(stream, &token, deadline).context(name.clone())?;
    until_greeting(&copy)?;
    let greeted = remote::greet(link, &super::hello()).context(name.clone())?;
    after_greeting(&copy)?;
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
    Ok(())
}

fn until_greeting(stream: &TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(OPEN_TIMEOUT))?;
    Ok(stream.set_write_timeout(Some(SEND_TIMEOUT))?)
}

fn after_greeting(stream: &TcpStream) -> Result<()> {
    Ok(stream.set_read_timeout(None)?)
}

/// A coordinator that has proved the token and greeted.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) greeted: peer::Greeted,
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
    /// The number of connections that have not greeted yet.
    opening: AtomicUsize,
}

impl Door {
    /// `address` is the one at which the measured programs listen, if it is not the one of the session.
    ///
    /// # Errors
    /// If no certificate can be made.
    pub(crate) fn new(token: Token, address: Option<IpAddr>) -> Result<Arc<Door>> {
        let config = tls::server_config()?;
        Ok(Arc::new(Door { token, config, address, is_busy: AtomicBool::new(false), opening: AtomicUsize::new(0) }))
    }

    /// Lets the next coordinator in, after a session.
    pub(crate) fn reopen(&self) {
        self.is_busy.store(false, Ordering::Release);
    }

    /// Accepts connections until the process ends, in a thread of its own. Each coordinator that has greeted
    /// is passed to `accepted`, one at a time.
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
                if door.opening.fetch_add(1, Ordering::AcqRel) >= MAX_OPENING {
                    door.opening.fetch_sub(1, Ordering::AcqRel);
                    continue;
                }
                let (door, accepted) = (Arc::clone(&door), Arc::clone(&accepted));
                let of_thread = Arc::clone(&door);
                let started = thread::Builder::new().spawn(move || of_thread.open(stream, from, &*accepted));
                if let Err(error) = started {
                    door.opening.fetch_sub(1, Ordering::AcqRel);
                    report_to_stderr(&format!("refused {from}: starting a thread: {error}"));
                }
            }
        };
        thread::Builder::new().spawn(accept).context("starting a thread")?;
        Ok(())
    }

    /// Admits a coordinator, or reports why not.
    fn open(&self, stream: TcpStream, from: SocketAddr, accepted: &dyn Fn(Accepted)) {
        let admitted = self.admit(stream, from);
        self.opening.fetch_sub(1, Ordering::AcqRel);
        match admitted {
            Ok(Some(coordinator)) => accepted(coordinator),
            Ok(None) => {}
            Err(error) => report_to_stderr(&format!("refused {from}: {error:#}")),
        }
    }

    /// Checks a coordinator and greets it. `None` if it is refused because there is a session already.
    fn admit(&self, stream: TcpStream, from: SocketAddr) -> Result<Option<Accepted>> {
        prepare(&stream)?;
        let at = self.address.map_or_else(|| stream.local_addr().map(|at| at.ip()), Ok)?;
        let copy = stream.try_clone()?;
        let mut link = tls::accept(stream, &self.config, &self.token, Instant::now() + OPEN_TIMEOUT)?;
        until_greeting(&copy)?;
        if self.is_busy.swap(true, Ordering::AcqRel) {
            refuse(&mut link, "it is busy with another session: wait until that has ended, or stop it");
            return Ok(None);
        }
        let greeted = peer::greet(link, &super::hello().with_addresses(at, None))
            .and_then(|greeted| after_greeting(&copy).map(|()| greeted));
        if greeted.is_err() {
            self.reopen();
        }
        Ok(Some(Accepted { greeted: greeted?, from, at }))
    }
}
