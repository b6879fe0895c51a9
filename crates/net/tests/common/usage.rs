//! What a thread spends, and what memory the process has.

use std::fs;
use std::io;
use std::ops::Sub;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of a thread, and how often it went to sleep.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub cpu: Duration,
    pub sleeps: i64,
}

impl Usage {
    /// Of this thread since it began.
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

/// How many bytes of this process are in memory: what it touched, in whole pages, not what the system keeps for its sockets.
pub fn resident() -> io::Result<usize> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size())
}
