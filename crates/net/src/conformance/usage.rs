//! What a thread spends.

use std::io;
use std::ops::Sub;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of a thread, and how often it went to sleep.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Usage {
    /// The time that processors have spent on it.
    pub cpu: Duration,
    /// How often it has waited for something.
    pub sleeps: i64,
}

impl Usage {
    /// Of this thread since it began.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub fn of_this_thread() -> io::Result<Usage> {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let switches = getrusage(UsageWho::RUSAGE_THREAD)?;
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
