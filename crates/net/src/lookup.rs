//! Resolves host names on background threads, because the system's resolver blocks.
//!
//! Each lookup may start a thread, up to a bound; a thread ends when no name is left. Threads hold
//! only a weak reference to the node while they resolve, so dropping a node leaves behind only the
//! lookups in progress.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, Weak};
use std::thread;

use crate::Address;
use crate::address::literal;
use crate::connection::Connection;
use crate::datagrams::Socket;
use crate::lock::lock;
use crate::slab::Key;

/// How many names of a node are resolved at a time.
const MAX_THREADS: usize = 8;
/// The minimum queue length at which lookups that nobody waits for any more are removed.
const MIN_PRUNE_LEN: usize = 1024;

/// The host name and port of an address, if the name has to be resolved.
pub(crate) fn name(address: &Address) -> Option<(&str, u16)> {
    let (host, port) = (address.host()?, address.port()?);
    // A host with a colon is an IPv6 address with a zone, which the system resolves locally.
    (literal(host).is_none() && !host.contains(':')).then_some((host, port))
}

/// Resolves the host of an address. The result is empty if the address has no host.
pub(crate) fn resolve(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match (address.host(), address.port()) {
        (Some(host), Some(port)) => addresses(host, port),
        _ => Ok(Vec::new()),
    }
}

/// Resolves a host to at least one address.
fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Some(ip) = literal(host) {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let failed = |error: io::Error| io::Error::new(error.kind(), format!("looking up {host}: {error}"));
    let found: Vec<_> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    if found.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, format!("{host} has no address")));
    }
    Ok(found)
}

/// The address with a numeric host.
pub(crate) fn numeric(address: &Address, to: SocketAddr) -> io::Result<Address> {
    format!("{}://{to}", address.scheme()).parse().map_err(io::Error::other)
}

/// Who waits for a lookup.
pub(crate) enum LookupOwner {
    Stream(Weak<Connection>),
    Datagrams(Weak<Socket>),
}

impl LookupOwner {
    fn is_alive(&self) -> bool {
        match self {
            LookupOwner::Stream(connection) => connection.strong_count() > 0,
            LookupOwner::Datagrams(socket) => socket.strong_count() > 0,
        }
    }
}

/// A name to be resolved, and who waits for it.
struct Lookup {
    key: Key,
    waiting: LookupOwner,
    host: Box<str>,
    port: u16,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Lookup>,
    threads: usize,
    /// The queue length at which lookups that nobody waits for are removed next.
    prune_at: usize,
}

/// The function that resolves a host.
pub(crate) type Resolver = Arc<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// The function that gets a result, in the thread of the lookup.
type Report = Box<dyn Fn(Key, LookupOwner, io::Result<Vec<SocketAddr>>) + Send + Sync>;

/// The lookups of a node.
pub(crate) struct Lookups {
    pub(crate) resolver: Resolver,
    report: Report,
    queue: Mutex<Queue>,
}

impl Lookups {
    /// `report` gets the results.
    pub(crate) fn new(report: Report) -> Lookups {
        Lookups { resolver: Arc::new(addresses), report, queue: Mutex::default() }
    }

    /// Starts a lookup.
    ///
    /// # Errors
    ///
    /// If there is no lookup thread, and none can be started.
    pub(crate) fn begin(
        self: &Arc<Lookups>,
        key: Key,
        waiting: LookupOwner,
        (host, port): (&str, u16),
    ) -> io::Result<()> {
        let mut queue = lock(&self.queue);
        if queue.waiting.len() >= queue.prune_at {
            queue.waiting.retain(|lookup| lookup.waiting.is_alive());
            queue.prune_at = MIN_PRUNE_LEN.max(queue.waiting.len() * 2);
        }
        if queue.threads < MAX_THREADS {
            let lookups = Arc::downgrade(self);
            match thread::Builder::new().name("estafette-lookup".to_owned()).spawn(move || work(&lookups)) {
                Ok(_) => queue.threads += 1,
                Err(error) if queue.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        queue.waiting.push_back(Lookup { key, waiting, host: host.into(), port });
        Ok(())
    }

    /// The next lookup that somebody waits for. A thread that gets none ends.
    fn next(&self) -> Option<Lookup> {
        let mut queue = lock(&self.queue);
        while let Some(lookup) = queue.waiting.pop_front() {
            if lookup.waiting.is_alive() {
                return Some(lookup);
            }
        }
        queue.threads -= 1;
        None
    }
}

/// The body of a lookup thread.
fn work(lookups: &Weak<Lookups>) {
    while let Some((lookup, resolver)) = lookups.upgrade().and_then(|all| Some((all.next()?, all.resolver.clone()))) {
        let found = resolver(&lookup.host, lookup.port);
        if let Some(lookups) = lookups.upgrade() {
            (lookups.report)(lookup.key, lookup.waiting, found);
        }
    }
}
