//! The module inspection of `flow check`.

use std::path::Path;

use super::inspect::{inspect, read};
use crate::config::{Finding, Function, ModuleInspector};

/// Inspects a module: whether its exports and imports fit its function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inspector;

impl ModuleInspector for Inspector {
    fn inspect(&self, module: &Path, function: &Function) -> Vec<Finding> {
        const HELP: &str = "docs/flow-abi.md says what a function exports and imports";
        let wasm = match read(module) {
            Ok(wasm) => wasm,
            Err(error) => return vec![Finding::error(format!("{error:#}"), "build the function, or correct the path")],
        };
        match inspect(&wasm) {
            Err(error) => error.to_string().lines().map(|line| Finding::error(line, HELP)).collect(),
            Ok(found) if !found.can_receive && (function.input.is_some() || function.stream.is_some()) => {
                let message = "the module exports nothing that receives messages, but the function has an input";
                vec![Finding::error(message, "export `estafette_batch` or `on_message`, or remove the input")]
            }
            Ok(_) => Vec::new(),
        }
    }
}
