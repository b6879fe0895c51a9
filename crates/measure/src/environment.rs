//! Where the two ends of a mechanism run, and how they wait.

use serde::{Deserialize, Serialize};

use crate::names::names;

/// The distance a message travels, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Between async tasks of one process.
    Task,
    /// Between threads of one process.
    Thread,
    /// Between processes of one machine.
    Process,
    /// Through the network stack.
    Network,
    /// Through a function inside a WASM sandbox.
    Sandbox,
}

impl Scope {
    /// Whether both ends run in one child process.
    pub fn in_process(self) -> bool {
        matches!(self, Scope::Task | Scope::Thread)
    }
}

/// How an end waits when it can neither send nor receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Polls and never gives up its core.
    Spin,
    /// Polls for a while, then sleeps.
    Adaptive,
    /// Sleeps until it is woken.
    Block,
}

/// Where the code of the two ends runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// One OS thread for each end.
    Thread,
    /// Tokio's multi-threaded runtime, one worker thread for each core.
    TokioMulti,
    /// Tokio's current-thread runtime.
    TokioCurrent,
    /// Tokio's multi-threaded runtime without its cooperative budget, which makes a task yield
    /// after 128 operations.
    TokioMultiUnconstrained,
    /// Tokio's current-thread runtime without that budget.
    TokioCurrentUnconstrained,
}

impl Runtime {
    /// The Tokio runtimes, in which ends are tasks.
    pub const TASKS: [Runtime; 4] = [
        Runtime::TokioMulti,
        Runtime::TokioCurrent,
        Runtime::TokioMultiUnconstrained,
        Runtime::TokioCurrentUnconstrained,
    ];
}

names!(Scope, "scope", Task = "task", Thread = "thread", Process = "process", Network = "network", Sandbox = "sandbox");
names!(Wait, "wait mode", Spin = "spin", Adaptive = "adaptive", Block = "block");
names!(
    Runtime,
    "runtime",
    Thread = "thread",
    TokioMulti = "tokio-multi",
    TokioCurrent = "tokio-current",
    TokioMultiUnconstrained = "tokio-multi-unconstrained",
    TokioCurrentUnconstrained = "tokio-current-unconstrained",
);
