//! The coordinator's side of a session: starts children on the other host, and stands between their
//! sockets and the session.
//!
//! For the coordinator of an instance, a child on the other host has a `SOCK_SEQPACKET` socket as any
//! other. The far end of that socket is in this process. One thread for each child sends what the
//! coordinator writes there to the other host. One thread for the session writes there what arrives.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::packet::{self, Ended, FromPeer, ToPeer};
use super::report::is_possible;
use super::{Hello, Link, frame};
use crate::limits;
use crate::protocol::{self, Assignment, ToChild, ToCoordinator};
use crate::record::Peer;

/// How long the peer may take to answer a ping, or to end a child.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of the last lines of a child, in characters.
const MAX_STDERR: usize = 4 * 1024;
/// The number of pings from which the session's round trip is taken.
const PINGS: u64 = 5;

/// A greeted peer, before the session has its threads.
#[derive(Debug)]
pub struct Greeted {
    link: Link,
    theirs: Hello,
}

/// Greets the peer at the other end of `link`. Blocks until it answers: the link's reader has a
/// time-out if it needs one.
///
/// # Errors
/// When the peer refuses, is no peer, or has another version.
pub fn greet(mut link: Link, ours: &Hello) -> Result<Greeted> {
    match packet::greet(&mut link, ours) {
        Ok(theirs) => Ok(Greeted { link, theirs }),
        Err(error) => {
            (link.close)();
            Err(error)
        }
    }
}

impl Greeted {
    /// The peer's description of itself.
    pub fn peer(&self) -> &Hello {
        &self.theirs
    }

    /// Starts the session. `address` is the one at which children on this host listen, `name` how the
    /// other host was reached, for the record. From now on the link's reader must not time out.
    ///
    /// # Errors
    /// When the peer does not answer.
    pub fn start(self, address: IpAddr, name: String) -> Result<OtherHost> {
        let Greeted { link: Link { mut reader, writer, close }, theirs } = self;
        let shared = Arc::new(Shared { writer: Mutex::new(writer), children: Mutex::default(), lost: OnceLock::new() });
        let (answer, answers) = channel();
        let of_reader = Arc::clone(&shared);
        let reading = thread::Builder::new().spawn(move || {
            let why = loop {
                match frame::read(&mut reader) {
                    Ok(Some(packet)) => of_reader.dispatch(packet, &answer),
                    Ok(None) => break String::from("the other side closed the connection"),
                    Err(error) => break format!("{error:#}"),
                }
            };
            of_reader.lose(why);
        });
        let reading = reading.context("starting a thread")?;
        let Hello { tool, commit, fingerprint, address: listens_at, .. } = theirs;
        let mut session = Session {
            shared,
            answers: Mutex::new(answers),
            address,
            listens_at,
            peer: Peer { address: name, tool, commit, fingerprint, round_trip_ns: 0, link: None },
            next_id: AtomicU64::new(0),
            close: Mutex::new(Some(close)),
            reading: Some(reading),
        };
        let round_trip = session.measure_round_trip()?;
        session.peer.round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        Ok(OtherHost(Arc::new(session)))
    }
}

/// The other host of a run. Clones share the session, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct OtherHost(Arc<Session>);

impl OtherHost {
    /// The other host, for the record.
    pub fn peer(&self) -> &Peer {
        &self.0.peer
    }

    /// The longest round trip of a packet of the session, from a few.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.0.peer.round_trip_ns)
    }

    /// The address at which children on this host listen.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// The address at which children on the other host listen, as it says.
    pub fn listens_at(&self) -> Option<IpAddr> {
        self.0.listens_at
    }

    /// Measures the limits of the link to the other host. Blocks for about 3 s; on a link with long
    /// delays, longer, but not for more than a minute.
    ///
    /// # Errors
    /// When the session has ended, or the measured sockets cannot reach the other host.
    pub fn measure_link(&self) -> Result<limits::link::Link> {
        let host = self.listens_at().context("the other host does not say at which address it listens")?;
        match self.0.request(&ToPeer::MeasureLink {})? {
            FromPeer::LinkPorts { ports } => limits::link::measure(host, ports),
            other => bail!("the peer answered a measurement of the link with {other:?}"),
        }
    }

    /// Why the session has ended, if it has.
    pub fn lost(&self) -> Option<&str> {
        self.0.shared.lost.get().map(String::as_str)
    }

    /// Starts a child on the other host. Returns the coordinator's end of its socket, non-blocking,
    /// and its process.
    ///
    /// # Errors
    /// When the session has ended.
    pub(crate) fn start(&self, assignment: Assignment) -> Result<(OwnedFd, RemoteProcess)> {
        let shared = &self.0.shared;
        if let Some(why) = self.lost() {
            bail!("the session with the other host has ended: {why}");
        }
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.context("making a child's socket")?;
        ioctl_fionbio(&ours, true).context("making a child's socket")?;
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let child = Arc::new(Child { id, theirs, ended: Mutex::default(), has_ended: Condvar::new() });
        shared.children().insert(id, Arc::clone(&child));
        let process = RemoteProcess { child: Arc::clone(&child), shared: Arc::clone(shared) };
        shared.send(&ToPeer::Start { id, assignment: Box::new(assignment) })?;
        let of_child = Arc::clone(shared);
        thread::Builder::new().spawn(move || forward(&child, &of_child)).context("starting a thread")?;
        Ok((ours, process))
    }
}

struct Session {
    shared: Arc<Shared>,
    /// The peer's answers to this side's requests.
    answers: Mutex<Receiver<FromPeer>>,
    /// The address at which children on this host listen.
    address: IpAddr,
    /// The address at which children on the other host listen, as it says.
    listens_at: Option<IpAddr>,
    peer: Peer,
    next_id: AtomicU64,
    close: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    reading: Option<JoinHandle<()>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Session {
    /// Sends a packet and waits for the answer.
    fn request(&self, packet: &ToPeer) -> Result<FromPeer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.send(packet)?;
        match answers.recv_timeout(ANSWER_TIMEOUT) {
            Ok(answer) => Ok(answer),
            Err(_) => match self.shared.lost.get() {
                Some(why) => bail!("the session with the other host has ended: {why}"),
                None => bail!("the peer did not answer within {} s", ANSWER_TIMEOUT.as_secs()),
            },
        }
    }

    fn measure_round_trip(&self) -> Result<Duration> {
        let mut longest = Duration::ZERO;
        for number in 0..PINGS {
            let sent = Instant::now();
            match self.request(&ToPeer::Ping { number })? {
                FromPeer::Pong { number: theirs } if theirs == number => longest = longest.max(sent.elapsed()),
                other => bail!("the peer answered a ping with {other:?}"),
            }
        }
        Ok(longest)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // An error means that the session has ended already.
        let _ = self.shared.send(&ToPeer::End {});
        self.shared.lose(String::from("this side ended it"));
        if let Some(close) = self.close.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            close();
        }
        if let Some(reading) = self.reading.take() {
            let _ = reading.join();
        }
    }
}

/// What the threads of a session share.
struct Shared {
    writer: Mutex<Box<dyn Write + Send>>,
    children: Mutex<HashMap<u64, Arc<Child>>>,
    /// Why the session has ended.
    lost: OnceLock<String>,
}

impl Shared {
    fn children(&self) -> MutexGuard<'_, HashMap<u64, Arc<Child>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a packet to the peer.
    ///
    /// # Errors
    /// When the session has ended.
    fn send(&self, packet: &ToPeer) -> Result<()> {
        let sent = frame::write(&mut *self.writer.lock().unwrap_or_else(PoisonError::into_inner), packet);
        sent.map_err(|error| {
            self.lose(format!("{error:#}"));
            let why = self.lost.get().map_or("", String::as_str);
            anyhow::anyhow!("the session with the other host has ended: {why}")
        })
    }

    /// Notes that the session has ended, and closes the sockets of its children.
    fn lose(&self, why: String) {
        let _ = self.lost.set(why);
        self.children().values().for_each(|child| child.close());
    }

    fn dispatch(&self, packet: FromPeer, answers: &Sender<FromPeer>) {
        match packet {
            FromPeer::Child { id, packet } => {
                let child = self.children().get(&id).cloned();
                // Nobody waits for the packets of a child that this side has ended.
                if let Some(child) = child {
                    child.deliver(packet);
                }
            }
            FromPeer::Ended { id, ended } => {
                if let Some(child) = self.children().remove(&id) {
                    child.end(ended);
                }
            }
            // The receiver lives as long as the session.
            answer => drop(answers.send(answer)),
        }
    }
}

/// A child on the other host.
struct Child {
    id: u64,
    /// The far end of the coordinator's socket.
    theirs: OwnedFd,
    ended: Mutex<Option<Ended>>,
    has_ended: Condvar,
}

impl Child {
    /// Passes a packet of the child on to the coordinator. Blocks while the coordinator does not read,
    /// until it closes its end.
    fn deliver(&self, packet: ToCoordinator) {
        let packet = match packet {
            // An address in the memory of a process on the other host.
            ToCoordinator::Ready { .. } => ToCoordinator::Ready { exchange: None },
            ToCoordinator::Report(report) if !is_possible(&report) => {
                ToCoordinator::Failed { error: String::from("the other host reported numbers that are not possible") }
            }
            packet => packet,
        };
        // An error means that the coordinator has closed its end.
        let _ = protocol::send(&self.theirs, &packet, &[]);
    }

    fn end(&self, mut ended: Ended) {
        ended.stderr = ended.stderr.chars().take(MAX_STDERR).collect();
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
        self.has_ended.notify_all();
        self.close();
    }

    /// Closes the socket in both directions. What is in it can still be read.
    fn close(&self) {
        let _ = rustix::net::shutdown(&self.theirs, rustix::net::Shutdown::Both);
    }
}

/// Sends the packets for a child to the other host, until the coordinator closes its end.
fn forward(child: &Child, shared: &Shared) {
    loop {
        let sent = match protocol::receive::<ToChild>(&child.theirs) {
            Ok(Some((packet, descriptors))) if descriptors.is_empty() => {
                shared.send(&ToPeer::Child { id: child.id, packet })
            }
            Ok(Some(_)) => {
                let error = String::from(
                    "a descriptor was published for it, and descriptors do not cross to another host: publish an address",
                );
                child.deliver(ToCoordinator::Failed { error });
                return;
            }
            Ok(None) | Err(_) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// The process of a child on the other host. It is ended when this is dropped.
pub(crate) struct RemoteProcess {
    child: Arc<Child>,
    shared: Arc<Shared>,
}

impl fmt::Debug for RemoteProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteProcess").field(&self.child.id).finish()
    }
}

impl RemoteProcess {
    /// Its exit status, if it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        self.end().map(|ended| ExitStatus::from_raw(ended.status))
    }

    /// Waits for it to end, or for the session to be lost, until `deadline`.
    pub(crate) fn wait_until(&self, deadline: Instant) -> Option<ExitStatus> {
        let mut ended = self.child.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(ended) = &*ended {
                return Some(ExitStatus::from_raw(ended.status));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.lost.get().is_some() {
                return None;
            }
            // Looks now and then whether the session is lost.
            let nap = left.min(Duration::from_millis(20));
            ended = self.child.has_ended.wait_timeout(ended, nap).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends it, and waits until the other host has confirmed that.
    pub(crate) fn kill(&self) {
        if self.ended().is_none() && self.shared.send(&ToPeer::Kill { id: self.child.id }).is_ok() {
            self.wait_until(Instant::now() + ANSWER_TIMEOUT);
        }
    }

    /// The last lines that it wrote to stderr. They are known when it has ended, so this ends it.
    pub(crate) fn stderr(&self) -> String {
        self.kill();
        self.end().map(|ended| ended.stderr).unwrap_or_default()
    }

    /// The number of processes that it left running on the other host.
    pub(crate) fn strays(&self) -> usize {
        self.end().map_or(0, |ended| ended.strays)
    }

    /// Why the session has ended, if that happened before the process did.
    pub(crate) fn lost(&self) -> Option<&str> {
        if self.ended().is_some() { None } else { self.shared.lost.get().map(String::as_str) }
    }

    fn end(&self) -> Option<Ended> {
        self.child.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        self.kill();
        self.shared.children().remove(&self.child.id);
        self.child.close();
    }
}
