//! A function: its code in a sandbox, and its imports.
//!
//! | file | content |
//! |---|---|
//! | `core.rs` | core modules, of the reference's ABI and of the batched ABI |
//! | `component.rs` | components of the world `estafette:flow/function` |
//! | `outputs.rs` | the topics that it sends to |
//! | `stop.rs` | stopping a call from outside |
//! | `guest_calls/` | the fuzz target for a guest's calls |

mod component;
mod core;
#[cfg(any(test, fuzzing))]
pub mod guest_calls;
mod outputs;
mod stop;

pub(crate) use self::outputs::{Output, Outputs, SendError, Sent};
pub(crate) use self::stop::StopSignal;

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use anyhow::Result;
use estafette_ipc::group::Claim;
use wasmtime::{Engine, ResourceLimiter};
use wasmtime_wasi::I32Exit;

use crate::counters::{Counter, Counters};
use crate::engine::inspect::Abi;
use crate::engine::wasi::Grants;

use self::component::Component;
use self::core::CoreModule;
use self::stop::Stopped;

/// Everything that is needed to load a function.
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) abi: Abi,
    /// Compiled code, from this program's [`crate::engine::cache`].
    pub(crate) code: File,
    pub(crate) grants: Grants,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
    /// The maximum size of linear memory in bytes.
    pub(crate) memory_limit: usize,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Arc<StopSignal>,
}

/// A function in its sandbox.
pub(crate) enum Function {
    Core(Box<CoreModule>),
    Component(Box<Component>),
}

/// Why a call of a function did not return.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was stopped from outside.
    Stopped,
    /// It exited with this status.
    Exited(i32),
    /// It trapped, ran too long, or broke the ABI.
    Trapped(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Stopped => f.write_str("it was stopped"),
            Failure::Exited(status) => write!(f, "it ended itself with the exit status {status}"),
            Failure::Trapped(reason) => f.write_str(reason),
        }
    }
}

impl Function {
    /// Loads and instantiates the code. Only the function's start section runs.
    ///
    /// # Errors
    ///
    /// If the code does not match the host, or its start section fails.
    pub(crate) fn load(setup: &Setup, outputs: Outputs) -> Result<Function, Failure> {
        match setup.abi {
            Abi::Reference | Abi::Batched => CoreModule::load(setup, outputs).map(Box::new).map(Function::Core),
            Abi::Component => Component::load(setup, outputs).map(Box::new).map(Function::Component),
        }
    }

    /// Runs the start function. A sender does all of its work there.
    ///
    /// # Errors
    ///
    /// How the function failed. An exit with status 0 is not a failure.
    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        let result = match self {
            Function::Core(function) => function.start(),
            Function::Component(function) => function.start(),
        };
        match result {
            Err(Failure::Exited(0)) => Ok(()),
            result => result,
        }
    }

    /// Whether it can receive messages.
    pub(crate) fn can_receive(&self) -> bool {
        match self {
            Function::Core(function) => function.can_receive(),
            Function::Component(_) => true,
        }
    }

    /// Delivers messages, in one call or in one call each.
    ///
    /// # Errors
    ///
    /// How the function failed. The claim's progress records the messages that are done.
    pub(crate) fn deliver(&mut self, claim: &Claim<'_>) -> Result<(), Failure> {
        match self {
            Function::Core(function) => function.deliver(claim),
            Function::Component(function) => function.deliver(claim),
        }
    }

    /// The linear memory of a core module.
    #[cfg(any(test, fuzzing))]
    fn memory(&self) -> &[u8] {
        match self {
            Function::Core(function) => function.memory(),
            Function::Component(_) => &[],
        }
    }

    /// The topics that it sends to.
    pub(crate) fn outputs(&mut self) -> &mut Outputs {
        match self {
            Function::Core(function) => function.outputs(),
            Function::Component(function) => function.outputs(),
        }
    }
}

/// The state that every function's store contains.
struct Common {
    outputs: Outputs,
    counters: Arc<Counters>,
    memory_limit: usize,
    /// The size of all of its memories in bytes.
    memory: usize,
    /// The size that it requested beyond the limit, in bytes.
    refused: Option<usize>,
}

impl Common {
    fn new(setup: &Setup, outputs: Outputs) -> Common {
        let (counters, memory_limit) = (Arc::clone(&setup.counters), setup.memory_limit);
        Common { outputs, counters, memory_limit, memory: 0, refused: None }
    }

    /// Converts the error of a call. A function that gets no more memory usually traps with an
    /// unrelated reason, so the refused size is added.
    fn failure(&self, error: wasmtime::Error) -> Failure {
        match (failure(error), self.refused) {
            // The size comes first, as the reason may be long and is cut.
            (Failure::Trapped(reason), Some(wanted)) => Failure::Trapped(format!(
                "it requested {wanted} bytes of memory, but `limits.memory` is {} bytes: {reason}",
                self.memory_limit
            )),
            (failure, _) => failure,
        }
    }

    /// Marks that the function's code runs from now on.
    #[inline]
    fn enter(&self) {
        self.counters.add(Counter::Progress, 1);
        self.counters.set(Counter::Busy, 1);
    }

    /// Marks that the host runs from now on: a wait for space is not an endless loop.
    #[inline]
    fn leave(&self) {
        self.counters.set(Counter::Busy, 0);
    }
}

impl ResourceLimiter for Common {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let more = desired.saturating_sub(current);
        let is_allowed = self.memory.saturating_add(more) <= self.memory_limit;
        if is_allowed {
            self.memory += more;
            self.counters.add(Counter::Memory, more as u64);
        } else {
            self.refused = Some(desired);
        }
        Ok(is_allowed)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= 1 << 20)
    }
}

/// Converts an error of wasmtime.
fn failure(error: wasmtime::Error) -> Failure {
    if error.downcast_ref::<Stopped>().is_some() {
        Failure::Stopped
    } else if let Some(I32Exit(status)) = error.downcast_ref() {
        Failure::Exited(*status)
    } else {
        // Not `{:?}`, which adds this program's backtrace if RUST_BACKTRACE is set.
        Failure::Trapped(format!("{error:#}"))
    }
}
