//! The coordinator's side of a session: starts children on the other host, and stands between their
//! sockets and the session.
//!
//! For the coordinator of an instance, a child on the other host has a `SOCK_SEQPACKET` socket as
//! any other. The far end of that socket is in this process. One thread for each child sends what
//! the coordinator writes there to the other host. One thread for the session writes there what
//! arrives.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::ioctl_fionbio;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::clock_offset::{ClockProbe, Offset};
use super::packet::{self, FromPeer, ToPeer};
use super::peer_record::Peer;
use super::remote_child::Child;
use super::remote_process::{RemoteProcess, forward};
use super::session_state::{LOOK, SessionState};
use super::{Hello, SessionLink, frame};
use crate::interrupt::Interrupt;
use crate::limits;
use crate::pace::LinkEstimate;
use crate::protocol::Assignment;

/// How long the peer may take to answer a request, or to confirm the start or the end of a child.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of answers that wait to be read. Requests are made one after the other.
const MAX_ANSWERS: usize = 8;
/// The number of pings from which the session's round trip is taken.
const PINGS: u64 = 5;

/// A greeted peer, before the session has its threads.
#[derive(Debug)]
pub struct GreetedPeer {
    link: SessionLink,
    theirs: Hello,
    /// How long the peer may take to answer.
    pub(super) answer_timeout: Duration,
}

/// Greets the peer at the other end of `link`. Blocks until it answers: the link's reader has a
/// time-out if it needs one.
///
/// # Errors
/// When the peer refuses, is no peer, or has another version.
pub fn greet(mut link: SessionLink, ours: &Hello) -> Result<GreetedPeer> {
    match packet::greet(&mut link, ours) {
        Ok(theirs) => Ok(GreetedPeer { link, theirs, answer_timeout: ANSWER_TIMEOUT }),
        Err(error) => {
            (link.close)();
            Err(error)
        }
    }
}

impl GreetedPeer {
    /// The peer's description of itself.
    pub fn peer(&self) -> &Hello {
        &self.theirs
    }

    /// Starts the session. `address` is the one at which children on this host listen, `name` how
    /// the other host was reached, for the record. From now on the link's reader must not time out.
    ///
    /// # Errors
    /// When the peer does not answer.
    pub fn start(self, address: IpAddr, name: String) -> Result<OtherHost> {
        let GreetedPeer { link: SessionLink { mut reader, writer, close }, theirs, answer_timeout } = self;
        let shared = Arc::new(SessionState::new(writer, answer_timeout));
        let (answer, answers) = sync_channel(MAX_ANSWERS);
        let of_reader = Arc::clone(&shared);
        let reading = thread::Builder::new().spawn(move || {
            let why = loop {
                match frame::read(&mut reader) {
                    Ok(Some(packet)) => match of_reader.dispatch(packet, &answer) {
                        Ok(()) => {}
                        Err(why) => break why,
                    },
                    Ok(None) => break String::from("the other side closed the connection"),
                    Err(error) => break format!("{error:#}"),
                }
            };
            of_reader.lose(why);
        });
        let reading = reading.context("starting a thread")?;
        let Hello { tool, commit, fingerprint, address: listens_at, .. } = theirs;
        let mut session = CoordinatorSession {
            shared,
            answers: Mutex::new(answers),
            address,
            listens_at,
            peer: Peer { address: name, tool, commit, fingerprint, round_trip_ns: 0, link: None, other_load: None },
            fastest_round_trip: Duration::ZERO,
            link: OnceLock::new(),
            clock: Mutex::default(),
            next_id: AtomicU64::new(0),
            close: Mutex::new(Some(close)),
            reading: Some(reading),
        };
        let [fastest, longest] = session.measure_round_trips()?;
        session.fastest_round_trip = fastest;
        session.peer.round_trip_ns = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Ok(OtherHost(Arc::new(session)))
    }
}

/// The other host of a run. Clones share the session, which ends with the last of them.
#[derive(Clone, Debug)]
pub struct OtherHost(Arc<CoordinatorSession>);

impl OtherHost {
    /// The other host, for the record.
    pub fn peer(&self) -> &Peer {
        &self.0.peer
    }

    /// The longest round trip of a packet of the session, from a few.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.0.peer.round_trip_ns)
    }

    /// The fastest round trip of a packet of the session, from a few.
    pub fn fastest_round_trip(&self) -> Duration {
        self.0.fastest_round_trip
    }

    /// What is known of the link. Before [`OtherHost::measure_link`] it is only the round trip of
    /// the session.
    pub(crate) fn link_estimate(&self) -> LinkEstimate {
        let of_session = LinkEstimate { round_trip_ns: self.0.peer.round_trip_ns, ..LinkEstimate::default() };
        self.0.link.get().copied().unwrap_or(of_session)
    }

    /// The address at which children on this host listen.
    pub(crate) fn address(&self) -> IpAddr {
        self.0.address
    }

    /// The address at which children on the other host listen, as it says.
    pub fn listens_at(&self) -> Option<IpAddr> {
        self.0.listens_at
    }

    /// Measures the limits of the link to the other host. Blocks for about 5 s; on a link with long
    /// delays, longer, but not for more than a minute. `None` if the user interrupts. What is still
    /// being measured then ends with the session.
    ///
    /// # Errors
    /// When the session has ended, or the measured sockets cannot reach the other host.
    pub fn measure_link(&self, interrupt: &mut Interrupt) -> Result<Option<limits::link::Link>> {
        let host = self.listens_at().context("the other host does not say at which address it listens")?;
        let ports = match self.0.request(&ToPeer::MeasureLink {}, || interrupt.is_requested())? {
            Some(FromPeer::LinkPorts { ports }) => ports,
            Some(other) => bail!("the peer answered a measurement of the link with {other:?}"),
            None => return Ok(None),
        };
        let (sender, measured) = channel();
        // Its sockets block. It ends soon after the peer has stopped to answer.
        let measure = move || drop(sender.send(limits::link::measure(host, ports)));
        thread::Builder::new().spawn(measure).context("starting a thread")?;
        let link = wait_for(&measured, None, || interrupt.is_requested() || self.lost().is_some());
        let link = link.map_err(|_| anyhow::anyhow!("the measurement of the link has ended without a result"))?;
        match (link, self.lost()) {
            (Some(link), _) => {
                let link = link?;
                let _ = self.0.link.set(LinkEstimate {
                    round_trip_ns: link.round_trip_ns as u64,
                    packet_loss: link.loss.largest(),
                    rate_bytes_per_s: link.rate_bytes_per_s(),
                });
                Ok(Some(link))
            }
            (None, Some(_)) => Err(self.0.shared.ended()),
            (None, None) => Ok(None),
        }
    }

    /// How busy the other host was since the session began: the part of its cores' time that other
    /// processes used. `None` if it is unknown.
    ///
    /// # Errors
    /// When the session has ended.
    pub fn other_load(&self) -> Result<Option<f64>> {
        match self.0.request(&ToPeer::Load {}, || false)? {
            Some(FromPeer::Load { load }) if load.is_possible() => Ok(load.other_load),
            other => bail!("the peer answered a question about its load with {other:?}"),
        }
    }

    /// By how much the clock of the other host is ahead of this one's. Blocks as long as
    /// [`ClockProbe::estimate`]. `None` if the user interrupts.
    ///
    /// # Errors
    /// When the session has ended, or UDP packets do not reach the other host.
    pub(crate) fn clock_offset(&self, interrupt: &mut Interrupt) -> Result<Option<Offset>> {
        let mut clock = self.0.clock.lock().unwrap_or_else(PoisonError::into_inner);
        let probe = match &mut *clock {
            Some(probe) => probe,
            none => {
                let host = self.listens_at().context("the other host does not say at which address it listens")?;
                match self.0.request(&ToPeer::OpenClock {}, || interrupt.is_requested())? {
                    Some(FromPeer::ClockPort { port }) => {
                        none.insert(ClockProbe::connect(host, port, self.round_trip())?)
                    }
                    Some(other) => bail!("the peer answered a question about its clock with {other:?}"),
                    None => return Ok(None),
                }
            }
        };
        probe.estimate(|| interrupt.is_requested()).context("comparing the clocks of both hosts")
    }

    /// Compares the clocks of both hosts once, to see whether it is possible. Returns the largest
    /// possible error of the offset, in nanoseconds; `None` if the user interrupts.
    ///
    /// # Errors
    /// When the session has ended, or UDP packets do not reach the other host.
    pub fn compare_clocks(&self, interrupt: &mut Interrupt) -> Result<Option<u64>> {
        Ok(self.clock_offset(interrupt)?.map(|offset| offset.error_ns))
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
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.context("making a child's socket")?;
        ioctl_fionbio(&ours, true).context("making a child's socket")?;
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let child = Arc::new(Child::new(id, theirs));
        shared.children().insert(id, Arc::clone(&child));
        let process = RemoteProcess::new(Arc::clone(&child), Arc::clone(shared));
        // Whoever ends the session from now on closes this child's socket too.
        if self.lost().is_some() {
            return Err(shared.ended());
        }
        shared.send(&ToPeer::Start { id, assignment: Box::new(assignment) })?;
        let of_child = Arc::clone(shared);
        thread::Builder::new().spawn(move || forward(&child, &of_child)).context("starting a thread")?;
        Ok((ours, process))
    }
}

struct CoordinatorSession {
    shared: Arc<SessionState>,
    /// The peer's answers to this side's requests.
    answers: Mutex<Receiver<FromPeer>>,
    /// The address at which children on this host listen.
    address: IpAddr,
    /// The address at which children on the other host listen, as it says.
    listens_at: Option<IpAddr>,
    peer: Peer,
    fastest_round_trip: Duration,
    /// Asks for the time of the other host, since it was first needed.
    clock: Mutex<Option<ClockProbe>>,
    /// What is known of the link, once it has been measured.
    link: OnceLock<LinkEstimate>,
    next_id: AtomicU64,
    close: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    reading: Option<JoinHandle<()>>,
}

impl fmt::Debug for CoordinatorSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatorSession").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl CoordinatorSession {
    /// Sends a packet and waits for the answer. `None` if it is cancelled; the session then has no
    /// further request.
    fn request(&self, packet: &ToPeer, is_cancelled: impl FnMut() -> bool) -> Result<Option<FromPeer>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.lost.get().is_some() {
            return Err(self.shared.ended());
        }
        self.shared.send(packet)?;
        let deadline = self.shared.answer_deadline();
        wait_for(&answers, Some(deadline), is_cancelled).map_err(|missing| {
            // The answer may still come, and would then belong to the next request.
            match missing {
                Missing::Late => self.shared.unanswered("a request"),
                Missing::Ended => self.shared.lose(String::from("the connection was closed")),
            }
            self.shared.ended()
        })
    }

    /// The fastest round trip of a few, and the longest.
    fn measure_round_trips(&self) -> Result<[Duration; 2]> {
        let (mut fastest, mut longest) = (Duration::MAX, Duration::ZERO);
        for number in 0..PINGS {
            let sent = Instant::now();
            match self.request(&ToPeer::Ping { number }, || false)? {
                Some(FromPeer::Pong { number: theirs }) if theirs == number => {
                    fastest = fastest.min(sent.elapsed());
                    longest = longest.max(sent.elapsed());
                }
                other => bail!("the peer answered a ping with {other:?}"),
            }
        }
        Ok([fastest, longest])
    }
}

/// Why a value did not come.
#[derive(Clone, Copy, Debug)]
enum Missing {
    /// The deadline has passed.
    Late,
    /// The thread that sends it has ended.
    Ended,
}

/// Waits for a value that another thread sends. `None` if it is cancelled.
///
/// # Errors
/// When the deadline has passed, or the thread has ended without a value.
fn wait_for<T>(
    receiver: &Receiver<T>,
    deadline: Option<Instant>,
    mut is_cancelled: impl FnMut() -> bool,
) -> Result<Option<T>, Missing> {
    loop {
        if is_cancelled() {
            return Ok(None);
        }
        match receiver.recv_timeout(LOOK) {
            Ok(value) => return Ok(Some(value)),
            Err(RecvTimeoutError::Disconnected) => return Err(Missing::Ended),
            Err(RecvTimeoutError::Timeout) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                return Err(Missing::Late);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Drop for CoordinatorSession {
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
