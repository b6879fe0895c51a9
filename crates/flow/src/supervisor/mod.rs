//! The supervisor: starts a pipeline's instances, watches them, and ends them.
//!
//! One thread waits for all events: reports of hosts, output of functions, messages from sources,
//! sinks and commands, and timeouts. It never handles messages of the pipeline, which go directly
//! from the sender's process to the receiver's.
//!
//! | file | content |
//! |---|---|
//! | `fabric.rs` | the shared memory: rings and bells |
//! | `host.rs` | a host process |
//! | `instance.rs` | an instance's phases, and the detection of endless loops |
//! | `restart.rs` | when a failed instance is restarted |
//! | `connect.rs` | the time before a pipeline runs |
//! | `code.rs` | loading of modules: from file to compiled code |
//! | `launch.rs` | starting hosts and instances |
//! | `events.rs` | events of hosts, and the ends of hosts and instances |
//! | `shutdown.rs` | ending a pipeline |
//! | `reload.rs` | replacing a function's code |
//! | `log.rs` | the output of functions |
//! | `poll.rs` | waiting for events, by epoll |
//! | `handover.rs` | external ends for the embedding program |
//! | `start.rs` | the request to start an instance |
//! | `survey.rs` | the pipeline's status |

mod code;
mod connect;
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

use anyhow::{Context, Result, ensure};

use self::code::{Code, Compiled};
use self::host::{Host, HostProgram};
use self::instance::{Instance, Phase, Verdict};
use self::poll::{MAILBOX, Poll, Token};
use self::reload::{Callback, Reloads};
use crate::config::{End, Pipeline, Topology};
use crate::connector::{Connections, ConnectorEvent, Connectors};
use crate::control::Request;
use crate::status::{ModeStatus, Status};

pub(crate) use self::fabric::Fabric;
pub(crate) use self::poll::Mailbox;

/// The options for running a pipeline.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that is started as a host. It calls [`crate::host::serve`] when its first
    /// argument is [`crate::host::ARGUMENT`]. `/proc/self/exe` is the current program.
    ///
    /// It is opened when the [`Supervisor`] is created, and all hosts are started from the open
    /// file. They are thus the same program, even if the file is replaced or removed. A file that
    /// cannot be opened is started by its path. The program must be a binary: the interpreter of a
    /// script could not find the script.
    pub host_program: PathBuf,
    /// How long the pipeline may take to drain, that is to process all messages in flight. After
    /// that it is stopped.
    pub drain_timeout: Duration,
}

/// Controls a running pipeline from any thread.
#[derive(Clone)]
pub struct Remote(Mailbox<Message>);

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Remote")
    }
}

impl Remote {
    /// Drains the pipeline and then ends it. A second call ends it at once.
    pub fn end(&self) {
        self.0.send(Message::End);
    }

    /// The current status of the pipeline. Blocks for at most 5 s. None if the pipeline has ended,
    /// or does not respond in that time.
    pub fn status(&self) -> Option<Status> {
        let (sender, receiver) = channel();
        self.0.send(Message::Status(sender));
        receiver.recv_timeout(Duration::from_secs(5)).ok()
    }

    /// Reloads a function's code from its module's file, between two batches. Does not block. The
    /// supervisor's thread calls `callback` with the result: the number of instances once all run
    /// the new code, or why the old code is kept. The callback is dropped if the pipeline ends
    /// before.
    pub fn reload(&self, function: &str, callback: impl FnOnce(Result<usize>) + Send + 'static) {
        self.0.send(Message::Reload(function.to_owned(), Box::new(callback)));
    }
}

/// Messages from other threads to the supervisor.
pub(crate) enum Message {
    End,
    Reload(String, Callback),
    /// The result of compiling a function's new code.
    Compiled(usize, Result<Compiled>),
    Status(Sender<Status>),
    Connector(ConnectorEvent),
    /// The result of connecting to the server of topics that cross hosts.
    Connected(Result<Box<Connections>>),
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Permanent failures, one line each. Empty on success.
    pub failures: Vec<String>,
    /// The number of messages that were lost because an instance failed, under at-most-once
    /// delivery.
    pub discarded: u64,
    /// The number of restarts.
    pub restarts: u64,
    /// The final status.
    pub status: Status,
    /// Why the pipeline ended.
    pub ended: Ended,
}

impl Summary {
    /// How the pipeline ended.
    fn mode(&self) -> ModeStatus {
        match self.ended {
            _ if !self.failures.is_empty() => ModeStatus::Failed,
            Ended::Finished => ModeStatus::Finished,
            Ended::Drained => ModeStatus::Drained,
            Ended::Stopped => ModeStatus::Stopped,
        }
    }

    /// The messages that were still in topics when the pipeline ended, processed by nobody.
    pub fn left_in_topics(&self) -> u64 {
        self.status.edges.iter().map(|edge| edge.depth_messages).sum()
    }

    /// The messages that were sent to queues whose readers had all ended.
    pub fn unread(&self) -> u64 {
        let functions = self.status.functions.iter().map(|function| function.unread);
        functions.chain(self.status.connectors.iter().map(|connector| connector.unread)).sum()
    }
}

/// Why a pipeline ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ended {
    /// All work was done.
    #[default]
    Finished,
    /// It was drained on request: all messages in flight were processed.
    Drained,
    /// It was stopped with messages in flight.
    Stopped,
}

/// A pipeline that is ready to run.
pub struct Supervisor {
    pipeline: Pipeline,
    topology: Topology,
    fabric: Fabric,
    code: Code,
    /// The reloads of each function.
    reloads: Vec<Reloads>,
    options: Options,
    host_program: HostProgram,
    poll: Poll<Message>,
    instances: Vec<Instance>,
    hosts: HashMap<usize, Host>,
    next_host: usize,
    /// The host of instances with the isolation `thread`.
    shared_host: Option<usize>,
    logs: HashMap<Token, log::Stream<File>>,
    next_log: Token,
    connectors: Connectors,
    /// The ages of the messages of each ring.
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

/// The pipeline's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Running,
    /// No new messages come in. Messages in flight are processed.
    Draining {
        since: Instant,
    },
    /// Everything ends now.
    Stopping {
        since: Instant,
    },
}

/// How long instances may take to stop, before their hosts are killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Hosts use their numbers as tokens. The tokens of logs follow.
const FIRST_LOG: Token = 1 << 32;

impl Supervisor {
    /// Compiles a pipeline's modules and creates its shared memory. No instance runs yet.
    ///
    /// # Errors
    ///
    /// If a module is invalid, or memory or file descriptors are exhausted. If the pipeline runs on
    /// several hosts: only the [part](Pipeline::part) of one can run here.
    pub fn new(pipeline: Pipeline, options: Options) -> Result<Supervisor> {
        ensure!(pipeline.hosts.names.is_empty(), "the pipeline runs on several hosts; choose the part of one");
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

    /// A handle to control the pipeline from other threads while it runs.
    pub fn remote(&self) -> Remote {
        Remote(self.poll.mailbox())
    }

    /// Runs the pipeline. Blocks until all work is done or the pipeline was ended.
    ///
    /// # Errors
    ///
    /// If the supervisor itself fails. Failures of the pipeline are in the summary.
    pub fn run(mut self) -> Result<Summary> {
        if let Some(connections) = self.connect()? {
            self.run_connected(connections)?;
        }
        self.hosts.clear();
        self.read_last_lines();
        self.summary.status = Status { mode: self.summary.mode(), ..self.status() };
        self.summary.restarts = self.instances.iter().map(|instance| instance.restarts.total()).sum();
        Ok(self.summary)
    }

    fn run_connected(&mut self, connections: Connections) -> Result<()> {
        let mailbox = self.poll.mailbox();
        self.connectors.start(connections, &self.pipeline, &self.topology, &self.fabric, &mailbox)?;
        self.start_due(Instant::now());
        while !self.is_done() {
            let timeout = self.next_look(Instant::now());
            for token in self.poll.wait(timeout).context("cannot wait for events")? {
                self.on_ready(token)?;
            }
            self.tick(Instant::now())?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let are_instances_done = self.instances.iter().all(Instance::is_ended);
        match self.mode {
            // A sink that hangs is abandoned.
            Mode::Stopping { since } => {
                are_instances_done && (self.connectors.is_ended() || since.elapsed() > STOP_TIMEOUT)
            }
            Mode::Running | Mode::Draining { .. } => are_instances_done && self.connectors.is_ended(),
        }
    }

    /// The maximum wait: until an instance is due to start, or until the next check for endless
    /// loops.
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
            Message::Status(sender) => drop(sender.send(self.status())),
            Message::Reload(function, callback) => self.reload(&function, callback),
            Message::Compiled(function, result) => self.on_compiled(function, result),
            Message::Connector(event) => self.on_connector(event),
            // Only awaited before the pipeline runs.
            Message::Connected(_) => {}
        }
    }

    /// Handles the end of a source or a sink.
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
                // If no other reader competes with the sink, its messages cannot be delivered any
                // more.
                if is_sink && group.is_none_or(|group| self.is_group_ended(group)) {
                    self.stop();
                }
            }
            // As with `| head -1`: the reader of the output has ended, since it has all it needs.
            None if is_sink && is_early && self.mode == Mode::Running && self.connectors.are_sinks_ended() => {
                self.end()
            }
            None => {}
        }
    }

    /// Handles everything that depends on time.
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

/// Raises the limit of open files: a pipeline needs a descriptor for each ring and each pipe. The
/// usual limit of 1024 exists for `select`.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
