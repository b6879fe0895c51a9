//! Processor time and context switches of processes, and the time that the hypervisor takes
//! (steal).

use std::{fs, io};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Processor time and context switches of a whole process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    /// Processor time, user and system, in nanoseconds.
    pub cpu_ns: u64,
    /// Context switches because it waited.
    pub voluntary_switches: u64,
    /// Context switches because its time slice ended or a more urgent task preempted it.
    pub involuntary_switches: u64,
}

impl Usage {
    /// The usage of this process since it started.
    pub fn now() -> Usage {
        // The process clock counts nanoseconds. The times of getrusage may be no finer than the
        // scheduler's tick.
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let switches = getrusage(UsageWho::RUSAGE_SELF).ok();
        let count = |of: fn(&nix::sys::resource::Usage) -> nix::libc::c_long| {
            switches.as_ref().map_or(0, |usage| u64::try_from(of(usage)).unwrap_or(0))
        };
        Usage {
            cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
            voluntary_switches: count(|usage| usage.voluntary_context_switches()),
            involuntary_switches: count(|usage| usage.involuntary_context_switches()),
        }
    }

    /// The usage of all descendants of this process that have ended and were waited for.
    pub fn of_children() -> Usage {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Usage::default() };
        let count = |count: nix::libc::c_long| u64::try_from(count).unwrap_or(0);
        let times = [usage.user_time(), usage.system_time()];
        Usage {
            cpu_ns: times.iter().map(|time| count(time.tv_sec()) * 1_000_000_000 + count(time.tv_usec()) * 1_000).sum(),
            voluntary_switches: count(usage.voluntary_context_switches()),
            involuntary_switches: count(usage.involuntary_context_switches()),
        }
    }

    /// The usage of another process since it started. Only counts threads that still run.
    ///
    /// # Errors
    /// When the process has ended, or when `/proc` lacks the figures.
    pub fn of(process: u32) -> io::Result<Usage> {
        let mut sum = Usage::default();
        for thread in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
            let read = |file| fs::read_to_string(thread.path().join(file));
            match read("schedstat").and_then(|schedstat| Ok((schedstat, read("status")?))) {
                Ok((schedstat, status)) => {
                    sum = sum.and(&Usage::parse(&schedstat, &status).ok_or(io::ErrorKind::InvalidData)?);
                }
                // The thread has ended meanwhile.
                Err(_) if !thread.path().exists() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(sum)
    }

    /// Parses a thread's `schedstat`, which begins with its processor time in nanoseconds, and its
    /// `status`.
    fn parse(schedstat: &str, status: &str) -> Option<Usage> {
        let count = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line?.trim().parse().ok()
        };
        Some(Usage {
            cpu_ns: schedstat.split_ascii_whitespace().next()?.parse().ok()?,
            voluntary_switches: count("voluntary_ctxt_switches")?,
            involuntary_switches: count("nonvoluntary_ctxt_switches")?,
        })
    }

    /// The sum of two usages.
    #[must_use]
    pub fn and(&self, other: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            voluntary_switches: self.voluntary_switches + other.voluntary_switches,
            involuntary_switches: self.involuntary_switches + other.involuntary_switches,
        }
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }
}

/// The time of some cores since boot, in ticks: stolen by the hypervisor, and total.
#[derive(Clone, Copy, Debug)]
pub struct Steal {
    stolen: u64,
    total: u64,
}

impl Steal {
    /// Reads the times of these cores. `None` if `/proc/stat` lacks them.
    pub fn now(cpus: &[usize]) -> Option<Steal> {
        Steal::parse(&fs::read_to_string("/proc/stat").ok()?, cpus)
    }

    fn parse(stat: &str, cpus: &[usize]) -> Option<Steal> {
        let mut sum = Steal { stolen: 0, total: 0 };
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
            if cpu.is_some_and(|cpu| cpus.contains(&cpu)) {
                let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
                // user nice system idle iowait irq softirq steal; guest time is already in user.
                sum.stolen += ticks.get(7)?;
                sum.total += ticks[..8].iter().sum::<u64>();
            }
        }
        (sum.total > 0).then_some(sum)
    }

    /// The part of the cores' time that was stolen since an earlier reading, from 0 to 1.
    pub fn since(&self, earlier: &Steal) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        if total == 0 { 0.0 } else { self.stolen.saturating_sub(earlier.stolen) as f64 / total as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_uses_processor_time() {
        let before = Usage::now();
        let mut sum = 0u64;
        while Usage::now().since(&before).cpu_ns < 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
    }

    #[test]
    fn the_usage_of_another_process_is_read_from_its_threads() {
        let status = "Name:\tserver\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        let usage = Usage::parse("123456 789 10\n", status);
        assert_eq!(usage, Some(Usage { cpu_ns: 123_456, voluntary_switches: 12, involuntary_switches: 3 }));
        assert_eq!(Usage::parse("", status), None);
        assert!(Usage::of(std::process::id()).unwrap().cpu_ns > 0);
        // No process has an id this high.
        assert!(Usage::of(4_194_305).is_err());
    }

    #[test]
    fn steal_is_a_share_of_all_ticks() {
        let stat = |stolen: u64| {
            format!("cpu  1 1 1 1\ncpu0 100 0 100 700 0 0 0 {stolen} 0 0\ncpu1 0 0 0 0 0 0 0 99 0 0\nintr 5\n")
        };
        let before = Steal::parse(&stat(0), &[0]).unwrap();
        let after = Steal::parse(&stat(5).replace("700", "795"), &[0]).unwrap();
        assert!((after.since(&before) - 0.05).abs() < 1e-9);
        assert!(Steal::parse("intr 1 2 3", &[0]).is_none());
        assert!(Steal::parse("cpu0 1 2 3", &[0]).is_none());
    }
}
