//! One instance: starts its children, connects them, handles their packets, checks their reports
//! and ends them.
//!
//! An instance that is measured in slices is stopped between them; see [`super::heat`].

mod between_hosts;

use std::collections::HashMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::account::account;
use super::children::{ChildProcess, Children, adopt_strays, calls_path, describe};
use super::failure::{Failure, FailureKind};
use super::lost_exchange::LostExchange;
use super::placement::{cores, used};
use super::setup::Setup;
use super::{Interrupt, Scratch};
use crate::case::{Case, Place, Role};
use crate::entry::Entry;
use crate::exchange::Snapshot;
use crate::hosts::{ClockError, HostLoad, Offset, OtherHost};
use crate::message::Faults;
use crate::pauses::{Turn, TurnWriter};
use crate::pipeline_driver;
use crate::protocol::{self, Assignment, Publication, Report, ToChild, ToCoordinator};
use crate::usage::Steal;
use crate::window::Window;

/// The time from the barrier to the start of the warm-up. In it the children wake up and start
/// their threads.
pub(crate) const START_DELAY_NS: u64 = 500_000;
/// How long children may take to open their ends.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Additional time for a TCP packet that is lost between hosts. Linux sends it again after 0.2 s
/// and doubles this time-out each time (RFC 6298): six losses in a row take 12.6 s.
const RETRANSMISSION_ALLOWANCE: Duration = Duration::from_secs(15);
/// How long a child may take to exit after `done`.
pub(crate) const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the report of the other host about the end of a child may take, after its connections
/// have closed.
const END_REPORT_TIMEOUT: Duration = Duration::from_millis(100);

/// The result of an instance.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// The report of each child.
    pub reports: Vec<(Role, Report)>,
    /// The faults of all consumers together, compared with what the producers sent.
    pub faults: Faults,
    /// The part of the cores' time that the hypervisor took from opening to closing, from 0 to 1.
    /// In a heat this includes the turns of the other instances.
    pub steal: f64,
    /// The system calls of all children from start to end, if they were counted.
    pub calls: Option<u64>,
    /// Whether the hypervisor took time from the cores during its unpaused run.
    pub is_unpaused_run_stolen: bool,
    /// How busy the other host was, if the ends were on two.
    pub(crate) peer_load: Option<HostLoad>,
    /// How wrong its times may be, if they were measured from one host to the other.
    pub(crate) clock_error: Option<ClockError>,
}

/// A running instance.
#[derive(Debug)]
pub struct Instance {
    roles: Vec<Role>,
    children: Children,
    /// What the children have published, by name, with the descriptors. Dropped at the barrier.
    published: HashMap<String, (Publication, Vec<OwnedFd>)>,
    /// The requests without a reply: the child, and the name that it requests.
    requests: Vec<(usize, String)>,
    ready: Vec<bool>,
    /// For each child, the address in its memory where it notes the step of its current round trip.
    /// `None` if it notes none.
    exchanges: Vec<Option<u64>>,
    /// The number of messages lost in round trips whose two sides wait for each other. Set if the
    /// instance ended for this reason.
    lost_in_exchange: Option<u64>,
    reports: Vec<Option<Report>>,
    /// Whether brokers know that all parties have reported.
    are_brokers_notified: bool,
    /// Notifies the children of turns, if the instance is measured in slices.
    turns: Option<TurnWriter>,
    /// The stolen time of its cores at the start.
    steal: Option<Steal>,
    /// The round trip to the other host, if its ends are on two.
    round_trip: Option<Duration>,
    /// The other host's clock when the instance began, if times of both clocks are compared.
    clock_offset: Option<Offset>,
    /// The length of the warm-up, in nanoseconds.
    warmup_ns: u64,
    dir: Scratch,
}

impl Instance {
    /// Runs one instance from start to end. Blocks until all its children have ended, even after a
    /// failure.
    ///
    /// # Errors
    /// When the instance fails. The clean-up is done before this returns.
    pub fn run(
        entry: &dyn Entry,
        setup: &Setup,
        scratch: &mut Scratch,
        interrupt: &mut Interrupt,
    ) -> Result<Measured, Failure> {
        let mut instance = Instance::open(entry, setup, scratch, interrupt, None)?;
        instance.clock_offset = Instance::clock_offset(setup, interrupt)?;
        instance.begin()?;
        instance.serve_to_end(setup, interrupt)?;
        let clock_error = instance.clock_error(setup, interrupt)?;
        let mut measured = instance.close(entry, setup)?;
        measured.clock_error = clock_error;
        Ok(measured)
    }

    /// Starts the children and blocks until their ends are open.
    ///
    /// # Errors
    /// When the instance fails. The clean-up is done before this returns.
    pub(super) fn open(
        entry: &dyn Entry,
        setup: &Setup,
        scratch: &mut Scratch,
        interrupt: &mut Interrupt,
        turns: Option<TurnWriter>,
    ) -> Result<Instance, Failure> {
        adopt_strays();
        let roles = entry.mechanism().roles(&setup.case);
        let steal = Steal::now(&used(&on_this_host(&roles, &setup.case), &setup.case, &setup.cpus));
        let mut instance = Instance {
            ready: vec![false; roles.len()],
            exchanges: vec![None; roles.len()],
            lost_in_exchange: None,
            reports: roles.iter().map(|_| None).collect(),
            roles,
            children: Children::default(),
            published: HashMap::new(),
            requests: Vec::new(),
            are_brokers_notified: false,
            turns,
            steal,
            round_trip: setup.other_host.as_ref().map(OtherHost::round_trip),
            clock_offset: None,
            warmup_ns: setup.window.warmup_ns(),
            dir: scratch.instance()?,
        };
        let opened = instance.start(entry, setup, interrupt).and_then(|()| instance.serve_until_ready(interrupt));
        match opened {
            Ok(()) => Ok(instance),
            Err(failure) => Err(instance.cause_of(failure)),
        }
    }

    /// Lets the children exit, checks that all of them do, and combines their reports.
    ///
    /// # Errors
    /// When the instance fails. The clean-up is done before this returns.
    pub(super) fn close(mut self, entry: &dyn Entry, setup: &Setup) -> Result<Measured, Failure> {
        let case = &setup.case;
        let is_broken_off = self.is_damaged(case) || self.lost_in_exchange.is_some();
        if is_broken_off {
            self.children.0.iter_mut().for_each(ChildProcess::kill);
        } else {
            self.release().map_err(|failure| self.cause_of(failure))?;
        }
        let peer_load = self.children.0.iter().find_map(ChildProcess::load);
        self.end_children(entry, is_broken_off)?;
        let after = Steal::now(&used(&on_this_host(&self.roles, case), case, &setup.cpus));
        let steal = self.steal.zip(after).map_or(0.0, |(before, after)| after.since(&before));
        let reports: Vec<_> =
            self.roles.into_iter().zip(self.reports).filter_map(|(role, report)| Some((role, report?))).collect();
        let mut faults = account(case, &reports, !is_broken_off)?;
        faults.lost += self.lost_in_exchange.unwrap_or(0);
        let calls_of = |role: &Role| fs::read_to_string(calls_path(*role, self.dir.path())).ok()?.parse::<u64>().ok();
        let calls = reports.iter().map(|(role, _)| calls_of(role)).sum();
        Ok(Measured { reports, faults, steal, calls, is_unpaused_run_stolen: false, peer_load, clock_error: None })
    }

    /// Whether a party has stopped at a damaged message. The other parties may then wait for it
    /// forever, and their reports are not needed. In a pipeline no party stops.
    fn is_damaged(&self, case: &Case) -> bool {
        !case.pattern.is_pipeline() && self.reports.iter().flatten().any(Report::is_damaged)
    }

    fn start(&mut self, entry: &dyn Entry, setup: &Setup, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let (case, dir) = (&setup.case, self.dir.path());
        for (index, &role) in self.roles.iter().enumerate() {
            // There may be thousands of children.
            if interrupt.is_requested() {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
            }
            let assignment = self.assignment(entry, setup, role);
            if is_on_other_host(role, case) {
                let host =
                    setup.other_host.as_ref().context("the ends are on two hosts, and no other host is given")?;
                self.children.0.push(ChildProcess::start_on(host, assignment)?);
                continue;
            }
            let child = match entry.program(case, role)? {
                program if setup.traced => ChildProcess::start_traced(program, role, dir),
                Some(program) => ChildProcess::start(&program, role, dir),
                None => ChildProcess::start_own(role, dir),
            }?;
            self.children.0.push(child);
            let socket = &self.children.0[index].socket;
            let turns: Vec<_> = self.turns.iter().map(|turns| turns.file().as_fd()).collect();
            protocol::send(socket, &ToChild::Assignment(Box::new(assignment)), &turns)
                .with_context(|| role.to_string())?;
        }
        Ok(())
    }

    fn assignment(&self, entry: &dyn Entry, setup: &Setup, role: Role) -> Assignment {
        Assignment {
            protocol: protocol::VERSION,
            case: Case { mechanism: entry.name_in_program().to_owned(), ..setup.case.clone() },
            role,
            window: setup.window,
            seed: setup.seed,
            secret: setup.secret,
            dir: self.dir.path().to_owned(),
            address: setup.other_host.as_ref().map_or_else(protocol::loopback, OtherHost::address),
            tail_ns: self.tail_ns(),
            link: setup.other_host.as_ref().map(OtherHost::link_estimate),
            cpus: cores(role, &setup.case, &setup.cpus),
        }
    }

    /// Handles the children's packets until the ends of all are open.
    fn serve_until_ready(&mut self, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let deadline = Instant::now() + OPEN_TIMEOUT + self.allowance();
        while !self.ready.iter().all(|ready| *ready) {
            let senders = self.wait(deadline, interrupt)?;
            if senders.is_empty() && Instant::now() >= deadline {
                let remedy = if self.round_trip.is_some() { "; open the TCP and UDP ports of both hosts" } else { "" };
                let unready = (0..self.ready.len()).filter(|&index| !self.ready[index]).collect();
                return Err(self.timed_out("did not open its ends in time", remedy, unready));
            }
            senders.into_iter().try_for_each(|index| self.handle_packet(index))?;
        }
        Ok(())
    }

    /// Handles the children's packets until all have reported.
    ///
    /// # Errors
    /// When the instance fails or times out. The children are killed when the instance is dropped.
    pub(super) fn serve_to_end(&mut self, setup: &Setup, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let window = match setup.window {
            _ if setup.case.pattern.is_pipeline() => {
                pipeline_driver::timeout(&setup.case, setup.window, setup.count_timeout)
            }
            Window::Time { .. } => Duration::from_nanos(setup.window.length_ns()),
            Window::Count { .. } => setup.count_timeout,
        };
        let started = Instant::now();
        let retransmissions = self.round_trip.map_or(Duration::ZERO, |_| RETRANSMISSION_ALLOWANCE);
        let deadline = started + window + setup.timeout + self.allowance() + retransmissions;
        let mut lost = LostExchange::new(setup, started);
        loop {
            let until = if self.has_exchange() { deadline.min(lost.next_look()) } else { deadline };
            if self.serve(&setup.case, until, interrupt)? == ControlFlow::Break(()) {
                return Ok(());
            }
            self.lost_in_exchange = lost.update(self.exchanges_under_way());
            if self.lost_in_exchange.is_some() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(self.timed_out("did not finish in time", " (--timeout allows more)", self.unreported()));
            }
        }
    }

    fn has_exchange(&self) -> bool {
        self.exchanges.iter().any(Option::is_some)
    }

    /// The children that have not reported, each with the step of its round trip. `None` if the
    /// step of one is unknown.
    fn exchanges_under_way(&self) -> Option<Vec<(Role, Snapshot)>> {
        let unreported = self.unreported().into_iter().filter(|&index| self.roles[index] != Role::Broker);
        let snapshot = |index: usize| {
            let process = self.children.0[index].pid()?;
            let process = process.as_raw_nonzero().get().unsigned_abs();
            Some((self.roles[index], Snapshot::of(process, self.exchanges[index]?).ok()?))
        };
        unreported.map(snapshot).collect()
    }

    /// Handles the children's packets until the time `until`. Returns `Break` once all have
    /// reported, or once one has reported a damaged message.
    ///
    /// # Errors
    /// When the instance fails.
    pub(super) fn serve(
        &mut self,
        case: &Case,
        until: Instant,
        interrupt: &mut Interrupt,
    ) -> Result<ControlFlow<()>, Failure> {
        let served = self.serve_until(case, until, interrupt);
        served.map_err(|failure| self.cause_of(failure))
    }

    fn serve_until(
        &mut self,
        case: &Case,
        until: Instant,
        interrupt: &mut Interrupt,
    ) -> Result<ControlFlow<()>, Failure> {
        loop {
            if self.reports.iter().all(Option::is_some) || self.is_damaged(case) {
                return Ok(ControlFlow::Break(()));
            }
            let senders = self.wait(until, interrupt)?;
            if senders.is_empty() && Instant::now() >= until {
                return Ok(ControlFlow::Continue(()));
            }
            let handled: Vec<_> = senders.into_iter().map(|index| self.handle_packet(index)).collect();
            // After a damaged message one child stops, and others may fail because of it.
            if !self.is_damaged(case) {
                handled.into_iter().collect::<Result<(), _>>()?;
            }
            self.notify_brokers();
        }
    }

    /// Stops all processes of the instance. Returns when the children have stopped.
    pub(super) fn pause(&mut self) {
        self.children.0.iter().for_each(ChildProcess::stop);
        self.children.0.iter().for_each(ChildProcess::wait_stopped);
        self.children.0.iter().for_each(ChildProcess::stop_group);
    }

    /// Writes the new turn for the children and resumes all processes of the instance.
    ///
    /// # Errors
    /// When the turn cannot be written.
    pub(super) fn resume(&mut self, turn: Turn) -> Result<(), Failure> {
        if let Some(turns) = &self.turns {
            turns.write(turn).context("writing the turn for the children")?;
        }
        self.children.0.iter().for_each(ChildProcess::resume);
        Ok(())
    }

    /// A time-out of these children.
    fn timed_out(&self, what: &str, remedy: &str, children: Vec<usize>) -> Failure {
        let roles: Vec<_> = children.iter().map(|&index| self.children.0[index].role.to_string()).collect();
        self.failure(FailureKind::Hang, &format!("{what}: {}{remedy}", roles.join(", ")), children)
    }

    /// The indices of the children that have not reported.
    fn unreported(&self) -> Vec<usize> {
        (0..self.reports.len()).filter(|&index| self.reports[index].is_none()).collect()
    }

    /// Blocks until children have sent packets, or until the time `until`. Returns the indices of
    /// those children.
    fn wait(&self, until: Instant, interrupt: &mut Interrupt) -> Result<Vec<usize>, Failure> {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let unreported = self.unreported();
        let mut sockets: Vec<_> =
            unreported.iter().map(|&index| PollFd::new(&self.children.0[index].socket, PollFlags::IN)).collect();
        sockets.push(PollFd::new(&*interrupt, PollFlags::IN));
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new(FailureKind::Error, format!("waiting for children: {error}"))),
        }
        let readable = unreported.iter().zip(&sockets).filter(|(_, socket)| !socket.revents().is_empty());
        let senders = readable.map(|(&index, _)| index).collect();
        drop(sockets);
        if interrupt.is_requested() {
            return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
        }
        Ok(senders)
    }

    /// Receives and handles one packet of a child.
    fn handle_packet(&mut self, index: usize) -> Result<(), Failure> {
        let role = self.children.0[index].role;
        let packet = protocol::receive(&self.children.0[index].socket).with_context(|| role.to_string())?;
        match packet {
            Some((ToCoordinator::Publish(publication), _)) if self.published.contains_key(&publication.name) => {
                let text = format!("{role} published `{}`, which is published already", publication.name);
                return Err(self.failure(FailureKind::Error, &text, vec![index]));
            }
            Some((ToCoordinator::Publish(publication), descriptors)) => {
                let waiting: Vec<_> = self.requests.extract_if(.., |(_, name)| *name == publication.name).collect();
                for (child, _) in waiting {
                    self.send_published(child, &publication, &descriptors)?;
                }
                self.published.insert(publication.name.clone(), (publication, descriptors));
            }
            Some((ToCoordinator::Request { name }, _)) => match self.published.get(&name) {
                Some((publication, descriptors)) => self.send_published(index, publication, descriptors)?,
                None => self.requests.push((index, name)),
            },
            Some((ToCoordinator::Ready { exchange }, _)) => {
                self.ready[index] = true;
                // The steps of both sides are needed, and those of another host cannot be read.
                self.exchanges[index] = exchange.filter(|_| self.round_trip.is_none());
            }
            Some((ToCoordinator::Report(report), _)) => self.reports[index] = Some(report),
            Some((ToCoordinator::EffectiveCapacity { .. }, _)) => {
                return Err(self.failure(
                    FailureKind::Error,
                    &format!("{role} sent `effective_capacity` without a request"),
                    vec![index],
                ));
            }
            Some((ToCoordinator::Failed { error }, _)) => {
                return Err(self.failure(FailureKind::Error, &format!("{role}: {error}"), vec![index]));
            }
            None => {
                let deadline = Instant::now() + EXIT_TIMEOUT + self.allowance();
                let child = &mut self.children.0[index];
                let how = match (child.wait_until(deadline), child.lost()) {
                    (Some(status), _) => describe(status),
                    (None, Some(why)) => lost(why),
                    (None, None) => String::from("closed its socket"),
                };
                return Err(self.failure(FailureKind::Crash, &format!("{role} {how} before it reported"), vec![index]));
            }
        }
        Ok(())
    }

    /// Notifies brokers once, when every party has reported.
    fn notify_brokers(&mut self) {
        let parties_left =
            || (0..self.roles.len()).any(|index| self.roles[index] != Role::Broker && self.reports[index].is_none());
        if self.are_brokers_notified || parties_left() {
            return;
        }
        self.are_brokers_notified = true;
        for child in self.children.0.iter().filter(|child| child.role == Role::Broker) {
            // A broker that has already reported may have exited.
            let _ = protocol::send(&child.socket, &ToChild::AllReported {}, &[]);
        }
    }

    fn send_published(&self, index: usize, publication: &Publication, descriptors: &[OwnedFd]) -> Result<()> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let child = &self.children.0[index];
        protocol::send(&child.socket, &ToChild::Published(publication.clone()), &borrowed)
            .with_context(|| child.role.to_string())
    }

    /// Opens the barrier. First closes the coordinator's copies of the published descriptors.
    /// Otherwise a peer would not see when a child closes its end.
    ///
    /// # Errors
    /// When a child has ended.
    pub(super) fn begin(&mut self) -> Result<(), Failure> {
        self.send_go().map_err(|error| self.cause_of(error.into()))
    }

    /// Sends `done` to the children, and checks that all of them exit.
    fn release(&mut self) -> Result<(), Failure> {
        for child in &self.children.0 {
            if self.turns.is_some() {
                child.resume();
            }
            // A child that has crashed is found below.
            let _ = protocol::send(&child.socket, &ToChild::Done {}, &[]);
        }
        let deadline = Instant::now() + EXIT_TIMEOUT + self.allowance();
        for index in 0..self.children.0.len() {
            let child = &mut self.children.0[index];
            let role = child.role;
            match child.wait_until(deadline) {
                None if child.lost().is_some() => {
                    let text = format!("{role} reported, then {}", child.lost().map_or_else(String::new, lost));
                    return Err(self.failure(FailureKind::Crash, &text, vec![index]));
                }
                None => {
                    return Err(self.failure(
                        FailureKind::Hang,
                        &format!("{role} reported but did not exit"),
                        vec![index],
                    ));
                }
                Some(status) if !status.success() => {
                    let text = format!("{role} reported, then {}", describe(status));
                    return Err(self.failure(FailureKind::Crash, &text, vec![index]));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Ends what the children left running, and checks that it is nothing, unless they were killed.
    fn end_children(&mut self, entry: &dyn Entry, are_killed: bool) -> Result<(), Failure> {
        match self.children.end() {
            left if left > 0 && !are_killed => {
                let name = &entry.spec().name;
                Err(Failure::new(
                    FailureKind::Leak,
                    format!("{name} left {left} process(es) running; they have been ended"),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Finds the original cause of a failure.
    ///
    /// When one child is killed, others fail too: their streams end, and sends to it fail. Their
    /// errors may arrive before its exit is seen. So if a child was killed by a signal, that is the
    /// cause.
    fn cause_of(&mut self, failure: Failure) -> Failure {
        if failure.kind != FailureKind::Error {
            return failure;
        }
        let reported = Instant::now() + END_REPORT_TIMEOUT + self.allowance();
        let killed = (0..self.children.0.len()).find_map(|index| {
            let child = &mut self.children.0[index];
            let how = if child.is_dying(reported) {
                let status = child.wait_until(Instant::now() + EXIT_TIMEOUT)?;
                status.signal().map(|_| describe(status))?
            } else {
                child.lost().map(lost)?
            };
            Some((index, format!("{} {how}", child.role)))
        });
        match killed {
            Some((index, what)) => {
                let death = self.failure(FailureKind::Crash, &what, vec![index]);
                match self.children.0[index].lost() {
                    // The error of a request to the other host gives the same reason.
                    Some(why) if failure.text.contains(why) => death,
                    _ => Failure { text: format!("{}\nafter which {}", death.text, failure.text), ..death },
                }
            }
            None => failure,
        }
    }

    /// A failure with the last lines that these children wrote to stderr.
    fn failure(&self, kind: FailureKind, what: &str, of: Vec<usize>) -> Failure {
        let mut text = what.to_owned();
        for index in of {
            let child = &self.children.0[index];
            let stderr = child.stderr();
            if !stderr.is_empty() {
                text.push_str(&format!("\n{} wrote: {stderr}", child.role));
            }
        }
        Failure::new(kind, text)
    }
}

/// Whether a child runs on the other host.
fn is_on_other_host(role: Role, case: &Case) -> bool {
    case.place == Place::OtherHost && matches!(role, Role::Consumer(_))
}

/// The roles of the children of this host.
fn on_this_host(roles: &[Role], case: &Case) -> Vec<Role> {
    roles.iter().copied().filter(|role| !is_on_other_host(*role, case)).collect()
}

/// What happened to a child of the other host, when the session ended.
fn lost(why: &str) -> String {
    format!("was lost, because the session with the other host ended: {why}")
}
