//! A global allocator that is the system's, or mimalloc if the environment asks for it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use mimalloc::MiMalloc;

use super::variable::VARIABLE;

#[global_allocator]
static GLOBAL: Switch = Switch;

/// The allocator of this process as a number: [`UNDECIDED`], [`SYSTEM`] or [`MIMALLOC`].
static CHOICE: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const SYSTEM: u8 = 1;
const MIMALLOC: u8 = 2;

/// Whether mimalloc is the allocator of this process.
pub(super) fn is_mimalloc() -> bool {
    !is_system()
}

#[inline]
fn is_system() -> bool {
    match CHOICE.load(Ordering::Relaxed) {
        UNDECIDED => choose(),
        choice => choice == SYSTEM,
    }
}

/// Reads the environment, at the first allocation. Must not allocate. There is only one thread
/// then, because to start another one allocates.
#[cold]
fn choose() -> bool {
    // SAFETY: `VARIABLE` is a C string. There is no other thread that could change the environment.
    let value = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    // SAFETY: a value that is not null is a C string, which stays until the environment is changed.
    let is_system = value.is_null() || unsafe { CStr::from_ptr(value) } != c"mimalloc";
    CHOICE.store(if is_system { SYSTEM } else { MIMALLOC }, Ordering::Relaxed);
    is_system
}

struct Switch;

// SAFETY: every call is passed on to one allocator, with the same arguments. It is the same one
// during the life of the process, so memory returns to the allocator that it came from.
unsafe impl GlobalAlloc for Switch {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is that of both.
        unsafe { if is_system() { System.alloc(layout) } else { MiMalloc.alloc(layout) } }
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above; and `memory` came from the same allocator.
        unsafe { if is_system() { System.dealloc(memory, layout) } else { MiMalloc.dealloc(memory, layout) } }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { if is_system() { System.alloc_zeroed(layout) } else { MiMalloc.alloc_zeroed(layout) } }
    }

    #[inline]
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`.
        unsafe {
            if is_system() { System.realloc(memory, layout, size) } else { MiMalloc.realloc(memory, layout, size) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::process::Command;

    use super::*;

    const LEN: usize = 64 * 1024;

    /// The bytes that the C library has allocated.
    fn of_system() -> usize {
        // SAFETY: the function has no preconditions.
        unsafe { libc::mallinfo2() }.uordblks
    }

    /// Runs in a process of its own: see below.
    #[test]
    #[ignore = "started by the other test"]
    fn child() {
        let before = of_system();
        let memory = black_box(vec![1_u8; LEN]);
        let is_system = of_system() >= before + LEN / 2;
        drop(memory);
        println!("of system: {is_system}, as chosen: {}", is_system == super::is_system());
    }

    #[test]
    fn the_environment_chooses_the_allocator() {
        for (value, is_system) in [("", true), ("system", true), ("mimalloc", false), ("other", true)] {
            let arguments = ["--ignored", "--exact", "--nocapture", "allocator::switch::tests::child"];
            let mut child = Command::new(std::env::current_exe().unwrap());
            let output = child.args(arguments).env(VARIABLE.to_str().unwrap(), value).output().unwrap();
            let stdout = String::from_utf8(output.stdout).unwrap();
            let expected = format!("of system: {is_system}, as chosen: true");
            assert!(stdout.contains(&expected), "{value}: {stdout}");
        }
    }
}
