//! Loading of modules: from file to compiled code.
//!
//! Each compilation of a function gets a number, its generation. A host's report about a reload
//! names the generation that it concerns.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, bail, ensure};
use wasmtime::Engine;

use crate::config::{Function, Pipeline};
use crate::control::Generation;
use crate::engine;
use crate::engine::cache::Cache;
use crate::engine::inspect::{Abi, inspect, read};

/// The compiled code of a pipeline's functions.
pub(super) struct Code {
    engine: Engine,
    cache: Cache,
    functions: Vec<Generations>,
    last: Generation,
}

/// The result of a compilation.
pub(super) type Compiled = (Abi, File);

/// One generation of a function's code.
pub(super) struct Loaded {
    pub(super) generation: Generation,
    pub(super) abi: Abi,
    pub(super) file: File,
}

/// The code of one function.
struct Generations {
    /// The code before a reload. It is used again if the candidate does not start.
    proven: Loaded,
    /// The new code of a reload that is in progress.
    candidate: Option<Loaded>,
}

impl Code {
    /// Compiles each function's module, or loads it from the cache.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is not WASM, or does not fit its function.
    pub(super) fn compile(pipeline: &Pipeline) -> Result<Code> {
        let engine = engine::engine(1).map_err(|error| anyhow::anyhow!("cannot run WASM here: {error:?}"))?;
        let cache = Cache::of_user();
        let mut functions = Vec::new();
        let mut last = 0;
        for function in &pipeline.functions {
            let (abi, file) = compile(&engine, &cache, function)?;
            last += 1;
            functions.push(Generations { proven: Loaded { generation: last, abi, file }, candidate: None });
        }
        Ok(Code { engine, cache, functions, last })
    }

    /// Returns a closure that compiles the current content of a function's file. It may take long,
    /// so run it in a separate thread.
    pub(super) fn compilation(&self, function: &Function) -> impl FnOnce() -> Result<Compiled> + Send + use<> {
        let (engine, cache, function) = (self.engine.clone(), self.cache.clone(), function.clone());
        move || match catch_unwind(AssertUnwindSafe(|| compile(&engine, &cache, &function))) {
            Ok(result) => result,
            Err(_) => bail!("function `{}`: the compiler panicked; the log says where", function.name),
        }
    }

    /// Sets new code as a function's candidate.
    pub(super) fn offer(&mut self, function: usize, (abi, file): Compiled) {
        self.last += 1;
        self.functions[function].candidate = Some(Loaded { generation: self.last, abi, file });
    }

    /// The generation of the candidate.
    pub(super) fn candidate(&self, function: usize) -> Option<Generation> {
        Some(self.functions[function].candidate.as_ref()?.generation)
    }

    /// Makes the candidate the function's code, once every instance runs it.
    pub(super) fn accept(&mut self, function: usize) {
        let function = &mut self.functions[function];
        if let Some(candidate) = function.candidate.take() {
            function.proven = candidate;
        }
    }

    /// Discards a candidate that does not start.
    pub(super) fn reject(&mut self, function: usize) {
        self.functions[function].candidate = None;
    }

    /// The code that an instance must run now.
    pub(super) fn current(&self, function: usize) -> &Loaded {
        let function = &self.functions[function];
        function.candidate.as_ref().unwrap_or(&function.proven)
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
