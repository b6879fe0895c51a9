//! The variable of the environment that chooses the allocator of a process.

use std::ffi::CStr;

/// Its name. Its value is the name of an allocator.
pub(super) const VARIABLE: &CStr = c"ESTAFETTE_ALLOCATOR";
