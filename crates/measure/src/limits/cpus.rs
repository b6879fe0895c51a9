//! CPUs: which ones this process may use, and how a thread pins itself to one.
//!
//! Limits depend on the cores: a futex round trip takes 4 us on one core, and 12 us or more between
//! two. So every measuring thread is pinned. A thread only pins itself, never another one.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs in the affinity mask of the calling thread, in ascending order.
///
/// If the mask cannot be read, because the kernel supports more than the 1,024 CPUs of a
/// [`CpuSet`], returns the CPUs from 0 up to the number that the standard library reports.
#[must_use]
pub fn available_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(mask) => (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// The CPUs on which the two ends of a case run: the first of `cpus`, and the next one on another
/// core. If all are hardware threads of one core, the second of `cpus`.
#[must_use]
pub fn end_cpus(cpus: &[usize]) -> Vec<usize> {
    let Some((&first, rest)) = cpus.split_first() else { return Vec::new() };
    let path = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
    let siblings = listed(&std::fs::read_to_string(path).unwrap_or_default());
    let other = rest.iter().find(|cpu| !siblings.contains(cpu)).or(rest.first());
    [first].into_iter().chain(other.copied()).collect()
}

/// Parses a list of CPUs in the kernel's format: `0-2,5` is 0, 1, 2 and 5. Ignores invalid parts.
#[must_use]
pub fn listed(text: &str) -> Vec<usize> {
    /// More CPUs than Linux supports.
    const MOST: usize = 1 << 16;
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        (to < MOST).then_some(from..=to)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Pins the calling thread to one CPU. Threads that it starts later inherit this.
///
/// # Errors
///
/// `InvalidInput` if there is no such CPU or the process's cpuset excludes it.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(listed("0,4-6\n"), [0, 4, 5, 6]);
        assert_eq!(listed(""), Vec::<usize>::new());
        assert_eq!(listed("x-,3"), [3]);
    }

    #[test]
    fn ends_are_at_most_two_cpus() {
        assert_eq!(end_cpus(&[]), Vec::<usize>::new());
        assert_eq!(end_cpus(&[5]), [5]);
        let pair = end_cpus(&[4, 5]);
        assert_eq!((pair.len(), pair[0]), (2, 4));
    }

    #[test]
    fn pinning_a_thread_does_not_pin_its_parent() {
        let before = available_cpus();
        assert!(!before.is_empty());
        for &cpu in &before {
            let seen = std::thread::spawn(move || pin_to(cpu).map(|()| available_cpus()));
            assert_eq!(seen.join().unwrap().unwrap(), [cpu]);
        }
        assert_eq!(available_cpus(), before);
    }

    #[test]
    fn a_cpu_that_cannot_exist_is_an_error() {
        for cpu in [CpuSet::MAX_CPU, usize::MAX] {
            assert_eq!(pin_to(cpu).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
