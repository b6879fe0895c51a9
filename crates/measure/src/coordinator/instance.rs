//! One instance: its children started, brought together, timed, heard, checked and ended.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::children::{Children, Running, adopt_strays, counted, describe};
use super::{Interrupt, Scratch};
use crate::case::{Case, Pattern, Place, Role};
use crate::clock::now_ns;
use crate::entry::Entry;
use crate::limits::ends;
use crate::message::{Faults, StreamCount, digest};
use crate::pipeline;
use crate::protocol::{self, Assignment, Offer, Report, ToChild, ToCoordinator};
use crate::usage::Steal;
use crate::window::Window;

/// From the barrier to the start of the warm-up: the children have time to wake and to start their threads.
const RUN_UP_NS: u64 = 500_000;
/// How long children may take to open their ends.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a child may take to exit once it is let go.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// A party that saw no progress for so long received something late.
const LATE_NS: u64 = 1_000_000_000;

/// What an instance is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The case.
    pub case: Case,
    /// What to measure.
    pub window: Window,
    /// What messages are made of; below 2^53.
    pub seed: u64,
    /// The cores that may be used.
    pub cpus: Vec<usize>,
    /// How long the children may take beyond the window.
    pub timeout: Duration,
    /// How long the window may take where it is given by count.
    pub count_timeout: Duration,
    /// Whether the children's system calls are counted. Then nothing that they measure means anything.
    pub traced: bool,
}

/// What an instance gave.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What each child reported.
    pub reports: Vec<(Role, Report)>,
    /// What was wrong with the messages, of all consumers together and against what the producers sent.
    pub faults: Faults,
    /// The part of the time of the case's cores that the hypervisor took away meanwhile, from 0 to 1.
    pub steal: f64,
    /// System calls of all children from start to end, where they were counted.
    pub calls: Option<u64>,
}

/// Why an instance gave nothing.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which kind.
    pub kind: FailureKind,
    /// In words, with the end of what the child wrote to stderr.
    pub text: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The user wants to stop.
    Interrupted,
    /// It did not come to its end in time.
    Hang,
    /// A child ended before its time.
    Crash,
    /// A message came more than a second after the others.
    Late,
    /// A child left a process behind.
    Leak,
    /// A child said it could not go on, or the instance could not be started.
    Error,
}

impl Failure {
    fn new(kind: FailureKind, text: impl Into<String>) -> Failure {
        Failure { kind, text: text.into() }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::new(FailureKind::Error, format!("{error:#}"))
    }
}

/// An instance under way.
#[derive(Debug)]
pub struct Instance {
    roles: Vec<Role>,
    children: Children,
    /// What was offered, until the barrier.
    offers: HashMap<String, (Offer, Vec<OwnedFd>)>,
    /// Who waits for what.
    wants: Vec<(usize, String)>,
    ready: Vec<bool>,
    reports: Vec<Option<Report>>,
    /// Whether brokers have heard that the parties are done.
    told_brokers: bool,
    dir: Scratch,
}

impl Instance {
    /// Runs one instance from start to end. Returns when all its children have gone, whatever happened.
    ///
    /// # Errors
    /// What went wrong; the clean-up is done by then.
    pub fn run(
        entry: &dyn Entry,
        setup: &Setup,
        scratch: &mut Scratch,
        interrupt: &mut Interrupt,
    ) -> Result<Measured, Failure> {
        adopt_strays();
        let roles = entry.roles(&setup.case);
        let used = used(&roles, &setup.case, &setup.cpus);
        let steal = Steal::now(&used);
        let mut instance = Instance::new(roles, scratch.instance()?);
        instance.play(entry, setup, interrupt).map_err(|failure| instance.cause_of(failure))?;
        let steal = steal.zip(Steal::now(&used)).map_or(0.0, |(before, after)| after.since(&before));
        instance.account(&setup.case, steal)
    }

    fn new(roles: Vec<Role>, dir: Scratch) -> Instance {
        let ready = vec![false; roles.len()];
        let reports = roles.iter().map(|_| None).collect();
        let children = Children::default();
        Instance {
            roles,
            children,
            offers: HashMap::new(),
            wants: Vec::new(),
            ready,
            reports,
            told_brokers: false,
            dir,
        }
    }

    fn play(&mut self, entry: &dyn Entry, setup: &Setup, interrupt: &mut Interrupt) -> Result<(), Failure> {
        self.start(entry, setup, interrupt)?;
        self.serve(setup, interrupt)?;
        if self.is_damaged(&setup.case) {
            self.children.end();
            return Ok(());
        }
        self.let_go(entry)
    }

    /// Whether a consumer has stopped at a damaged message. Then the others may wait for it for ever, and what they did is of no
    /// interest.
    fn is_damaged(&self, case: &Case) -> bool {
        let parties = self.reports.iter().flatten().flat_map(|report| &report.parties);
        case.pattern == Pattern::Writers && parties.map(|party| party.faults.damaged).sum::<u64>() > 0
    }

    fn start(&mut self, entry: &dyn Entry, setup: &Setup, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let (case, dir) = (&setup.case, self.dir.path());
        for (index, &role) in self.roles.iter().enumerate() {
            // There may be thousands.
            if interrupt.seen() {
                return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
            }
            let child = match entry.program(case, role)? {
                program if setup.traced => Running::start_traced(program.as_deref(), role, dir),
                Some(program) => Running::start(&program, &[], role, dir),
                None => Running::start_own(role, dir),
            }?;
            self.children.0.push(child);
            let assignment = Assignment {
                protocol: protocol::VERSION,
                case: case.clone(),
                role,
                window: setup.window,
                seed: setup.seed,
                dir: dir.to_owned(),
                cpus: cores(role, case, &setup.cpus),
            };
            let socket = &self.children.0[index].socket;
            protocol::send(socket, &ToChild::Assignment(Box::new(assignment)), &[])
                .with_context(|| role.to_string())?;
        }
        Ok(())
    }

    /// Hears the children until all have reported, or one that there was damage.
    fn serve(&mut self, setup: &Setup, interrupt: &mut Interrupt) -> Result<(), Failure> {
        let mut deadline = Instant::now() + OPEN_TIMEOUT;
        let mut begun = false;
        while self.reports.iter().any(Option::is_none) && !self.is_damaged(&setup.case) {
            for index in self.wait(deadline, interrupt, begun)? {
                self.hear(index)?;
            }
            self.tell_brokers()?;
            if !begun && self.ready.iter().all(|ready| *ready) {
                begun = true;
                let window = match setup.window {
                    _ if setup.case.pattern.is_pipeline() => {
                        pipeline::timeout(&setup.case, setup.window, setup.count_timeout)
                    }
                    Window::Time { .. } => Duration::from_nanos(setup.window.length_ns()),
                    Window::Count { .. } => setup.count_timeout,
                };
                deadline = Instant::now() + window + setup.timeout;
                self.begin()?;
            }
        }
        Ok(())
    }

    /// Waits until children have something to say. Returns which.
    fn wait(&self, deadline: Instant, interrupt: &mut Interrupt, begun: bool) -> Result<Vec<usize>, Failure> {
        let silent =
            || -> Vec<usize> { (0..self.reports.len()).filter(|&index| self.reports[index].is_none()).collect() };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let roles: Vec<_> = silent().iter().map(|&index| self.children.0[index].role.to_string()).collect();
            let stage = if begun { "did not finish" } else { "did not open its ends" };
            let remedy = if begun { " (--timeout allows more)" } else { "" };
            let text = format!("{stage} in time: {}{remedy}", roles.join(", "));
            return Err(self.failure(FailureKind::Hang, &text, silent()));
        }
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let silent = silent();
        let mut sockets: Vec<_> =
            silent.iter().map(|&index| PollFd::new(&self.children.0[index].socket, PollFlags::IN)).collect();
        sockets.push(PollFd::new(&*interrupt, PollFlags::IN));
        match poll(&mut sockets, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::new(FailureKind::Error, format!("waiting for children: {error}"))),
        }
        let mut heard = Vec::new();
        for (&index, socket) in silent.iter().zip(&sockets) {
            if !socket.revents().is_empty() {
                heard.push(index);
            }
        }
        drop(sockets);
        if interrupt.seen() {
            return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
        }
        Ok(heard)
    }

    /// Takes one packet of a child.
    fn hear(&mut self, index: usize) -> Result<(), Failure> {
        let role = self.children.0[index].role;
        let packet = protocol::receive(&self.children.0[index].socket).with_context(|| role.to_string())?;
        match packet {
            Some((ToCoordinator::Offer(offer), descriptors)) => {
                let waiting: Vec<_> = self.wants.extract_if(.., |(_, name)| *name == offer.name).collect();
                for (who, _) in waiting {
                    self.answer(who, &offer, &descriptors)?;
                }
                self.offers.insert(offer.name.clone(), (offer, descriptors));
            }
            Some((ToCoordinator::Want { name }, _)) => match self.offers.get(&name) {
                Some((offer, descriptors)) => self.answer(index, offer, descriptors)?,
                None => self.wants.push((index, name)),
            },
            Some((ToCoordinator::Ready {}, _)) => self.ready[index] = true,
            Some((ToCoordinator::Report(report), _)) => self.reports[index] = Some(report),
            Some((ToCoordinator::Room { .. }, _)) => {
                return Err(self.failure(FailureKind::Error, &format!("{role} said `room`, unasked"), vec![index]));
            }
            Some((ToCoordinator::Failed { error }, _)) => {
                return Err(self.failure(FailureKind::Error, &format!("{role}: {error}"), vec![index]));
            }
            None => {
                let child = &mut self.children.0[index];
                let how = child
                    .wait_until(Instant::now() + EXIT_TIMEOUT)
                    .map_or_else(|| String::from("closed its socket"), describe);
                return Err(self.failure(FailureKind::Crash, &format!("{role} {how} before it reported"), vec![index]));
            }
        }
        Ok(())
    }

    /// Tells brokers when every party has reported; once, as the last report comes before theirs.
    fn tell_brokers(&mut self) -> Result<()> {
        let parties_left =
            || (0..self.roles.len()).any(|index| self.roles[index] != Role::Broker && self.reports[index].is_none());
        if self.told_brokers || parties_left() {
            return Ok(());
        }
        self.told_brokers = true;
        for child in self.children.0.iter().filter(|child| child.role == Role::Broker) {
            // One that has reported has perhaps gone since.
            let _ = protocol::send(&child.socket, &ToChild::Over {}, &[]);
        }
        Ok(())
    }

    fn answer(&self, index: usize, offer: &Offer, descriptors: &[OwnedFd]) -> Result<()> {
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let child = &self.children.0[index];
        protocol::send(&child.socket, &ToChild::Offer(offer.clone()), &borrowed).with_context(|| child.role.to_string())
    }

    /// Opens the barrier. The coordinator's copies of what was offered go, so that an end that closes is closed.
    fn begin(&mut self) -> Result<()> {
        self.offers.clear();
        let start_ns = now_ns() + RUN_UP_NS;
        for child in &self.children.0 {
            protocol::send(&child.socket, &ToChild::Go { start_ns }, &[]).with_context(|| child.role.to_string())?;
        }
        Ok(())
    }

    /// Lets the children go and sees that all do, with nothing left behind.
    fn let_go(&mut self, entry: &dyn Entry) -> Result<(), Failure> {
        for child in &self.children.0 {
            // One that has crashed since is found below.
            let _ = protocol::send(&child.socket, &ToChild::Done {}, &[]);
        }
        let deadline = Instant::now() + EXIT_TIMEOUT;
        for index in 0..self.children.0.len() {
            let child = &mut self.children.0[index];
            let role = child.role;
            match child.wait_until(deadline) {
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
        match self.children.end() {
            0 => Ok(()),
            left => {
                let name = &entry.spec().name;
                Err(Failure::new(
                    FailureKind::Leak,
                    format!("{name} left {left} process(es) running; they have been ended"),
                ))
            }
        }
    }

    /// What a failure came from. A child that is killed takes others along: their streams end, what is sent to it breaks,
    /// and they may be heard before its death is. So a death is looked for, and where there was one, that is it.
    fn cause_of(&mut self, failure: Failure) -> Failure {
        if failure.kind != FailureKind::Error {
            return failure;
        }
        let killed = (0..self.children.0.len()).find_map(|index| {
            let child = &mut self.children.0[index];
            let status = child.dying().then(|| child.wait_until(Instant::now() + EXIT_TIMEOUT))??;
            let how = status.signal().map(|_| describe(status))?;
            Some((index, format!("{} {how}", child.role)))
        });
        match killed {
            Some((index, what)) => {
                let death = self.failure(FailureKind::Crash, &what, vec![index]);
                Failure { text: format!("{}\nafter which {}", death.text, failure.text), ..death }
            }
            None => failure,
        }
    }

    /// A failure with the end of what these children wrote to stderr.
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

    /// Brings together what the children saw.
    fn account(self, case: &Case, steal: f64) -> Result<Measured, Failure> {
        let whole = !self.is_damaged(case);
        let reports: Vec<_> =
            self.roles.into_iter().zip(self.reports).filter_map(|(role, report)| Some((role, report?))).collect();
        let parties = || reports.iter().flat_map(|(_, report)| &report.parties);
        let mut faults = Faults::default();
        for party in parties() {
            faults.add(party.faults);
            if party.longest_stall_ns > LATE_NS {
                let seconds = party.longest_stall_ns as f64 / 1e9;
                let text = format!("late: {} saw no message for {seconds:.1} s, where the limit is 1 s", party.role);
                return Err(Failure::new(FailureKind::Late, text));
            }
        }
        let consumers = || parties().filter(|party| matches!(party.role, Role::Consumer(_)));
        for sender in parties().filter(|_| whole) {
            let Role::Producer(index) = sender.role else { continue };
            if case.pattern == Pattern::Connections {
                // One has sent on all of them; that each stream was whole its own end mark has said.
                let counts = consumers().flat_map(|party| &party.received);
                let announced: u64 = counts.filter_map(|count| count.announced).sum();
                faults.damaged += u64::from(announced != sender.sent);
                continue;
            }
            let counts = consumers().flat_map(|party| &party.received).filter(|count| count.producer == index);
            if case.pattern == Pattern::Mpmc {
                faults.add(shared_out(index, sender.sent, counts));
                continue;
            }
            if case.pattern.is_pipeline() {
                faults.add(pipeline::account(sender.sent, counts));
                continue;
            }
            // What a consumer cannot know where the end mark was lost.
            for count in counts {
                if count.announced.is_none() {
                    faults.lost += sender.sent.saturating_sub(count.received);
                } else if count.announced != Some(sender.sent) {
                    faults.damaged += 1;
                }
            }
        }
        let counted = |role: &Role| fs::read_to_string(counted(*role, self.dir.path())).ok()?.parse::<u64>().ok();
        let calls = reports.iter().map(|(role, _)| counted(role)).sum();
        Ok(Measured { reports, faults, steal, calls })
    }
}

/// What went wrong with a producer's messages between several consumers: all of them together must have had each once.
fn shared_out<'a>(producer: usize, sent: u64, counts: impl Iterator<Item = &'a StreamCount>) -> Faults {
    let (received, sum) =
        counts.fold((0u64, 0u64), |(n, sum), count| (n + count.received, sum.wrapping_add(count.digest)));
    let mut faults =
        Faults { lost: sent.saturating_sub(received), duplicated: received.saturating_sub(sent), ..Faults::default() };
    if received == sent && sum != digest(producer, 0, sent) {
        // As many as were sent, but not the same: at least one came twice in another's place.
        faults.add(Faults { lost: 1, duplicated: 1, ..Faults::default() });
    }
    faults
}

/// The cores for the parties of a role, and for a broker: each has one of its own as far as there are cores. Where there are
/// too few, producers share theirs and consumers theirs; with two cores all producers have the first and all that receive,
/// a broker too, the second.
fn cores(role: Role, case: &Case, cpus: &[usize]) -> Vec<Option<usize>> {
    let (producers, consumers) = (case.sending(), case.consumers());
    let parties = match role {
        Role::All => producers + consumers,
        // Those of one process.
        Role::Producer(_) if case.pattern.in_one_process() => producers,
        _ => 1,
    };
    let ends = ends(cpus);
    let (Some(&first), Some(&last)) = (ends.first(), ends.last()) else { return vec![None; parties] };
    match case.place {
        Place::Free => return vec![None; parties],
        Place::SameCore => return vec![Some(first); parties],
        Place::OtherCore if ends.len() < 2 => return vec![Some(first); parties],
        Place::OtherCore => {}
    }
    // Those of one that sends and one that receives at the two ends, what is between them in their order.
    let between = cpus.iter().copied().filter(|cpu| !ends.contains(cpu));
    let all: Vec<usize> = std::iter::once(first).chain(between).chain([last]).collect();
    let receiving = match producers + consumers <= all.len() {
        true => consumers,
        // Of what there is, as much as their part of all.
        false => (all.len() * consumers / (producers + consumers)).clamp(1, all.len() - 1),
    };
    let (rest, receive) = all.split_at(all.len() - receiving);
    let producer = |index: usize| Some(rest[index % rest.len()]);
    let consumer = |index: usize| Some(receive[receive.len() - 1 - index % receive.len()]);
    match role {
        Role::All => (0..producers).map(producer).chain((0..consumers).map(consumer)).collect(),
        Role::Producer(index) => (index..index + parties).map(producer).collect(),
        Role::Consumer(index) => vec![consumer(index)],
        // Where the message arrives, if there is none of its own for it.
        Role::Broker => vec![Some(if rest.len() > producers { rest[rest.len() - 1] } else { last })],
    }
}

/// The cores on which a case runs: all of them where its parties are not pinned.
fn used(roles: &[Role], case: &Case, cpus: &[usize]) -> Vec<usize> {
    let pinned: Option<Vec<usize>> = roles.iter().flat_map(|role| cores(*role, case, cpus)).collect();
    pinned.unwrap_or_else(|| cpus.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Cell, Load, Payload};
    use crate::spec::{Runtime, Scope, Wait};

    fn case(producers: usize, place: Place) -> Case {
        let (scope, pattern, payload) = (Scope::Thread, Pattern::FanIn, Payload::U64);
        let (runtime, wait) = (Runtime::Thread, Wait::Block);
        let cell =
            Cell { scope, pattern, payload, producers, capacity: 1, runtime, wait, place, load: Load::Saturated };
        Case { mechanism: String::from("thread/x"), cell }
    }

    #[test]
    fn ends_have_cores_of_their_own_as_far_as_there_are_cores() {
        let fan_in = |producers, cpus: &[usize]| cores(Role::All, &case(producers, Place::OtherCore), cpus);
        assert_eq!(fan_in(2, &[7, 9]), [Some(7), Some(7), Some(9)]);
        assert_eq!(fan_in(1, &[7]), [Some(7), Some(7)]);
        assert_eq!(fan_in(1, &[]), [None, None]);
        assert_eq!(fan_in(3, &[1000, 1001, 1002, 1003]), [1000, 1002, 1003, 1001].map(Some));
        assert_eq!(fan_in(9, &[1000, 1001, 1002])[..4], [1000, 1002, 1000, 1002].map(Some));
    }

    #[test]
    fn writers_of_one_process_have_cores_as_producers_have_and_connections_are_one_partys() {
        let mut case = case(3, Place::OtherCore);
        case.cell.pattern = Pattern::Writers;
        assert_eq!(cores(Role::Producer(0), &case, &[1000, 1001, 1002, 1003]), [1000, 1002, 1003].map(Some));
        assert_eq!(cores(Role::Producer(0), &case, &[7, 9]), [Some(7); 3]);
        assert_eq!(cores(Role::Consumer(0), &case, &[7, 9]), [Some(9)]);
        case.cell.pattern = Pattern::Connections;
        assert_eq!(cores(Role::Producer(0), &case, &[7, 9]), [Some(7)]);
        assert_eq!(cores(Role::Consumer(0), &case, &[7, 9]), [Some(9)]);
    }

    #[test]
    fn several_that_receive_have_cores_of_their_own_too_and_so_has_a_server() {
        let mut case = case(3, Place::OtherCore);
        case.cell.pattern = Pattern::PubSub;
        let cpus: Vec<usize> = (1000..1006).collect();
        assert_eq!(cores(Role::All, &case, &cpus), [1000, 1001, 1005, 1004].map(Some));
        assert_eq!(cores(Role::Broker, &case, &cpus), [Some(1003)]);
        assert_eq!(cores(Role::All, &case, &cpus[..2]), [1000, 1001, 1001, 1001].map(Some));
        assert_eq!(cores(Role::Broker, &case, &cpus[..2]), [Some(1001)]);
        assert_eq!(cores(Role::Broker, &case, &cpus[..4]), [Some(1001)]);
    }

    #[test]
    fn several_consumers_must_have_had_each_message_once() {
        let count =
            |from, received| StreamCount { producer: 2, received, announced: None, digest: digest(2, from, received) };
        let faults = |counts: &[StreamCount]| shared_out(2, 100, counts.iter());
        assert_eq!(faults(&[count(0, 30), count(30, 70)]), Faults::default());
        assert_eq!(faults(&[count(0, 30), count(30, 69)]), Faults { lost: 1, ..Faults::default() });
        assert_eq!(faults(&[count(0, 31), count(30, 70)]), Faults { duplicated: 1, ..Faults::default() });
        let both = Faults { lost: 1, duplicated: 1, ..Faults::default() };
        assert_eq!(faults(&[count(0, 30), count(29, 70)]), both);
    }

    #[test]
    fn what_is_not_pinned_is_free() {
        assert_eq!(cores(Role::Consumer(0), &case(1, Place::Free), &[0, 1]), [None]);
        assert_eq!(cores(Role::All, &case(1, Place::SameCore), &[0, 1]), [Some(0), Some(0)]);
    }
}
