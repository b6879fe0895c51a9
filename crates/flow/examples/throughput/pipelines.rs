//! The pipelines, run by a supervisor in this process.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use estafette_flow::config::{
    Function, FunctionKind, Grants, Input, Isolation, Limits, Pipeline, Queue, Restart, Topic, Wait,
};
use estafette_flow::{Options, Supervisor};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

use super::{Error, Load, Receiver};

/// The guests' texts, by name.
const GUESTS: [(&str, &str); 9] = [
    ("send", include_str!("../../../guest/wat/send.wat")),
    ("receive", include_str!("../../../guest/wat/receive.wat")),
    ("checksum", include_str!("../../../guest/wat/checksum.wat")),
    ("send_reference", include_str!("../../../guest/wat/send_reference.wat")),
    ("receive_reference", include_str!("../../../guest/wat/receive_reference.wat")),
    ("checksum_reference", include_str!("../../../guest/wat/checksum_reference.wat")),
    ("send_component", include_str!("../../../guest/wat/send_component.wat")),
    ("receive_component", include_str!("../../../guest/wat/receive_component.wat")),
    ("checksum_component", include_str!("../../../guest/wat/checksum_component.wat")),
];

/// The guests, in files.
pub(super) struct Functions(TempDir);

impl Functions {
    pub(super) fn prepare() -> Result<Functions, Error> {
        let folder = tempfile::tempdir()?;
        for (name, text) in GUESTS {
            fs::write(folder.path().join(name).with_extension("wat"), text)?;
        }
        tracing::subscriber::set_global_default(Lines)?;
        Ok(Functions(folder))
    }

    /// Runs a pipeline to its end. Returns the milliseconds that its receiver took.
    pub(super) fn run(&self, receiver: Receiver, load: Load, abi: &str, in_threads: bool) -> Result<f64, Error> {
        let pipeline = pipeline(self.0.path(), receiver, load, abi, in_threads);
        let options = Options { host_program: std::env::current_exe()?, drain_timeout: Duration::from_secs(10) };
        lines().clear();
        let summary = Supervisor::new(pipeline, options)?.run()?;
        if let Some(failure) = summary.failures.first() {
            return Err(failure.as_str().into());
        }
        let received: u64 = summary.status.functions.iter().map(|function| function.received_messages).sum();
        if received != load.messages + 1 {
            return Err(format!("{received} messages were received, {} were sent", load.messages + 1).into());
        }
        // The line that is printed at the last message.
        let said = lines().iter().find_map(|line| {
            line.strip_prefix("Processed ")?.split_once(" messages in ")?.1.strip_suffix(" ms")?.parse().ok()
        });
        said.ok_or_else(|| "no receiver printed its time".into())
    }
}

fn pipeline(folder: &Path, receiver: Receiver, load: Load, abi: &str, in_threads: bool) -> Pipeline {
    let function = |name: &str, replicas| Function {
        name: name.into(),
        kind: FunctionKind::Processor,
        module: folder.join(format!("{name}{abi}.wat")),
        args: Vec::new(),
        stream: None,
        input: None,
        output: Vec::new(),
        replicas,
        isolation: if in_threads { Isolation::Thread } else { Isolation::Process },
        wait: Wait::Adaptive,
        limits: Limits::default(),
        restart: Restart { max: 0, ..Restart::default() },
        allow: Grants::default(),
    };
    let sender = Function {
        args: vec![load.messages.to_string(), load.size.to_string()],
        output: vec!["topic".into()],
        ..function("send", 1)
    };
    let (name, replicas) = match receiver {
        Receiver::Count => ("receive", 1),
        Receiver::Checksum => ("checksum", 1),
        Receiver::Compete => ("receive", 2),
    };
    let input = Some(Input { topic: "topic".into(), queue: Queue::Unnamed });
    Pipeline {
        name: "throughput".into(),
        functions: vec![sender, Function { input, ..function(name, replicas) }],
        topics: BTreeMap::from([("topic".into(), Topic::default())]),
        ..Pipeline::default()
    }
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the functions of this run have printed.
fn lines() -> std::sync::MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps what functions print; everything else that is a warning goes to stderr.
struct Lines;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if *event.metadata().level() <= tracing::Level::WARN {
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
