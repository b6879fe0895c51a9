//! The serving side of a session: starts children of its own program for a coordinator on another
//! host.
//!
//! The coordinator is trusted to use this host's cores and network, and nothing else. The only
//! program that is started is this one, as a child, and only for the consumer of a mechanism in
//! this program's registry. The peer chooses the directory, the address and the cores itself. No
//! descriptor crosses. When the session ends, in whatever way, its children, what they started and
//! its directory go.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::clock_offset::ClockServer;
use super::load::LoadWatch;
use super::packet::{self, Ended, FromPeer, ToPeer};
use super::{Hello, HostLoad, SessionLink, frame};
use crate::admission::can_run;
use crate::case::{Case, Place, Role};
use crate::clock::now_ns;
use crate::coordinator::Scratch;
use crate::coordinator::children::{ChildProcess, Children, adopt_strays};
use crate::coordinator::instance::{EXIT_TIMEOUT, START_DELAY_NS};
use crate::coordinator::placement::{cores, used};
use crate::entry::Registry;
use crate::interrupt::Interrupt;
use crate::limits::available_cpus;
use crate::limits::link::{Responder, Stopper};
use crate::protocol::{self, AT_ONCE, Assignment, ToChild, ToCoordinator};

/// The maximum number of children at the same time. An instance between two hosts has one here.
const MAX_CHILDREN: usize = 64;
/// The maximum number of packets that wait to be handled. Then the coordinator has to wait, too.
const MAX_QUEUED: usize = 64;
/// The longest time from `go` until a child starts.
const MAX_START_DELAY: Duration = Duration::from_secs(60);
/// How often a child that has closed its socket is looked at, until it has exited.
const CLOSING_INTERVAL: Duration = Duration::from_millis(2);

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The coordinator ended it.
    Complete,
    /// The user of this host interrupted it.
    Interrupted,
}

/// A greeted coordinator, before the session begins.
#[derive(Debug)]
pub struct GreetedCoordinator {
    link: SessionLink,
}

/// Greets the coordinator at the other end of `link`. Blocks until it does: the link's reader has a
/// time-out if it needs one. If the versions differ, the session is refused.
///
/// # Errors
/// When the other side is no coordinator or has another version.
pub fn greet(mut link: SessionLink, ours: &Hello) -> Result<GreetedCoordinator> {
    match packet::receive_greeting(&mut link, ours) {
        Ok(_) => Ok(GreetedCoordinator { link }),
        Err(error) => {
            (link.close)();
            Err(error)
        }
    }
}

impl GreetedCoordinator {
    /// Serves the session until it ends. `address` is the one at which the children listen. Call it
    /// in a thread that lives as long as the session: the children end with it.
    ///
    /// # Errors
    /// When the coordinator breaks the protocol, the connection fails, or this host lacks a
    /// resource.
    pub fn serve(self, registry: &Registry, address: IpAddr, interrupt: &mut Interrupt) -> Result<SessionEnd> {
        let GreetedCoordinator { link: SessionLink { reader, writer, close } } = self;
        let served = PeerSession::new(registry, address, reader, writer).and_then(|mut session| {
            let served = session.serve(interrupt);
            if let Err(error) = &served {
                // An error means that the connection has failed, which the coordinator sees too.
                let _ = session.send(&FromPeer::Refused { reason: format!("{error:#}") });
            }
            served
        });
        // The session is dropped, so its children have ended. The reading thread ends with the link.
        close();
        served
    }
}

/// What the reading thread found.
enum Event {
    Packet(ToPeer),
    Closed,
    Failed(anyhow::Error),
}

struct PeerSession<'a> {
    registry: &'a Registry,
    address: IpAddr,
    cpus: Vec<usize>,
    writer: Box<dyn Write + Send>,
    events: Receiver<Event>,
    /// Readable when there are events.
    wake: UnixStream,
    children: BTreeMap<u64, Hosted>,
    /// The measurement of the link, if there was one.
    link: Option<LinkAnswers>,
    /// Answers with this host's clock, if the coordinator has asked for it.
    clock: Option<ClockServer>,
    /// How busy this host is, since the session began.
    load: LoadWatch,
    scratch: Scratch,
}

impl fmt::Debug for PeerSession<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSession").field("children", &self.children.keys()).finish_non_exhaustive()
    }
}

/// The thread that answers the measurement of the link. It is stopped when this is dropped.
struct LinkAnswers {
    thread: JoinHandle<()>,
    stopper: Stopper,
}

impl Drop for LinkAnswers {
    fn drop(&mut self) {
        self.stopper.stop();
    }
}

/// A child of the session, with its directory. It is ended before the directory is removed.
struct Hosted {
    process: Children,
    /// How busy this host is, since it was started.
    load: LoadWatch,
    /// Set when it has closed its socket: until when it may take to exit.
    exit_deadline: Option<Instant>,
    _dir: Scratch,
}

impl Hosted {
    fn child(&mut self) -> Result<&mut ChildProcess> {
        self.process.0.first_mut().context("the child has ended")
    }
}

impl<'a> PeerSession<'a> {
    fn new(
        registry: &'a Registry,
        address: IpAddr,
        reader: Box<dyn Read + Send>,
        writer: Box<dyn Write + Send>,
    ) -> Result<PeerSession<'a>> {
        adopt_strays();
        let scratch = Scratch::new()?;
        let (wake, waker) = UnixStream::pair().context("making a socket")?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let (sender, events) = sync_channel(MAX_QUEUED);
        let reading = thread::Builder::new().spawn(move || read_packets(reader, &sender, &waker));
        reading.context("starting a thread")?;
        let cpus = available_cpus();
        let load = LoadWatch::start(&cpus, &cpus);
        let children = BTreeMap::new();
        Ok(PeerSession {
            registry,
            address,
            cpus,
            writer,
            events,
            wake,
            children,
            link: None,
            clock: None,
            load,
            scratch,
        })
    }

    fn serve(&mut self, interrupt: &mut Interrupt) -> Result<SessionEnd> {
        loop {
            if interrupt.is_requested() {
                return Ok(SessionEnd::Interrupted);
            }
            let readable = self.wait(interrupt)?;
            for id in readable {
                self.forward(id)?;
            }
            self.note_exits()?;
            // However much the coordinator sends.
            while !interrupt.is_requested() {
                match self.events.try_recv() {
                    Ok(Event::Packet(ToPeer::End {}) | Event::Closed) | Err(TryRecvError::Disconnected) => {
                        return Ok(SessionEnd::Complete);
                    }
                    Ok(Event::Packet(packet)) => self.handle(packet)?,
                    Ok(Event::Failed(error)) => return Err(error),
                    Err(TryRecvError::Empty) => break,
                }
            }
        }
    }

    /// Blocks until a child has sent a packet, an event has come, the user interrupts, or a child
    /// that has closed its socket should be looked at. Returns the children that have sent.
    fn wait(&mut self, interrupt: &Interrupt) -> Result<Vec<u64>> {
        let is_closing = self.children.values().any(|hosted| hosted.exit_deadline.is_some());
        let nap = Timespec { tv_sec: 0, tv_nsec: i64::from(CLOSING_INTERVAL.subsec_nanos()) };
        let open = self.children.iter().filter(|(_, hosted)| hosted.exit_deadline.is_none());
        let open: Vec<(u64, _)> =
            open.filter_map(|(id, hosted)| Some((*id, hosted.process.0.first()?.socket.as_fd()))).collect();
        let mut polled: Vec<_> = open.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.wake, PollFlags::IN));
        polled.push(PollFd::new(interrupt, PollFlags::IN));
        match poll(&mut polled, is_closing.then_some(&nap)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for children"),
        }
        let readable = open.iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty());
        let readable = readable.map(|((id, _), _)| *id).collect();
        drop(polled);
        let mut seen = [0; MAX_QUEUED];
        match (&self.wake).read(&mut seen) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error).context("waiting for packets"),
            _ => Ok(readable),
        }
    }

    /// Sends one packet of a child to the coordinator.
    fn forward(&mut self, id: u64) -> Result<()> {
        let Some(hosted) = self.children.get_mut(&id) else { return Ok(()) };
        let packet = match protocol::receive::<ToCoordinator>(&hosted.child()?.socket) {
            Ok(Some((_, descriptors))) if !descriptors.is_empty() => ToCoordinator::Failed {
                error: String::from("published a descriptor, which does not cross to another host: publish an address"),
            },
            // An address in the child's memory is of no use there.
            Ok(Some((ToCoordinator::Ready { .. }, _))) => ToCoordinator::Ready { exchange: None },
            Ok(Some((packet, _))) => packet,
            Ok(None) => {
                hosted.exit_deadline = Some(Instant::now() + EXIT_TIMEOUT);
                return Ok(());
            }
            Err(error) => ToCoordinator::Failed { error: format!("{error:#}") },
        };
        self.send(&FromPeer::Child { id, packet })
    }

    /// Reports the children that have closed their socket and exited. One that does not exit in
    /// time is killed.
    fn note_exits(&mut self) -> Result<()> {
        let now = Instant::now();
        let mut ended = Vec::new();
        for (id, hosted) in &mut self.children {
            if hosted.exit_deadline.is_some_and(|deadline| deadline <= now)
                || (hosted.exit_deadline.is_some() && hosted.child()?.ended().is_some())
            {
                ended.push(*id);
            }
        }
        ended.into_iter().try_for_each(|id| self.end(id))
    }

    /// Ends a child, if it still runs, and reports how it ended.
    fn end(&mut self, id: u64) -> Result<()> {
        let Some(mut hosted) = self.children.remove(&id) else { return Ok(()) };
        let child = hosted.child()?;
        child.kill();
        let status = child.ended().unwrap_or(ExitStatus::from_raw(0)).into_raw();
        let stderr = child.stderr();
        let strays = hosted.process.end();
        // Its own time is known now: it has been waited for.
        let load = hosted.load.load();
        self.send(&FromPeer::Ended { id, ended: Ended { status, stderr, strays, load } })
    }

    fn handle(&mut self, packet: ToPeer) -> Result<()> {
        match packet {
            ToPeer::Hello(_) => bail!("the coordinator greeted twice"),
            ToPeer::Ping { number } => self.send(&FromPeer::Pong { number }),
            ToPeer::MeasureLink {} => self.answer_link(),
            ToPeer::Load {} => {
                let load = self.load.load();
                self.send(&FromPeer::Load { load })
            }
            ToPeer::OpenClock {} => self.open_clock(),
            ToPeer::Probe {} => Ok(()),
            ToPeer::Start { id, assignment } => self.start(id, *assignment),
            ToPeer::Child { id, packet } => self.deliver(id, packet),
            ToPeer::Kill { id } => self.end(id),
            ToPeer::End {} => Ok(()),
        }
    }

    /// Answers a measurement of the link, in a thread of its own that ends by itself.
    fn answer_link(&mut self) -> Result<()> {
        ensure!(
            self.link.as_ref().is_none_or(|link| link.thread.is_finished()),
            "the coordinator measures the link twice at the same time"
        );
        let responder = Responder::bind(self.address)?;
        let (ports, stopper) = (responder.ports()?, responder.stopper());
        // The coordinator finds what fails, and reports it.
        let thread = thread::Builder::new().spawn(move || drop(responder.serve())).context("starting a thread")?;
        self.link = Some(LinkAnswers { thread, stopper });
        self.send(&FromPeer::LinkPorts { ports })
    }

    /// Answers questions about this host's clock until the session ends.
    fn open_clock(&mut self) -> Result<()> {
        let port = match &self.clock {
            Some(clock) => clock.port(),
            None => self.clock.insert(ClockServer::start(self.address)?).port(),
        };
        self.send(&FromPeer::ClockPort { port })
    }

    /// Starts a child. A refusal is an answer to the coordinator, not an error.
    fn start(&mut self, id: u64, assignment: Assignment) -> Result<()> {
        ensure!(!self.children.contains_key(&id), "the coordinator started two children with the number {id}");
        match self.start_child(assignment) {
            Ok(hosted) => {
                self.children.insert(id, hosted);
                Ok(())
            }
            Err(error) => {
                let packet = ToCoordinator::Failed { error: format!("on the other host: {error:#}") };
                self.send(&FromPeer::Child { id, packet })?;
                let (status, stderr, load) = (1 << 8, String::new(), HostLoad::default());
                self.send(&FromPeer::Ended { id, ended: Ended { status, stderr, strays: 0, load } })
            }
        }
    }

    fn start_child(&mut self, assignment: Assignment) -> Result<Hosted> {
        ensure!(self.children.len() < MAX_CHILDREN, "more than {MAX_CHILDREN} children at the same time");
        let Assignment { case, role, .. } = &assignment;
        check_assignment(self.registry, case, *role, self.cpus.len())?;
        let dir = self.scratch.instance()?;
        let load = LoadWatch::start(&used(&[*role], case, &self.cpus), &self.cpus);
        let assignment = Assignment {
            dir: dir.path().to_owned(),
            address: self.address,
            cpus: cores(*role, case, &self.cpus),
            ..assignment
        };
        let child = ChildProcess::start_own(assignment.role, dir.path())?;
        let hosted = Hosted { process: Children(vec![child]), load, exit_deadline: None, _dir: dir };
        protocol::send(&hosted.process.0[0].socket, &ToChild::Assignment(Box::new(assignment)), &[])?;
        Ok(hosted)
    }

    /// Sends a packet of the coordinator to a child.
    fn deliver(&mut self, id: u64, packet: ToChild) -> Result<()> {
        let begins = matches!(packet, ToChild::Go { .. });
        let packet = match packet {
            ToChild::Go { start_ns } => ToChild::Go { start_ns: start_time(start_ns)? },
            ToChild::Assignment(_) | ToChild::EffectiveCapacity(_) => {
                bail!("the coordinator sent a child a packet that only its own host may send")
            }
            packet => packet,
        };
        // The coordinator does not know yet that the child has ended.
        let Some(hosted) = self.children.get_mut(&id) else { return Ok(()) };
        // An error means that the child has crashed, which is found when its socket closes, or that it does not
        // read, which the coordinator finds by a time-out.
        let _ = protocol::send(&hosted.child()?.socket, &packet, &[]);
        if begins {
            self.send(&FromPeer::Began { id })?;
            self.send(&FromPeer::Probe {})?;
        }
        Ok(())
    }

    fn send(&mut self, packet: &FromPeer) -> Result<()> {
        frame::write(&mut self.writer, packet).context("sending to the coordinator")
    }
}

/// The time at which a child starts that got `go` now with this time.
///
/// # Errors
/// When that is too far in the future.
fn start_time(start_ns: u64) -> Result<u64> {
    let now = now_ns();
    if start_ns == AT_ONCE {
        return Ok(now + START_DELAY_NS);
    }
    ensure!(
        start_ns.saturating_sub(now) <= MAX_START_DELAY.as_nanos() as u64,
        "the coordinator starts a child more than {} s in the future",
        MAX_START_DELAY.as_secs()
    );
    Ok(start_ns)
}

/// Checks that this host may start a child for this case and role.
///
/// # Errors
/// The reason why not, with the remedy.
pub(super) fn check_assignment(registry: &Registry, case: &Case, role: Role, cores: usize) -> Result<()> {
    ensure!(case.place == Place::OtherHost, "only cases between two hosts run here, not {}", case.place);
    ensure!(matches!(role, Role::Consumer(index) if index < case.consumers()), "only consumers run here, not {role}");
    let entry = registry.get(&case.mechanism).with_context(|| {
        format!("this host's program has no mechanism `{}`: build both with the same features", case.mechanism)
    })?;
    can_run(entry.as_ref(), case, cores).map_err(|refusal| anyhow::anyhow!("{}", refusal.why))?;
    ensure!(
        entry.program(case, role)?.is_none(),
        "`{}` is a program of its own, which does not run here",
        case.mechanism
    );
    Ok(())
}

/// Reads the coordinator's packets until the connection ends or the session does not want more.
fn read_packets(mut reader: Box<dyn Read + Send>, events: &SyncSender<Event>, mut waker: &UnixStream) {
    loop {
        let event = match frame::read(&mut reader) {
            Ok(Some(packet)) => Event::Packet(packet),
            Ok(None) => Event::Closed,
            Err(error) => Event::Failed(error),
        };
        let is_last = !matches!(event, Event::Packet(_));
        if events.send(event).is_err() {
            return;
        }
        // If the buffer is full, the session has been woken already.
        let _ = waker.write(&[0]);
        if is_last {
            return;
        }
    }
}
