//! The pipelines of `wasm-pipeline-throughput` as `estafette flow run` runs them: a supervisor in
//! this process starts hosts for the functions and connects them with a topic.
//!
//! The sender fills one message with random bytes, writes its CRC-32 into the last four, and sends
//! it repeatedly. The last message is marked. `receive` counts messages; `checksum` computes the
//! CRC-32 of every message and compares it with the one in it. They print the same as the
//! reference: the count, and the milliseconds from the first message to the last. The hosts count,
//! too.

use std::collections::BTreeMap;
use std::env::current_exe;
use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use estafette_flow::config::{
    Function, FunctionKind, Grants, Input, Isolation, Limits, Pipeline, Queue, Restart, Topic, Wait,
};
use estafette_flow::{Options, Summary, Supervisor};
use estafette_measure::case::{Case, Pattern};
use estafette_measure::{PipelineEnd, Rendezvous};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::printed;

/// The functions of one ABI, as WebAssembly text.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) send: &'static str,
    pub(super) receive: &'static str,
    pub(super) checksum: &'static str,
}

pub(super) const BATCHED: Functions = Functions {
    send: include_str!("../wat/send.wat"),
    receive: include_str!("../wat/receive.wat"),
    checksum: include_str!("../wat/checksum.wat"),
};
pub(super) const REFERENCE: Functions = Functions {
    send: include_str!("../wat/send_reference.wat"),
    receive: include_str!("../wat/receive_reference.wat"),
    checksum: include_str!("../wat/checksum_reference.wat"),
};
pub(super) const COMPONENT: Functions = Functions {
    send: include_str!("../wat/send_component.wat"),
    receive: include_str!("../wat/receive_component.wat"),
    checksum: include_str!("../wat/checksum_component.wat"),
};

impl Functions {
    /// Returns the receiving function of a pattern.
    pub(super) fn receiver(&self, pattern: Pattern) -> &'static str {
        if pattern == Pattern::SendChecksum { self.checksum } else { self.receive }
    }
}

/// The names of the functions.
const SENDER: &str = "send";
const RECEIVER: &str = "receive";

/// Runs a pipeline to its end. Modules are compiled before the barrier, and hosts start after it.
pub(super) fn run(
    functions: Functions,
    isolation: Isolation,
    case: &Case,
    messages: u64,
    rendezvous: &mut Rendezvous,
) -> Result<Vec<PipelineEnd>> {
    let module = |name: &str, text: &str| -> Result<PathBuf> {
        let path = rendezvous.dir().join(name).with_extension("wat");
        fs::write(&path, text).context("writing a function")?;
        Ok(path)
    };
    let modules = [module(SENDER, functions.send)?, module(RECEIVER, functions.receiver(case.pattern))?];
    let options = Options { host_program: current_exe()?, drain_timeout: Duration::ZERO };
    let supervisor = Supervisor::new(pipeline(case, messages, isolation, modules), options)?;
    tracing::subscriber::set_global_default(Lines).context("another log is already installed")?;
    rendezvous.wait_at_barrier()?;
    let summary = supervisor.run()?;
    ends(&summary, &lines(), case)
}

fn pipeline(case: &Case, messages: u64, isolation: Isolation, [sender, receiver]: [PathBuf; 2]) -> Pipeline {
    let function = |name: &str, module: &Path| Function {
        name: name.into(),
        kind: FunctionKind::Processor,
        module: module.into(),
        args: Vec::new(),
        stream: None,
        input: None,
        output: Vec::new(),
        replicas: 1,
        isolation,
        wait: Wait::Adaptive,
        limits: Limits::default(),
        restart: Restart { max: 0, ..Restart::default() },
        allow: Grants::default(),
    };
    let sender = Function {
        args: vec![messages.to_string(), case.payload.len().to_string()],
        output: vec!["topic".into()],
        ..function(SENDER, &sender)
    };
    let receiver = Function {
        input: Some(Input { topic: "topic".into(), queue: Queue::Unnamed }),
        replicas: case.consumers() as u32,
        ..function(RECEIVER, &receiver)
    };
    Pipeline {
        name: "bench".into(),
        functions: vec![sender, receiver],
        topics: BTreeMap::from([("topic".into(), Topic::default())]),
        ..Pipeline::default()
    }
}

/// Determines the results of a pipeline from its hosts' counts and its functions' output.
fn ends(summary: &Summary, lines: &[String], case: &Case) -> Result<Vec<PipelineEnd>> {
    let functions = || summary.status.functions.iter();
    let sent = functions().filter(|function| function.function == SENDER).map(|sender| sender.sent_messages).sum();
    let receivers = functions().filter(|function| function.function == RECEIVER);
    let received: u64 = receivers.map(|receiver| receiver.received_messages).sum();
    let damaged = u64::from(lines.iter().any(|line| printed::is_damaged(line)));
    if damaged == 0 && !summary.failures.is_empty() {
        bail!("{}", summary.failures.join("; "));
    }
    let last = lines.iter().find_map(|line| printed::last(line));
    if let Some(last) = last.filter(|_| case.consumers() == 1) {
        ensure!(last.count == received, "a receiver printed {} messages, its host counted {received}", last.count);
    }
    let receiver = PipelineEnd::receiver(0, received, last.map(|last| last.time)).damaged(damaged);
    Ok(vec![PipelineEnd::sender(sent), receiver])
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The lines that the functions have printed.
fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log that stores what functions print. It also writes warnings to stderr, which is shown if an
/// instance fails.
struct Lines;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if *event.metadata().level() <= Level::WARN {
            eprintln!("{}", text.0);
        }
        lines().push(text.0);
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
