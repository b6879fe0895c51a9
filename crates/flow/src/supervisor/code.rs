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
    functions: Vec<(Abi, File)>,
}

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
        let functions = functions.collect::<Result<_>>()?;
        Ok(Code { engine, cache, functions })
    }

    /// Compiles a function's module again, from what its file holds now.
    ///
    /// # Errors
    ///
    /// Those of [`Code::compile`]; the code is what it was, then.
    pub(super) fn reload(&mut self, pipeline: &Pipeline, function: usize) -> Result<()> {
        self.functions[function] = compile(&self.engine, &self.cache, &pipeline.functions[function])?;
        Ok(())
    }

    pub(super) fn abi(&self, function: usize) -> Abi {
        self.functions[function].0
    }

    pub(super) fn file(&self, function: usize) -> &File {
        &self.functions[function].1
    }
}

fn compile(engine: &Engine, cache: &Cache, function: &Function) -> Result<(Abi, File)> {
    let with = || -> Result<(Abi, File)> {
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
