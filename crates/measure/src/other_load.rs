//! The processor time that other processes use, which disturbs a measurement.

use std::fs;
use std::time::Duration;

use crate::usage::Usage;

/// The maximum part of the processor time that other processes may use. A larger part disturbs a
/// measurement.
pub const DISTURBING: f64 = 0.1;
/// The minimum number of the kernel's ticks between two readings. With fewer the result is too
/// inexact.
const MIN_TICKS: u64 = 20;

/// A reading of the processor time of some cores and of our own processes.
#[derive(Clone, Copy, Debug)]
pub struct OtherLoad {
    ticks: Ticks,
    /// The processor time of this process and of its children that have ended and were waited for.
    own: Duration,
}

/// The time of some cores in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    /// Ticks in which a process ran.
    busy: u64,
    /// All ticks, without those that the hypervisor took.
    total: u64,
}

impl OtherLoad {
    /// Reads the counters of these cores. `None` if `/proc/stat` does not have them.
    ///
    /// [`OtherLoad::share`] subtracts the time of this process and of its children. So until then
    /// they must run on these cores only.
    pub fn watch(cpus: &[usize]) -> Option<OtherLoad> {
        let ticks = Ticks::parse(&fs::read_to_string("/proc/stat").ok()?, cpus)?;
        let own = Usage::now().and(&Usage::of_children());
        Some(OtherLoad { ticks, own: Duration::from_nanos(own.cpu_ns) })
    }

    /// The part of the cores' time that other processes have used since this reading, from 0 to 1.
    /// `None` if too little time has passed.
    pub fn share(&self, cpus: &[usize]) -> Option<f64> {
        let now = OtherLoad::watch(cpus)?;
        let tick = Duration::from_secs(1) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?;
        share(self.ticks.until(now.ticks), now.own.saturating_sub(self.own), tick)
    }
}

impl Ticks {
    fn parse(stat: &str, cpus: &[usize]) -> Option<Ticks> {
        let mut sum = Ticks::default();
        for line in stat.lines() {
            let mut words = line.split_ascii_whitespace();
            let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
            if cpu.is_some_and(|cpu| cpus.contains(&cpu)) {
                let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
                // user nice system idle iowait irq softirq; interrupts belong to no process.
                let [user, nice, system, idle, iowait, irq, softirq] = *ticks.first_chunk()?;
                sum.busy += user + nice + system;
                sum.total += user + nice + system + idle + iowait + irq + softirq;
            }
        }
        (sum.total > 0).then_some(sum)
    }

    fn until(self, later: Ticks) -> Ticks {
        Ticks { busy: later.busy.saturating_sub(self.busy), total: later.total.saturating_sub(self.total) }
    }
}

fn share(passed: Ticks, own: Duration, tick: Duration) -> Option<f64> {
    if passed.total < MIN_TICKS {
        return None;
    }
    let own_ticks = own.as_secs_f64() / tick.as_secs_f64();
    Some(((passed.busy as f64 - own_ticks) / passed.total as f64).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    #[test]
    fn only_the_named_cores_count() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9\ncpu0 100 20 30 400 5 6 7 88 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 1 1 1 1\nintr 5\n";
        assert_eq!(Ticks::parse(stat, &[0]), Some(Ticks { busy: 150, total: 568 }));
        assert_eq!(Ticks::parse(stat, &[0, 1]), Some(Ticks { busy: 156, total: 596 }));
        assert_eq!(Ticks::parse(stat, &[10]), None);
        assert_eq!(Ticks::parse("intr 5\n", &[0]), None);
    }

    #[test]
    fn our_own_time_is_subtracted() {
        let half = Ticks { busy: 150, total: 200 };
        assert_eq!(share(half, Duration::from_millis(500), TICK), Some(0.5));
        assert_eq!(share(half, Duration::from_millis(1_500), TICK), Some(0.0));
        assert_eq!(share(half, Duration::from_millis(1_600), TICK), Some(0.0), "a tick is not an exact clock");
        assert_eq!(share(Ticks { busy: 5, total: 19 }, Duration::ZERO, TICK), None);
    }

    #[test]
    fn the_counters_of_this_machine_are_read() {
        let all: Vec<usize> = (0..1_024).collect();
        let watch = OtherLoad::watch(&all).unwrap();
        assert!(watch.share(&all).is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
