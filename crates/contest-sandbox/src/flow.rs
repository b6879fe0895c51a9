//! Pipelines of estafette-flow: a producer, a topic, a function that forwards each message, a
//! topic, and a consumer. The reference's pipelines, whose functions also send and receive, are in
//! [`super::flow_pipelines`].
//!
//! The broker is the supervisor, and starts a host for the function as `estafette flow run` does.
//! The parties have the external ends of the pipeline. Messages pass from the producer's process to
//! the host and on to the consumer's process, through rings in shared memory. In a ping-pong one
//! party has both ends.

use std::collections::BTreeMap;
use std::env::current_exe;
use std::fs;
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use estafette_contest_common::ring_ends;
use estafette_flow::config::{
    Function, FunctionKind, Grants, Input, Isolation, Limits, Pipeline, Queue, Restart, Sink, SinkKind, Source,
    SourceKind, Topic, Wait as FunctionWait,
};
use estafette_flow::external::{ExternalEnd, Receiver, Sender};
use estafette_flow::status::PhaseStatus;
use estafette_flow::{Options, Remote, Supervisor};
use estafette_ipc::WaitMode;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::{Ownership, Tier, Wait};
use estafette_measure::usage::Usage;
use estafette_measure::{
    Ends, Generator, Mechanism, PartyEnds, PipelineEnd, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier,
};

use super::flow_pipelines::{self, BATCHED, COMPONENT, Functions, REFERENCE};
use super::rows::{self, ALL, MAX_MESSAGE};

/// The timeout until the function receives messages.
const START_TIMEOUT: Duration = Duration::from_secs(8);
/// The interval between two status requests.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The largest batch of a consumer in bytes, equal to a function's.
const BATCH_BYTES: usize = 128 << 10;

/// A row: a guest that forwards messages, the functions of pipelines, and where they run.
pub(super) struct Flow {
    name: &'static str,
    guest: &'static str,
    functions: Functions,
    isolation: Isolation,
    implementation: &'static str,
    tier: Tier,
}

/// The rows.
pub(super) const ROWS: [Flow; 4] = [
    Flow {
        name: "sandbox/flow",
        guest: include_str!("../wat/forward.wat"),
        functions: BATCHED,
        isolation: Isolation::Process,
        implementation: "estafette-flow: a function of the batched ABI in a process, shared-memory rings in and out",
        tier: Tier::Overview,
    },
    Flow {
        name: "sandbox/flow-thread",
        guest: include_str!("../wat/forward.wat"),
        functions: BATCHED,
        isolation: Isolation::Thread,
        implementation: "the same, the function in a thread of a process that others may share",
        tier: Tier::Suite,
    },
    Flow {
        name: "sandbox/flow-reference",
        guest: include_str!("../wat/forward_reference.wat"),
        functions: REFERENCE,
        isolation: Isolation::Process,
        implementation: "the same in a process, the ABI of wasm-pipeline-throughput: a call for each message",
        tier: Tier::Suite,
    },
    Flow {
        name: "sandbox/flow-component",
        guest: include_str!("../wat/forward_component.wat"),
        functions: COMPONENT,
        isolation: Isolation::Process,
        implementation: "the same in a process, a component: a call for many messages, a copy for each",
        tier: Tier::Overview,
    },
];

impl Mechanism for &'static Flow {
    fn spec(&self) -> Spec {
        Spec::new(self.name)
            .version(concat!(env!("CARGO_PKG_VERSION"), ", wasmtime ", env!("LOCKED_WASMTIME")))
            .implementation(self.implementation)
            .waits(&[Wait::Spin, Wait::Adaptive, Wait::Block])
            .patterns(&ALL)
            .ownership(Ownership::Loaned)
            .max_message(MAX_MESSAGE)
            .tier(self.tier)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        // The function is an additional end that the instrument does not count.
        let ends = if case.pattern == Pattern::PingPong { 2 } else { 3 };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        match case.wait {
            Wait::Spin if ends > cores => {
                Err(format!("{ends} spinning ends, including the function, need as many cores, and there are {cores}"))
            }
            _ => Ok(()),
        }
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        if case.pattern.is_pipeline() { vec![Role::All] } else { rows::roles(case) }
    }

    fn pipeline(&self, case: &Case, _: Role, messages: u64, rendezvous: &mut Rendezvous) -> Result<Vec<PipelineEnd>> {
        flow_pipelines::run(self.functions, self.isolation, case, messages, rendezvous)
    }

    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        let module = rendezvous.dir().join("function.wat");
        fs::write(&module, self.guest).context("writing the function")?;
        let options = Options { host_program: current_exe()?, drain_timeout: Duration::ZERO };
        let mut supervisor = Supervisor::new(pipeline(case, module, self.isolation)?, options)?;
        // The ends, with their leases, stay open so that the function runs until its resource usage
        // is read.
        let ends = [supervisor.external_source("in")?, supervisor.external_sink("out")?];
        publish(rendezvous, "in", &ends[0])?;
        publish(rendezvous, "out", &ends[1])?;
        let remote = supervisor.remote();
        let pipeline = thread::spawn(move || supervisor.run());
        let host = wait_for_function(&remote)?;
        rendezvous.wait_at_barrier()?;
        let before = Usage::of(host).context("reading the host's resource usage from /proc")?;
        rendezvous.wait_until_all_reported()?;
        let usage = Usage::of(host).map(|usage| usage.since(&before));
        // The first call drains the pipeline, the second stops it.
        remote.end();
        remote.end();
        let summary = pipeline.join().map_err(|_| anyhow!("the supervisor panicked"))??;
        drop(ends);
        ensure!(summary.failures.is_empty(), "{}", summary.failures.join("; "));
        usage.context("reading the host's resource usage from /proc")
    }
}

/// Returns the pipeline of a case.
fn pipeline(case: &Case, module: PathBuf, isolation: Isolation) -> Result<Pipeline> {
    let len = case.payload.len();
    let record = len.next_multiple_of(8) + Topic::HEADER;
    // As many messages as the reference ring has slots.
    let capacity = ring_ends::shape(case)?.bytes().max(4 * record);
    let topic = Topic { capacity, max_message: len, ..Topic::default() };
    let input = |topic: &str| Input { topic: topic.into(), queue: Queue::Unnamed };
    let function = Function {
        name: "forward".into(),
        kind: FunctionKind::Processor,
        module,
        args: Vec::new(),
        stream: None,
        input: Some(input("forward")),
        output: vec!["back".into()],
        replicas: 1,
        isolation,
        wait: match case.wait {
            Wait::Spin => FunctionWait::Spin,
            Wait::Adaptive => FunctionWait::Adaptive,
            Wait::Block => FunctionWait::Block,
        },
        limits: Limits::default(),
        restart: Restart { max: 0, ..Restart::default() },
        allow: Grants::default(),
    };
    Ok(Pipeline {
        name: "bench".into(),
        functions: vec![function],
        sources: vec![Source { name: "in".into(), kind: SourceKind::External, output: vec!["forward".into()] }],
        sinks: vec![Sink { name: "out".into(), input: input("back"), kind: SinkKind::External }],
        topics: BTreeMap::from([("forward".into(), topic.clone()), ("back".into(), topic)]),
        ..Pipeline::default()
    })
}

/// Waits until the function receives messages. Returns the process identifier of its host.
fn wait_for_function(remote: &Remote) -> Result<u32> {
    let deadline = Instant::now() + START_TIMEOUT;
    while Instant::now() < deadline {
        let status = remote.status().context("the pipeline ended during its start")?;
        if let Some(failure) = status.failures.first() {
            bail!("{failure}");
        }
        if let [function] = &status.functions[..]
            && function.phase == PhaseStatus::Running
            && let Some(host) = function.pid
        {
            return Ok(host);
        }
        thread::sleep(POLL_INTERVAL);
    }
    bail!("the function did not start within {START_TIMEOUT:?}")
}

/// Publishes an end: its descriptors and their description.
fn publish(rendezvous: &mut Rendezvous, name: &str, end: &ExternalEnd) -> Result<()> {
    rendezvous.publish_descriptors(name, &end.descriptors())?;
    rendezvous.publish(&description_name(name), &end.description()?)
}

fn request(rendezvous: &mut Rendezvous, name: &str) -> Result<ExternalEnd> {
    // The lease, a ring and its bell.
    let descriptors: [OwnedFd; 3] = rendezvous.request_descriptors(name)?;
    ExternalEnd::from_parts(&rendezvous.request(&description_name(name))?, descriptors.into())
}

fn description_name(name: &str) -> String {
    format!("{name}, described")
}

impl Transport<Raw> for &'static Flow {
    type Tx = FlowTx;
    type Rx = FlowRx;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<FlowTx, FlowRx>> {
        let wait = match case.wait {
            Wait::Spin => WaitMode::Spin,
            Wait::Adaptive => WaitMode::Adaptive,
            Wait::Block => WaitMode::Block,
        };
        let (mut tx, mut rx) = (None, None);
        if let Role::Producer(_) = role {
            let sender = ManuallyDrop::new(request(rendezvous, "in")?.sender(wait)?);
            tx = Some(FlowTx { sender, len: case.payload.len() });
        }
        if case.pattern == Pattern::PingPong || matches!(role, Role::Consumer(_)) {
            rx = Some(FlowRx(ManuallyDrop::new(request(rendezvous, "out")?.receiver(wait)?)));
        }
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// A sending end that fills messages in the topic's ring. Dropping it does not close the source,
/// because the broker ends the pipeline.
pub(super) struct FlowTx {
    sender: ManuallyDrop<Sender>,
    len: usize,
}

impl Tx for FlowTx {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        let sent = self.sender.send_with(self.len, |bytes| source.fill(bytes));
        sent.map_err(|error| io::Error::new(ErrorKind::BrokenPipe, error))
    }
}

/// A receiving end that verifies messages in the topic's ring. Dropping it does not close the sink.
pub(super) struct FlowRx(ManuallyDrop<Receiver>);

impl FlowRx {
    /// Receives up to `most` messages that are available. Returns their number.
    #[inline(always)]
    fn recv_batch(&mut self, verifier: &mut Verifier, most: u64) -> io::Result<u64> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let claim = self.0.claim(BATCH_BYTES, most);
        let claim = claim.map_err(|error| io::Error::new(ErrorKind::UnexpectedEof, error))?;
        for message in claim.messages() {
            verifier.bytes(&message);
        }
        let count = claim.count() as u64;
        claim.ack();
        Ok(count)
    }
}

impl Rx for FlowRx {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_batch(verifier, 1).map(|_| ())
    }

    #[inline(always)]
    fn recv_all(&mut self, verifier: &mut Verifier, count: u64) -> io::Result<()> {
        let mut remaining = count;
        // The end mark is the last message of the only producer.
        while remaining > 0 && !verifier.ended() {
            remaining -= self.recv_batch(verifier, remaining)?;
        }
        Ok(())
    }
}
