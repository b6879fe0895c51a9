//! Modules, from file to compiled code.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use wasmtime::Engine;

use crate::config::{Function, Pipeline};
use crate::engine;
use crate::engine::cache::Cache;
use crate::engine::inspect::{Abi, inspect, read};

/// The compiled code of a pipeline's functions.
pub(super) struct Code {
    engine: Engine,
    cache: Cache,
    functions: Vec<Compiled>,
    /// Of each function, the code that ran before a reload, until the new code has started once.
    previous: Vec<Option<Compiled>>,
}

type Compiled = (Abi, File);

impl Code {
    /// Compiles each function's module, or takes it from the cache.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not WASM, or does not do what its function needs.
    pub(super) fn compile(pipeline: &Pipeline) -> Result<Code> {
        let engine = engine::engine(1).map_err(|error| anyhow::anyhow!("cannot run WASM here: {error:?}"))?;
        let cache = Cache::of_user();
        let functions = pipeline.functions.iter().map(|function| compile(&engine, &cache, function));
        let functions = functions.collect::<Result<Vec<_>>>()?;
        let previous = functions.iter().map(|_| None).collect();
        Ok(Code { engine, cache, functions, previous })
    }

    /// Compiles a function's module again, from what its file holds now.
    ///
    /// # Errors
    ///
    /// Those of [`Code::compile`]; the code is what it was, then.
    pub(super) fn reload(&mut self, pipeline: &Pipeline, function: usize) -> Result<()> {
        let new = compile(&self.engine, &self.cache, &pipeline.functions[function])?;
        let old = std::mem::replace(&mut self.functions[function], new);
        // Code that has not started yet is nothing to go back to.
        self.previous[function].get_or_insert(old);
        Ok(())
    }

    /// Notes that a function's code has started: later starts use it, too.
    pub(super) fn confirm(&mut self, function: usize) {
        self.previous[function] = None;
    }

    /// Goes back to the code before a reload, if the new code has never started.
    pub(super) fn revert(&mut self, function: usize) {
        if let Some(previous) = self.previous[function].take() {
            self.functions[function] = previous;
        }
    }

    pub(super) fn abi(&self, function: usize) -> Abi {
        self.functions[function].0
    }

    pub(super) fn file(&self, function: usize) -> &File {
        &self.functions[function].1
    }
}

fn compile(engine: &Engine, cache: &Cache, function: &Function) -> Result<Compiled> {
    let with = || -> Result<Compiled> {
        let wasm = read(&function.module)?;
        let inspection = inspect(&wasm).with_context(|| format!("cannot use {}", function.module.display()))?;
        ensure!(
            inspection.can_receive || (function.input.is_none() && function.stream.is_none()),
            "{} exports nothing that receives messages, but the function has an input",
            function.module.display()
        );
        let started = std::time::Instant::now();
        let file = cache.compiled(engine, inspection.abi, &wasm, &function.module.display().to_string())?;
        tracing::debug!(
            function = function.name,
            abi = inspection.abi.name(),
            "compiled or found in {:?}",
            started.elapsed()
        );
        Ok((inspection.abi, file))
    };
    with().with_context(|| format!("function `{}`", function.name))
}
