//! CPUs: which ones this process may use, and how a thread binds itself to one.
//!
//! A limit belongs to a place: a futex round trip takes 4 us within a core and 12 us or more across two. So every
//! thread that measures is pinned, and a thread is only ever pinned by itself.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs in the affinity mask of the calling thread, in ascending order.
///
/// Where the mask cannot be read (a kernel built for more CPUs than the 1,024 a [`CpuSet`] holds), as many CPUs from 0
/// upwards as the standard library believes to be available.
#[must_use]
pub fn available_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(mask) => (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect(),
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// The CPUs on which the two ends of a case run: the first, and the next one that is another core of it, not another
/// thread of the same core, where there is one.
#[must_use]
pub fn ends(cpus: &[usize]) -> Vec<usize> {
    let Some((&first, rest)) = cpus.split_first() else { return Vec::new() };
    let path = format!("/sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list");
    let siblings = listed(&std::fs::read_to_string(path).unwrap_or_default());
    let other = rest.iter().find(|cpu| !siblings.contains(cpu)).or(rest.first());
    [first].into_iter().chain(other.copied()).collect()
}

/// The numbers of a list such as the kernel writes it: `0-2,5` is 0, 1, 2 and 5. What is no such list has no numbers.
#[must_use]
pub fn listed(text: &str) -> Vec<usize> {
    /// More CPUs than Linux can have.
    const MOST: usize = 1 << 16;
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
        (to < MOST).then_some(from..=to)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// Binds the calling thread, and the threads it will start, to one CPU.
///
/// # Errors
///
/// `InvalidInput` where there is no such CPU or the process's cpuset excludes it.
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
    fn lists_of_cpus_are_read() {
        assert_eq!(listed("0,4-6\n"), [0, 4, 5, 6]);
        assert_eq!(listed(""), Vec::<usize>::new());
        assert_eq!(listed("x-,3"), [3]);
    }

    #[test]
    fn the_ends_are_two_where_there_are_two() {
        assert_eq!(ends(&[]), Vec::<usize>::new());
        assert_eq!(ends(&[5]), [5]);
        let pair = ends(&[4, 5]);
        assert_eq!((pair.len(), pair[0]), (2, 4));
    }

    #[test]
    fn a_pinned_thread_sees_one_cpu_and_its_parent_all() {
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
