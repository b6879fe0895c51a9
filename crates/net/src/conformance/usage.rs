//! CPU time and context switches of a thread.

use std::io;
use std::ops::Sub;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

/// Whose context switches are counted. macOS counts those of the whole process only.
#[cfg(target_os = "linux")]
const SWITCHES_OF: UsageWho = UsageWho::RUSAGE_THREAD;
#[cfg(not(target_os = "linux"))]
const SWITCHES_OF: UsageWho = UsageWho::RUSAGE_SELF;

/// CPU time of a thread, and how many times it slept.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// The number of voluntary context switches.
    pub sleeps: i64,
}

impl Usage {
    /// The usage of the calling thread since it started.
    ///
    /// # Errors
    ///
    /// If the system call fails.
    pub fn of_this_thread() -> io::Result<Usage> {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let switches = getrusage(SWITCHES_OF)?;
        let cpu = Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32);
        Ok(Usage { cpu, sleeps: switches.voluntary_context_switches() })
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, before: Usage) -> Usage {
        Usage { cpu: self.cpu.saturating_sub(before.cpu), sleeps: self.sleeps - before.sleeps }
    }
}
