//! A function: its code in a sandbox, and what it can call.
//!
//! | file | what it holds |
//! |---|---|
//! | `core.rs` | core modules, of the reference's ABI and of the batched one |
//! | `component.rs` | components of the world `estafette:flow/function` |
//! | `outputs.rs` | the topics it sends to |
//! | `stop.rs` | how a call is ended from outside |
//! | `guest_calls/` | what must hold of a guest's calls, for tests and `fuzz/` |

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

/// What a function is made of.
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) abi: Abi,
    /// Compiled code, made by this program's [`crate::engine::cache`].
    pub(crate) code: File,
    pub(crate) grants: Grants,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
    /// The most bytes of linear memory.
    pub(crate) memory_limit: usize,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Arc<StopSignal>,
}

/// A function in its sandbox.
pub(crate) enum Function {
    Core(Box<CoreModule>),
    Component(Box<Component>),
}

/// Why a call into a function did not return.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was stopped from outside.
    Stopped,
    /// It ended itself, with this exit status.
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
    /// Loads the code and instantiates it. No code of the function runs yet, but that of its start section.
    ///
    /// # Errors
    ///
    /// If the code does not fit the host, or its start section fails.
    pub(crate) fn load(setup: &Setup, outputs: Outputs) -> Result<Function, Failure> {
        match setup.abi {
            Abi::Reference | Abi::Batched => CoreModule::load(setup, outputs).map(Box::new).map(Function::Core),
            Abi::Component => Component::load(setup, outputs).map(Box::new).map(Function::Component),
        }
    }

    /// Runs its start function: a sender's work, a receiver's preparations.
    ///
    /// # Errors
    ///
    /// How the function failed. An exit with status 0 is none.
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

    /// Whether it can be given messages.
    pub(crate) fn can_receive(&self) -> bool {
        match self {
            Function::Core(function) => function.can_receive(),
            Function::Component(_) => true,
        }
    }

    /// Gives it messages, in one call or one each.
    ///
    /// # Errors
    ///
    /// How the function failed, with what of the claim it has worked off noted in the claim.
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

    /// The topics it sends to.
    pub(crate) fn outputs(&mut self) -> &mut Outputs {
        match self {
            Function::Core(function) => function.outputs(),
            Function::Component(function) => function.outputs(),
        }
    }
}

/// What every function's store holds.
struct Common {
    outputs: Outputs,
    counters: Arc<Counters>,
    memory_limit: usize,
    /// The bytes of all of its memories.
    memory: usize,
    /// How much memory it was refused, in bytes.
    refused: Option<usize>,
}

impl Common {
    fn new(setup: &Setup, outputs: Outputs) -> Common {
        let (counters, memory_limit) = (Arc::clone(&setup.counters), setup.memory_limit);
        Common { outputs, counters, memory_limit, memory: 0, refused: None }
    }

    /// What an error of a call means. A function that gets no memory usually ends by a trap that does not say so.
    fn failure(&self, error: wasmtime::Error) -> Failure {
        match (failure(error), self.refused) {
            // First, as the rest may be long and is cut.
            (Failure::Trapped(reason), Some(wanted)) => Failure::Trapped(format!(
                "it asked for {wanted} bytes of memory, and `limits.memory` is {} bytes: {reason}",
                self.memory_limit
            )),
            (failure, _) => failure,
        }
    }

    /// Notes that the function's code runs from here on.
    #[inline]
    fn enter(&self) {
        self.counters.add(Counter::Progress, 1);
        self.counters.set(Counter::Busy, 1);
    }

    /// Notes that the host runs from here on: a wait for space is no endless loop.
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

/// What an error of wasmtime means.
fn failure(error: wasmtime::Error) -> Failure {
    if error.downcast_ref::<Stopped>().is_some() {
        Failure::Stopped
    } else if let Some(I32Exit(status)) = error.downcast_ref() {
        Failure::Exited(*status)
    } else {
        // Without the backtrace of this program, which `{:?}` adds where RUST_BACKTRACE is set.
        Failure::Trapped(format!("{error:#}"))
    }
}
