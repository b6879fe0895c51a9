//! The hook by which the check inspects a module.

use std::path::Path;

use super::diagnostic::Severity;
use super::function::Function;

/// Inspects a function's module for wrong exports and imports. The engine implements it.
pub trait ModuleInspector {
    /// The findings about the module for this function. The check reports them at the function's
    /// `module.path`.
    fn inspect(&self, module: &Path, function: &Function) -> Vec<Finding>;
}

/// A finding of an inspector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// What is wrong, for example `it exports neither on_message nor estafette_batch`.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl Finding {
    /// A finding that prevents the pipeline from running.
    pub fn error(message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Error, message: message.into(), help: help.into() }
    }

    /// A finding that does not.
    pub fn warning(message: impl Into<String>, help: impl Into<String>) -> Finding {
        Finding { severity: Severity::Warning, message: message.into(), help: help.into() }
    }
}
