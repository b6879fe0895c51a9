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
//! | `launch.rs` | starting hosts and instances |
//! | `events.rs` | what hosts report, and the ends of hosts and instances |
//! | `shutdown.rs` | ending a pipeline |
//! | `reload.rs` | replacing a function's code |
//! | `log.rs` | what functions print |
//! | `poll.rs` | waiting, by epoll |
//! | `handover.rs` | the ends that the embedding program holds |
//! | `start.rs` | what a host is sent to start an instance |
//! | `survey.rs` | the status of everything, for whoever asks |

mod code;
mod events;
mod fabric;
mod handover;
mod host;
mod instance;
mod launch;
mod log;
mod poll;
mod reload;
mod restart;
mod shutdown;
mod start;
mod survey;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use self::code::{Code, Compiled};
use self::host::{Host, HostProgram};
use self::instance::{Instance, Phase, Verdict};
use self::poll::{MAILBOX, Poll, Token};
use self::reload::{Answer, Reloads};
use crate::config::{End, Pipeline, Topology};
use crate::connector::{ConnectorEvent, Connectors};
use crate::control::Request;
use crate::status::Status;

pub(crate) use self::fabric::Fabric;
pub(crate) use self::poll::Mailbox;

/// How a pipeline is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that is started as a host: it calls [`crate::host::serve`] when its first argument is
    /// [`crate::host::ARGUMENT`]. `/proc/self/exe` is the program that runs now.
    ///
    /// It is opened when the [`Supervisor`] is made, and hosts are started from the opened file: all of them are the same
    /// program, whatever becomes of the file's name. A file that cannot be opened then is started by its name. It is a
    /// binary: the interpreter of a script would find no name to open.
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
    /// callback, from the supervisor's thread: how many instances run the new code once all do, or why the old code goes on.
    /// The callback is dropped if the pipeline ends before.
    pub fn reload(&self, function: &str, answer: impl FnOnce(Result<usize>) + Send + 'static) {
        self.0.send(Message::Reload(function.to_owned(), Box::new(answer)));
    }
}

/// Messages from other threads to the supervisor.
pub(crate) enum Message {
    End,
    Reload(String, Answer),
    /// The code of a function was compiled anew, or cannot be.
    Compiled(usize, Result<Compiled>),
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
    /// Of each function.
    reloads: Vec<Reloads>,
    options: Options,
    host_program: HostProgram,
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
        let reloads = pipeline.functions.iter().map(|_| Reloads::default()).collect();
        let poll = Poll::new().context("cannot wait for events")?;
        let connectors = Connectors::new(&pipeline)?;
        let host_program = HostProgram::open(&options.host_program);
        Ok(Supervisor {
            pipeline,
            topology,
            fabric,
            code,
            reloads,
            options,
            host_program,
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
        self.start_due(Instant::now());
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
            if log.read() == log::StreamState::Ended {
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
            Message::Reload(function, answer) => self.reload(&function, answer),
            Message::Compiled(function, result) => self.on_compiled(function, result),
            Message::Connector(event) => self.on_connector(event),
        }
    }

    /// A source or a sink has ended.
    fn on_connector(&mut self, event: ConnectorEvent) {
        let end = event.end;
        let failure = self.connectors.on_event(event);
        let is_sink = matches!(end, End::Sink(_));
        let group = self.topology.membership(end).map(|place| place.group);
        let is_early = group.is_some_and(|group| !self.fabric.is_exhausted(&self.topology, group));
        let discarded = self.recover_end(end);
        if discarded > 0 {
            tracing::warn!(messages = discarded, "messages were lost with the end of a sink");
        }
        self.close(end);
        match failure {
            Some(failure) => {
                tracing::error!("{failure}");
                self.summary.failures.push(failure);
                // What it cannot write, nobody else does, unless others compete with it.
                if is_sink && group.is_none_or(|group| self.is_group_ended(group)) {
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
        self.start_due(now);
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
            Verdict::Interrupt { progress } => {
                let request = Request::Interrupt { instance: instance.id, progress };
                let _ = self.hosts.get(&host).map(|host| host.send(&request, &[]));
                instance.watch.interrupted(progress, Instant::now());
            }
            Verdict::Kill => {
                tracing::error!(function = instance.name, "it cannot be interrupted; its process is killed");
                self.end_host(host, "it could not be interrupted");
            }
        }
    }
}

/// A pipeline needs a descriptor for each ring and each pipe; the usual limit of 1024 is for `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
