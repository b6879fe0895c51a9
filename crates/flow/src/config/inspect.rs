//! A hook of the check: what is inside of a module.

use std::path::Path;

use super::diagnostic::Severity;
use super::function::Function;

/// Looks into a function's module for exports and imports that do not fit. The engine implements
/// it.
pub trait ModuleInspector {
    /// What is wrong with the module for this function. The check puts it at the function's
    /// `module.path`.
    fn inspect(&self, module: &Path, function: &Function) -> Vec<Finding>;
}

/// What an inspector found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub severity: Severity,
    /// What is wrong: `it exports neither on_message nor estafette_batch`.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl Finding {
    /// A finding with which the pipeline cannot run.
    pub fn error(message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, message: message.into(), help: help.into() }
    }

    /// A finding with which it can.
    pub fn warning(message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, message: message.into(), help: help.into() }
    }
}
