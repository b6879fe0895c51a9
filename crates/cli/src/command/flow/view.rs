//! Tables of a running pipeline: the live view, `flow status`, and the summary at the end.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use estafette_flow::status::{EdgeStatus, FunctionStatus, PhaseStatus, Status};
use estafette_flow::{Ended, Remote, Summary};
use estafette_measure::units;

use super::screen::FlowScreen;
use crate::columns::{Left, Right, columns};

/// How often the live view is drawn.
const PERIOD: Duration = Duration::from_secs(1);

/// The live view, drawn until it is dropped.
pub(crate) struct FlowView {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FlowView {
    pub(crate) fn start(screen: &Arc<FlowScreen>, remote: Remote) -> FlowView {
        let (stop, stopped) = channel();
        let screen = Arc::clone(screen);
        let run = move || {
            let mut before: Option<Status> = None;
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let Some(status) = remote.status() else { break };
                screen.draw(&tables(&status, before.as_ref()));
                before = Some(status);
            }
            screen.draw("");
        };
        let thread = thread::Builder::new().name("view".into()).spawn(run).ok();
        FlowView { stop: Some(stop), thread }
    }
}

impl Drop for FlowView {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Formats a pipeline's status: rates since an earlier status, or since its start.
pub(crate) fn tables(status: &Status, before: Option<&Status>) -> String {
    let seconds = status.uptime_seconds - before.map_or(0.0, |before| before.uptime_seconds);
    let rate =
        |now: u64, before: Option<u64>| units::rate((now - before.unwrap_or(0).min(now)) as f64 / seconds.max(0.001));
    let functions = status.functions.iter().enumerate().map(|(at, function)| {
        let before = before.and_then(|before| before.functions.get(at));
        row_of_function(function, before, seconds, &rate)
    });
    let headers = ["function", "state", "in", "out", "calls", "traps", "restarts", "CPU", "memory"];
    let alignment = [Left, Left, Right, Right, Right, Right, Right, Right, Right];
    let mut text = columns(&headers, &alignment, &functions.collect::<Vec<_>>());
    if !status.edges.is_empty() {
        let edges = status.edges.iter().enumerate().map(|(at, edge)| {
            let before = before.and_then(|before| before.edges.get(at));
            row_of_edge(edge, before, &rate)
        });
        let headers = ["topic", "queue", "rate", "waiting", "full", "oldest", "dropped", "lost"];
        let alignment = [Left, Left, Right, Right, Right, Right, Right, Right];
        text.push('\n');
        text.push_str(&columns(&headers, &alignment, &edges.collect::<Vec<_>>()));
    }
    for connector in &status.connectors {
        if let Some(problem) = &connector.problem {
            text.push_str(&format!("\n{}: {problem}\n", connector.name));
        }
    }
    text
}

fn row_of_function(
    function: &FunctionStatus,
    before: Option<&FunctionStatus>,
    seconds: f64,
    rate: &impl Fn(u64, Option<u64>) -> String,
) -> Vec<String> {
    let cpu = function.cpu_seconds.map(|now| {
        let spent = now - before.and_then(|before| before.cpu_seconds).unwrap_or(0.0);
        format!("{:.0} %", 100.0 * spent.max(0.0) / seconds.max(0.001))
    });
    let memory = function.resident_bytes.unwrap_or(function.memory_bytes);
    vec![
        name(function),
        phase(function.phase).into(),
        rate(function.received_messages, before.map(|before| before.received_messages)),
        rate(function.sent_messages, before.map(|before| before.sent_messages)),
        rate(function.calls, before.map(|before| before.calls)),
        function.traps.to_string(),
        function.restarts.to_string(),
        cpu.unwrap_or_else(|| "-".into()),
        units::memory(memory as f64),
    ]
}

fn row_of_edge(
    edge: &EdgeStatus,
    before: Option<&EdgeStatus>,
    rate: &impl Fn(u64, Option<u64>) -> String,
) -> Vec<String> {
    vec![
        edge.topic.clone(),
        if edge.queue.is_empty() { "-".into() } else { edge.queue.clone() },
        rate(edge.published_messages, before.map(|before| before.published_messages)),
        units::grouped(edge.depth_messages),
        format!("{:.0} %", 100.0 * edge.depth_bytes as f64 / edge.capacity_bytes.max(1) as f64),
        format!("{:.1} s", edge.oldest_seconds),
        units::grouped(edge.dropped.saturating_add(edge.dropped_new)),
        units::grouped(edge.discarded),
    ]
}

/// Returns a function's name, with the instance's number if there are several.
fn name(function: &FunctionStatus) -> String {
    match function.replica {
        0 => function.function.clone(),
        replica => format!("{}.{replica}", function.function),
    }
}

fn phase(phase: PhaseStatus) -> &'static str {
    match phase {
        PhaseStatus::Waiting => "waiting",
        PhaseStatus::Starting => "starting",
        PhaseStatus::Running => "running",
        PhaseStatus::Finished => "finished",
        PhaseStatus::Stopped => "stopped",
        PhaseStatus::Failed => "failed",
    }
}

/// Says how many messages were lost, and where: `, 9 messages lost: 4 while ...`. Empty if none
/// was.
fn lost(summary: &Summary) -> String {
    let parts = [
        (summary.discarded, "in processing when a reader failed or ended"),
        (summary.left_in_topics(), "left in topics"),
        (summary.unread(), "sent after all readers had ended"),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|(count, _)| *count > 0).collect();
    let lost = match parts.iter().map(|(count, _)| count).sum() {
        0 => return String::new(),
        1 => String::from("1 message"),
        lost => format!("{} messages", units::grouped(lost)),
    };
    let parts: Vec<_> = parts.iter().map(|(count, place)| format!("{} {place}", units::grouped(*count))).collect();
    format!(", {lost} lost ({})", parts.join(", "))
}

/// Formats the summary of an ended pipeline in a few lines.
pub(crate) fn summary(summary: &Summary) -> String {
    let status = &summary.status;
    let how = match summary.ended {
        _ if !summary.failures.is_empty() => "failed",
        Ended::Finished => "finished",
        Ended::Drained => "drained",
        Ended::Stopped => "was stopped",
    };
    let mut text = format!("{} {how} after {:.2} s", status.pipeline, status.uptime_seconds);
    let functions = &status.functions;
    let received: u64 = functions.iter().map(|function| function.received_messages).sum();
    let sent: u64 = functions.iter().map(|function| function.sent_messages).sum();
    text.push_str(&format!(
        ": functions received {} messages and sent {}",
        units::grouped(received),
        units::grouped(sent)
    ));
    match summary.restarts {
        0 => {}
        1 => text.push_str(", 1 restart"),
        restarts => text.push_str(&format!(", {restarts} restarts")),
    }
    text.push_str(&lost(summary));
    let dropped: u64 = functions.iter().map(|function| function.dropped).sum();
    if dropped > 0 {
        text.push_str(&format!(", {} dropped by overflow", units::grouped(dropped)));
    }
    let dropped: u64 = status.connectors.iter().map(|connector| connector.dropped).sum();
    if dropped > 0 {
        text.push_str(&format!(", {} dropped at sources: too long, or by overflow", units::grouped(dropped)));
    }
    for failure in &summary.failures {
        text.push_str(&format!("\nestafette: {failure}"));
    }
    text
}
