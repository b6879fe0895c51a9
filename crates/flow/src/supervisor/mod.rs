//! The supervisor: starts a pipeline's instances, watches over them, and ends them.
//!
//! One thread waits for everything: the events of hosts, what functions print, messages of sources, sinks and commands, and
//! the clock. It never touches a message of the pipeline; those go from the sender's process to the receiver's.
//!
//! | file | what it holds |
//! |---|---|
//! | `fabric.rs` | the shared memory: rings and bells |
//! | `host.rs` | a host process |
//! | `instance.rs` | an instance's phases, and the watch over endless loops |
//! | `restart.rs` | when an instance that failed is started again |
//! | `code.rs` | modules, from file to compiled code |
//! | `log.rs` | what functions print |
//! | `poll.rs` | waiting, by epoll |
//! | `handover.rs` | the ends that the embedding program holds |
//! | `start.rs` | what a host is sent to start an instance |
//! | `survey.rs` | the status of everything, for whoever asks |

mod code;
mod fabric;
mod handover;
mod host;
mod instance;
mod log;
mod poll;
mod restart;
mod start;
mod survey;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::code::Code;
use self::host::{Host, Received};
use self::instance::{Instance, Phase, Verdict};
use self::poll::{MAILBOX, Poll, Token};
use crate::config::{End, Exhausted, Isolation, Pipeline, Topology};
use crate::connector::{ConnectorEvent, Connectors};
use crate::control::{self, Event, Request};
use crate::counters::Counter;
use crate::status::Status;

pub(crate) use self::fabric::Fabric;
pub(crate) use self::poll::Mailbox;

/// How a pipeline is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that is started as a host: it calls [`crate::host::serve`] when its first argument is
    /// [`crate::host::ARGUMENT`].
    pub host_program: PathBuf,
    /// How long a pipeline may take to work off what is under way once it is asked to drain; then it is stopped.
    pub drain_timeout: Duration,
}

/// Asks a running pipeline for something, from any thread.
#[derive(Clone)]
pub struct Remote(Mailbox<Message>);

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}

impl Remote {
    /// Ends the pipeline once everything under way has been worked off. Asked again, ends it at once.
    pub fn end(&self) {
        self.0.send(Message::End);
    }

    /// The pipeline as it is now. Blocks for a moment. None once the pipeline has ended.
    pub fn status(&self) -> Option<Status> {
        let (sender, receiver) = channel();
        self.0.send(Message::Status(sender));
        receiver.recv_timeout(Duration::from_secs(5)).ok()
    }

    /// Replaces a function's code by what its module's file holds now, between two batches. The answer comes by the
    /// callback: how many instances were asked to, or why none was.
    pub fn reload(&self, function: &str, answer: impl FnOnce(Result<usize>) + Send + 'static) {
        self.0.send(Message::Reload(function.to_owned(), Box::new(answer)));
    }
}

/// What other threads tell the supervisor.
pub(crate) enum Message {
    End,
    Reload(String, Box<dyn FnOnce(Result<usize>) + Send>),
    Status(Sender<Status>),
    Connector(ConnectorEvent),
}

/// How a pipeline ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// What failed for good, a line each. Empty if all went well.
    pub failures: Vec<String>,
    /// How many messages were dropped with an instance that failed, under at-most-once delivery.
    pub discarded: u64,
    /// How many restarts there were.
    pub restarts: u64,
    /// Everything as it was at the end.
    pub status: Status,
    /// Why it ended.
    pub ended: Ended,
}

/// Why a pipeline ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// It had done all of its work.
    #[default]
    Finished,
    /// It was asked to end, and has worked off what was under way.
    Drained,
    /// It was stopped with work under way.
    Stopped,
}

/// A pipeline that is ready to run.
pub struct Supervisor {
    pipeline: Pipeline,
    topology: Topology,
    fabric: Fabric,
    code: Code,
    options: Options,
    poll: Poll<Message>,
    instances: Vec<Instance>,
    hosts: HashMap<usize, Host>,
    next_host: usize,
    /// The host of the instances that are isolated by threads.
    shared_host: Option<usize>,
    logs: HashMap<Token, log::Stream<File>>,
    next_log: Token,
    connectors: Connectors,
    /// How old the messages of each ring are.
    ages: Vec<survey::Ages>,
    mode: Mode,
    started: Instant,
    summary: Summary,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("pipeline", &self.pipeline.name).finish_non_exhaustive()
    }
}

/// What the pipeline is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    /// Nothing new comes in; what is under way is worked off.
    Draining {
        since: Instant,
    },
    /// Everything ends now.
    Stopping {
        since: Instant,
    },
}

/// How long instances may take to stop before their hosts are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Tokens of hosts are their numbers; those of logs follow.
const FIRST_LOG: Token = 1 << 32;

impl Supervisor {
    /// Compiles a pipeline's modules and creates its shared memory. Nothing runs yet.
    ///
    /// # Errors
    ///
    /// If a module cannot be used, or memory or descriptors are short.
    pub fn new(pipeline: Pipeline, options: Options) -> Result<Supervisor> {
        raise_descriptor_limit();
        let topology = Topology::of(&pipeline);
        let code = Code::compile(&pipeline)?;
        let fabric = Fabric::create(&pipeline, &topology)?;
        let mut instances = Vec::new();
        for (at, function) in pipeline.functions.iter().enumerate() {
            for replica in 0..function.replicas {
                instances.push(Instance::new(instances.len() as u32, (at, function), replica)?);
            }
        }
        let ages = topology.rings.iter().map(|_| survey::Ages::default()).collect();
        let poll = Poll::new().context("cannot wait for events")?;
        let connectors = Connectors::new(&pipeline)?;
        Ok(Supervisor {
            pipeline,
            topology,
            fabric,
            code,
            options,
            poll,
            instances,
            hosts: HashMap::new(),
            next_host: 0,
            shared_host: None,
            logs: HashMap::new(),
            next_log: FIRST_LOG,
            connectors,
            ages,
            mode: Mode::Running,
            started: Instant::now(),
            summary: Summary::default(),
        })
    }

    /// By which other threads ask it for something while it runs.
    pub fn remote(&self) -> Remote {
        Remote(self.poll.mailbox())
    }

    /// Runs the pipeline until it has done all of its work, or was ended.
    ///
    /// # Errors
    ///
    /// If the supervisor itself fails. What fails in the pipeline is in the summary.
    pub fn run(mut self) -> Result<Summary> {
        self.connectors.start(&self.pipeline, &self.topology, &self.fabric, &self.poll.mailbox())?;
        self.start_due(Instant::now())?;
        while !self.is_done() {
            let timeout = self.next_look(Instant::now());
            for token in self.poll.wait(timeout).context("cannot wait for events")? {
                self.on_ready(token)?;
            }
            self.tick(Instant::now())?;
        }
        self.hosts.clear();
        self.read_last_lines();
        self.summary.status = self.status();
        self.summary.restarts = self.instances.iter().map(|instance| instance.restarts.total()).sum();
        Ok(self.summary)
    }

    fn is_done(&self) -> bool {
        let are_instances_done = self.instances.iter().all(Instance::is_ended);
        match self.mode {
            // A sink that hangs is left behind.
            Mode::Stopping { since } => {
                are_instances_done && (self.connectors.is_ended() || since.elapsed() > STOP_TIMEOUT)
            }
            Mode::Running | Mode::Draining { .. } => are_instances_done && self.connectors.is_ended(),
        }
    }

    /// How long to wait at most: until an instance is to be started, or for a look at who is busy.
    fn next_look(&self, now: Instant) -> Duration {
        let limits = self.pipeline.functions.iter().map(|function| function.limits.call / 8);
        let look = limits.min().unwrap_or(Duration::MAX).clamp(Duration::from_millis(10), Duration::from_millis(500));
        let due = self.instances.iter().filter_map(|instance| match instance.phase {
            Phase::Waiting { until } => Some(until.saturating_duration_since(now)),
            _ => None,
        });
        due.min().map_or(look, |due| due.min(look))
    }

    fn on_ready(&mut self, token: Token) -> Result<()> {
        if token == MAILBOX {
            for message in self.poll.messages() {
                self.on_message(message);
            }
        } else if let Some(log) = self.logs.get_mut(&token) {
            if log.read() == log::Progress::Ended {
                self.poll.remove(log.pipe());
                self.logs.remove(&token);
            }
        } else {
            self.on_host(token as usize);
        }
        Ok(())
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::End => self.end(),
            Message::Status(answer) => drop(answer.send(self.status())),
            Message::Reload(function, answer) => answer(self.reload(&function)),
            Message::Connector(event) => self.on_connector(event),
        }
    }

    /// A source or a sink has ended.
    fn on_connector(&mut self, event: ConnectorEvent) {
        let end = event.end;
        let failure = self.connectors.on_event(event);
        let is_sink = matches!(end, End::Sink(_));
        let is_early =
            self.topology.membership(end).is_some_and(|place| !self.fabric.is_drained(&self.topology, place.group));
        self.recover_end(end);
        self.close(end);
        match failure {
            Some(failure) => {
                tracing::error!("{failure}");
                self.summary.failures.push(failure);
                // What it cannot write, nobody else does.
                if is_sink {
                    self.stop();
                }
            }
            // As with `| head -1`: whoever reads what comes out has all of it that he wants.
            None if is_sink && is_early && self.mode == Mode::Running && self.connectors.are_sinks_ended() => {
                self.end()
            }
            None => {}
        }
    }

    /// Looks at everything that depends on the clock.
    fn tick(&mut self, now: Instant) -> Result<()> {
        match self.mode {
            Mode::Running => {}
            Mode::Draining { since } if now.saturating_duration_since(since) > self.options.drain_timeout => {
                tracing::warn!("the pipeline was not drained in {:?} and is stopped", self.options.drain_timeout);
                self.stop();
            }
            Mode::Stopping { since } if now.saturating_duration_since(since) > STOP_TIMEOUT => self.kill_all(),
            Mode::Draining { .. } | Mode::Stopping { .. } => {}
        }
        self.start_due(now)?;
        for at in 0..self.instances.len() {
            self.watch(at, now);
        }
        self.look_at_rings(now);
        Ok(())
    }

    fn watch(&mut self, at: usize, now: Instant) {
        let instance = &mut self.instances[at];
        let Some(host) = instance.host() else { return };
        let limit = self.pipeline.functions[instance.function].limits.call;
        match instance.watch.look(&instance.counters, limit, now) {
            Verdict::Fine => {}
            Verdict::Interrupt => {
                let request = Request::Interrupt { instance: instance.id };
                let _ = self.hosts[&host].send(&request, &[]);
            }
            Verdict::Kill => {
                tracing::error!(function = instance.name, "it cannot be interrupted; its process is killed");
                self.end_host(host, None);
            }
        }
    }
}

// Starting.
impl Supervisor {
    /// Starts every instance whose time has come.
    fn start_due(&mut self, now: Instant) -> Result<()> {
        for at in 0..self.instances.len() {
            if matches!(self.instances[at].phase, Phase::Waiting { until } if until <= now) {
                match self.mode {
                    Mode::Stopping { .. } => self.finish(at, instance::Ended::Stopped),
                    Mode::Running | Mode::Draining { .. } => self.start(at)?,
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, at: usize) -> Result<()> {
        let requested_at = control::now();
        let function = &self.pipeline.functions[self.instances[at].function];
        let host = match function.isolation {
            Isolation::Process => self.spawn_host(1, &function.name.clone())?,
            Isolation::Thread => match self.shared_host {
                Some(host) => host,
                None => {
                    let host = self.spawn_host(self.instances.len(), "threads")?;
                    *self.shared_host.insert(host)
                }
            },
        };
        let name = self.instances[at].name.clone();
        let (stdout, stderr) = (self.log(&name, false)?, self.log(&name, true)?);
        let instance = &mut self.instances[at];
        let start = start::request(instance, requested_at, &self.pipeline, &self.topology, &self.code);
        let code = self.code.file(instance.function);
        let mut descriptors = vec![code.as_fd(), instance.counters_file.as_fd(), stdout.as_fd(), stderr.as_fd()];
        descriptors.extend(start::descriptors(instance.end, &self.topology, &self.fabric));
        instance.phase = Phase::Starting { host };
        instance.watch = instance::Watch::default();
        // An instance that was killed left its own.
        instance.counters.set(Counter::Busy, 0);
        instance.counters.set(Counter::Memory, 0);
        if let Err(error) = self.hosts[&host].send(&Request::Start(Box::new(start)), &descriptors) {
            tracing::warn!(function = name, "cannot ask its host to start it: {error}");
        }
        Ok(())
    }

    fn spawn_host(&mut self, instances: usize, name: &str) -> Result<usize> {
        let (host, stderr) = Host::spawn(&self.options.host_program, instances)?;
        let number = self.next_host;
        self.next_host += 1;
        self.poll.add(&host, number as Token).context("cannot wait for a host")?;
        self.hosts.insert(number, host);
        self.add_log(stderr, &format!("host of {name}"), true)?;
        Ok(number)
    }

    /// A pipe for a function's output; the end it writes to.
    fn log(&mut self, name: &str, is_error: bool) -> Result<OwnedFd> {
        let (reader, writer) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).context("cannot make a pipe")?;
        self.add_log(File::from(reader), name, is_error)?;
        Ok(writer)
    }

    fn add_log(&mut self, pipe: File, name: &str, is_error: bool) -> Result<()> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let token = self.next_log;
        self.next_log += 1;
        self.poll.add(&pipe, token).context("cannot wait for a function's output")?;
        self.logs.insert(token, log::Stream::new(pipe, name, is_error));
        Ok(())
    }
}

// Events of hosts.
impl Supervisor {
    fn on_host(&mut self, number: usize) {
        loop {
            let Some(host) = self.hosts.get_mut(&number) else { return };
            match host.try_recv() {
                Received::Nothing => return,
                Received::Event(event) => self.on_event(number, event),
                Received::End(error) => return self.end_host(number, error),
            }
        }
    }

    fn on_event(&mut self, host: usize, event: Event) {
        let (Event::Ready { instance } | Event::Reloaded { instance, .. } | Event::Ended { instance, .. }) = event;
        let at = instance as usize;
        // A host may only speak of what it runs.
        if self.instances.get(at).and_then(Instance::host) != Some(host) {
            return;
        }
        match event {
            Event::Ready { .. } => {
                self.instances[at].phase = Phase::Running { host };
                self.code.confirm(self.instances[at].function);
                tracing::debug!(function = self.instances[at].name, "ready");
            }
            Event::Reloaded { error: None, .. } => {
                self.code.confirm(self.instances[at].function);
                tracing::info!(function = self.instances[at].name, "reloaded");
            }
            Event::Reloaded { error: Some(reason), .. } => {
                self.code.revert(self.instances[at].function);
                tracing::error!(
                    function = self.instances[at].name,
                    "the new code does not start, the old goes on: {reason}"
                );
            }
            Event::Ended { end, .. } => {
                if self.is_own_host(at) {
                    self.remove_host(host);
                }
                self.on_end(at, end);
            }
        }
    }

    fn is_own_host(&self, at: usize) -> bool {
        self.pipeline.functions[self.instances[at].function].isolation == Isolation::Process
    }

    /// A host is gone, or has to go, and with it all that it ran.
    fn end_host(&mut self, number: usize, error: Option<std::io::Error>) {
        let status = self.remove_host(number);
        let reason = match (error, status) {
            (Some(error), _) => format!("its host sent nonsense: {error}"),
            (None, Some(status)) => format!("its host ended: {status}"),
            (None, None) => "its host ended".into(),
        };
        for at in 0..self.instances.len() {
            if self.instances[at].host() == Some(number) {
                self.on_end(at, control::End::Failed { reason: reason.clone() });
            }
        }
    }

    fn remove_host(&mut self, number: usize) -> Option<std::process::ExitStatus> {
        if self.shared_host == Some(number) {
            self.shared_host = None;
        }
        let mut host = self.hosts.remove(&number)?;
        self.poll.remove(&host);
        host.kill()
    }

    /// An instance has ended; its thread or process is no more.
    fn on_end(&mut self, at: usize, end: control::End) {
        self.recover(at);
        let name = self.instances[at].name.clone();
        let reason = match end {
            control::End::Finished => return self.finish(at, instance::Ended::Finished),
            control::End::Stopped => return self.finish(at, instance::Ended::Stopped),
            control::End::Trapped { reason } => {
                self.instances[at].traps += 1;
                reason
            }
            control::End::Failed { reason } => reason,
        };
        let is_over = match self.mode {
            Mode::Running => false,
            // What it would send anew is not under way.
            Mode::Draining { .. } => self.is_sender(at),
            Mode::Stopping { .. } => true,
        };
        if is_over {
            return self.finish(at, instance::Ended::Stopped);
        }
        if matches!(self.instances[at].phase, Phase::Starting { .. }) {
            self.code.revert(self.instances[at].function);
        }
        let now = Instant::now();
        match self.instances[at].restarts.next(now) {
            Some(until) => {
                let delay = restart::Restarts::delay(until, now);
                tracing::warn!(function = name, "failed and is restarted in {delay:?}: {reason}");
                self.instances[at].phase = Phase::Waiting { until };
            }
            None => self.give_up(at, &name, &reason),
        }
    }

    fn give_up(&mut self, at: usize, name: &str, reason: &str) {
        let function = &self.pipeline.functions[self.instances[at].function];
        let failure = format!("the function `{name}` failed and has no restart left: {reason}");
        tracing::error!("{failure}");
        self.summary.failures.push(failure);
        let then = function.restart.then;
        self.finish(at, instance::Ended::Failed);
        if then == Exhausted::Stop {
            self.stop();
        }
    }

    /// Takes back what an instance had claimed, and wakes who waited for it.
    fn recover(&mut self, at: usize) {
        let discarded = self.recover_end(self.instances[at].end);
        if discarded > 0 {
            tracing::warn!(function = self.instances[at].name, messages = discarded, "messages were lost with it");
        }
    }

    /// Takes back what an end had claimed. Returns how many messages were lost.
    fn recover_end(&mut self, end: End) -> u64 {
        let mut discarded = 0;
        if let Some(place) = self.topology.membership(end) {
            let feed = self.topology.groups[place.group].feed;
            let delivery = self.topology.policies(&self.pipeline, feed).delivery;
            discarded = self.fabric.recover(&self.topology, place.group, place.member, delivery).discarded;
            self.summary.discarded += discarded;
        }
        self.fabric.wake_readers(&self.topology, end);
        discarded
    }

    /// An instance has ended for good.
    fn finish(&mut self, at: usize, ended: instance::Ended) {
        self.instances[at].phase = Phase::Ended(ended);
        self.close(self.instances[at].end);
        tracing::debug!(function = self.instances[at].name, "ended: {ended:?}");
    }

    /// Closes what an end that has ended for good sends to and, if it was the last of its group, what it received.
    fn close(&self, end: End) {
        self.fabric.close_outputs(&self.topology, end);
        if let Some(place) = self.topology.membership(end) {
            let members = &self.topology.groups[place.group].members;
            if members.iter().all(|member| self.is_end_ended(*member)) {
                self.fabric.close_inputs(&self.topology, place.group);
            }
        }
    }

    fn is_end_ended(&self, end: End) -> bool {
        match end {
            End::Function { .. } => self.instances.iter().all(|instance| instance.end != end || instance.is_ended()),
            end => self.connectors.is_end_ended(end),
        }
    }
}

// Ending.
impl Supervisor {
    /// Ends the pipeline: drains it, or stops it if that was asked for before.
    fn end(&mut self) {
        match self.mode {
            Mode::Running => {
                self.summary.ended = Ended::Drained;
                tracing::info!("draining; once more stops at once");
                self.mode = Mode::Draining { since: Instant::now() };
                self.connectors.stop_sources();
                for at in 0..self.instances.len() {
                    if self.is_sender(at) {
                        self.stop_instance(at);
                    }
                }
            }
            Mode::Draining { .. } => self.stop(),
            Mode::Stopping { .. } => self.kill_all(),
        }
    }

    /// Whether nothing feeds an instance.
    fn is_sender(&self, at: usize) -> bool {
        self.topology.membership(self.instances[at].end).is_none()
    }

    fn stop(&mut self) {
        if matches!(self.mode, Mode::Stopping { .. }) {
            return;
        }
        self.summary.ended = Ended::Stopped;
        self.mode = Mode::Stopping { since: Instant::now() };
        self.connectors.stop();
        for at in 0..self.instances.len() {
            self.stop_instance(at);
        }
    }

    fn stop_instance(&mut self, at: usize) {
        match self.instances[at].phase {
            Phase::Waiting { .. } => self.finish(at, instance::Ended::Stopped),
            Phase::Starting { host } | Phase::Running { host } => {
                let _ = self.hosts[&host].send(&Request::Stop { instance: self.instances[at].id }, &[]);
            }
            Phase::Ended(_) => {}
        }
    }

    fn kill_all(&mut self) {
        let hosts: Vec<_> = self.hosts.keys().copied().collect();
        for host in hosts {
            self.end_host(host, None);
        }
    }

    fn read_last_lines(&mut self) {
        for log in self.logs.values_mut() {
            // The hosts are gone, so what is left is in the pipes.
            for _ in 0..32 {
                if log.read() == log::Progress::Ended {
                    break;
                }
            }
            log.end();
        }
    }

    /// Replaces a function's code. Returns how many instances were asked to take the new one.
    fn reload(&mut self, name: &str) -> Result<usize> {
        let known =
            || self.pipeline.functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>().join(", ");
        let at = self.pipeline.functions.iter().position(|function| function.name == name);
        let at = at.with_context(|| format!("there is no function `{name}`; the pipeline has {}", known()))?;
        anyhow::ensure!(
            self.pipeline.functions[at].input.is_some() || self.pipeline.functions[at].stream.is_some(),
            "`{name}` receives nothing, so there is no moment between two batches; stop the pipeline and start it again"
        );
        self.code.reload(&self.pipeline, at)?;
        let mut asked = 0;
        for instance in self.instances.iter().filter(|instance| instance.function == at) {
            if let Some(host) = instance.host() {
                let request = Request::Reload { instance: instance.id, abi: self.code.abi(at) };
                self.hosts[&host].send(&request, &[self.code.file(at).as_fd()])?;
                asked += 1;
            }
        }
        Ok(asked)
    }
}

/// A pipeline needs a descriptor for each ring and each pipe; the usual limit of 1024 is for `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
