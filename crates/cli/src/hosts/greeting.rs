//! How this host greets another one.

use estafette_measure::hosts::Hello;

use crate::allocator::Allocator;

/// The greeting of this host.
pub(crate) fn hello() -> Hello {
    Hello::of_this_host(commit()).with_allocator(Allocator::current().name())
}

/// The commit from which this command was built.
pub(super) fn commit() -> Option<&'static str> {
    option_env!("ESTAFETTE_COMMIT")
}
