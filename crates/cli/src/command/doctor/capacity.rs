//! Checks resources: memory, files, processes and the temporary directory.

use std::path::Path;

use estafette_measure::coordinator::Scratch;
use rustix::process::{Resource, getrlimit};

use super::cgroup;
use super::finding::Finding;
use super::read::read;

const MIB: u64 = 1 << 20;
/// File descriptors that a fan-in of thousands needs in one process, and those that a usual case
/// needs.
const FILES: [u64; 2] = [4096, 256];
/// Processes and threads, likewise.
const PROCESSES: [u64; 2] = [4096, 256];

pub(super) fn findings() -> Vec<Finding> {
    let temporary = std::env::temp_dir();
    let runs_before = runs(&temporary);
    // A run begins with the same call, which also removes the directories of killed runs.
    let scratch = Scratch::new().map(drop).map_err(|error| format!("{error:#}"));
    let runs_now = runs(&temporary);
    let free = rustix::fs::statvfs(&temporary).ok().map(|volume| volume.f_bavail.saturating_mul(volume.f_frsize));
    let mut findings = vec![
        memory(available(&read("/proc/meminfo").unwrap_or_default()), cgroup::memory()),
        huge_pages(&read("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default()),
        files(getrlimit(Resource::Nofile).current),
    ];
    let user = getrlimit(Resource::Nproc).current;
    let machine = read("/proc/sys/kernel/pid_max").and_then(|text| text.parse().ok());
    findings.extend(processes([user, machine, cgroup::pids_left()]));
    findings.push(directory(&temporary, scratch, free));
    findings.extend(other_runs(&temporary, runs_before, runs_now));
    findings
}

/// Returns `MemAvailable` of `/proc/meminfo` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

fn memory(available: Option<u64>, allowed: Option<u64>) -> Finding {
    const WHAT: &str = "memory";
    let Some(available) = available else {
        return Finding::note(WHAT, "not visible", "check with `free` that there is enough");
    };
    let (capacity, found) = match allowed {
        Some(allowed) if allowed < available => (allowed, format!("{} allowed by the cgroup", bytes(allowed))),
        _ => (available, format!("{} available", bytes(available))),
    };
    match capacity / MIB {
        0..256 => Finding::warning(WHAT, found, "rings and large messages may not fit or be swapped: free some"),
        256..1024 => Finding::note(WHAT, found, "enough for the suites; messages of many MiB may not fit"),
        _ => Finding::ok(WHAT, found),
    }
}

/// Parses the mode from `always [madvise] never`.
fn huge_pages(text: &str) -> Finding {
    const WHAT: &str = "huge pages";
    match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some(("always", _)) => Finding::note(
            WHAT,
            "transparent huge pages: always",
            "large buffers get them or not depending on memory layout, which is noise: write `madvise` to \
             /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some((mode, _)) => Finding::ok(WHAT, format!("transparent huge pages: {mode}")),
        None => Finding::ok(WHAT, "no transparent huge pages visible"),
    }
}

/// Checks the soft limit; `None` means no limit.
fn files(limit: Option<u64>) -> Finding {
    const WHAT: &str = "open files";
    let Some(limit) = limit else { return Finding::ok(WHAT, "not limited") };
    let found = format!("at most {limit}");
    let remedy = format!("`ulimit -n {}` before the run", FILES[0]);
    if limit < FILES[1] {
        Finding::warning(WHAT, found, remedy)
    } else if limit < FILES[0] {
        Finding::note(WHAT, found, format!("too few for a fan-in of thousands: {remedy}"))
    } else {
        Finding::ok(WHAT, found)
    }
}

/// Checks the limits of processes and threads. Returns `None` if all are high enough.
fn processes(limits: [Option<u64>; 3]) -> Option<Finding> {
    const WHAT: &str = "processes";
    let least = limits.into_iter().flatten().min().filter(|&least| least < PROCESSES[0])?;
    let found = format!("{least} more");
    let remedy = "raise `ulimit -u`, the container's --pids-limit or kernel.pid_max";
    Some(if least < PROCESSES[1] {
        Finding::warning(WHAT, found, remedy)
    } else {
        Finding::note(WHAT, found, format!("too few for a fan-in of thousands: {remedy}"))
    })
}

fn directory(path: &Path, scratch: Result<(), String>, free: Option<u64>) -> Finding {
    const WHAT: &str = "temporary files";
    let path = path.display();
    match (scratch, free) {
        (Err(error), _) => Finding::warning(WHAT, format!("no run can start in {path}"), error),
        (Ok(()), Some(free)) if free < 64 * MIB => Finding::warning(
            WHAT,
            format!("{path} has only {} left", bytes(free)),
            "free some space, or set TMPDIR to another directory",
        ),
        (Ok(()), free) => {
            let free = free.map_or(String::new(), |free| format!(", {} free", bytes(free)));
            Finding::ok(WHAT, format!("{path} can be written{free}"))
        }
    }
}

/// Checks for other runs, from the number of run directories before and after those of killed runs
/// were removed.
fn other_runs(path: &Path, before: usize, now: usize) -> Option<Finding> {
    const WHAT: &str = "other runs";
    let removed = before.saturating_sub(now);
    if now > 0 {
        return Some(Finding::warning(
            WHAT,
            format!("{now} running in {}", path.display()),
            "two runs disturb each other: wait for the other one to end",
        ));
    }
    let left = format!("{removed} killed runs left files in {}; they were removed", path.display());
    (removed > 0).then(|| Finding::note(WHAT, left, "their processes may still run: see `ps -C estafette`"))
}

/// Formats a number of bytes: `1.5 GiB`, `300 MiB`.
fn bytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        mib if mib >= 1024.0 => format!("{:.1} GiB", mib / 1024.0),
        mib => format!("{mib:.0} MiB"),
    }
}

/// Counts the run directories: those that [`Scratch`] creates, with its lock file.
fn runs(path: &Path) -> usize {
    let Ok(entries) = path.read_dir() else { return 0 };
    let runs = entries.flatten().filter(|entry| {
        entry.file_name().to_string_lossy().starts_with("estafette-") && entry.path().join("lock").is_file()
    });
    runs.count()
}

#[cfg(test)]
mod tests {
    use super::super::finding::FindingVerdict::{Note, Ok as Fine, Warning};
    use super::*;

    #[test]
    fn memory_is_limited_by_the_machine_and_the_cgroup() {
        let text = "MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   2097152 kB\n";
        assert_eq!(available(text), Some(2 << 30));
        for bad in ["", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 18446744073709551615 kB"] {
            assert_eq!(available(bad), None, "{bad}");
        }
        let gib = Some(1 << 30);
        assert_eq!(memory(gib, None).verdict, Fine);
        assert_eq!(memory(gib, Some(100 * MIB)).verdict, Warning);
        assert_eq!(memory(gib, Some(u64::MAX)).verdict, Fine);
        assert_eq!(memory(Some(500 * MIB), None).verdict, Note);
        assert_eq!(memory(None, None).verdict, Note);
    }

    #[test]
    fn modes_of_huge_pages() {
        for (text, verdict) in
            [("[always] madvise never", Note), ("always [madvise] never", Fine), ("", Fine), ("]x[", Fine)]
        {
            assert_eq!(huge_pages(text).verdict, verdict, "{text}");
        }
    }

    #[test]
    fn limits_of_files_and_processes() {
        assert_eq!(
            [None, Some(100), Some(1024), Some(20_000)].map(|limit| files(limit).verdict),
            [Fine, Warning, Note, Fine]
        );
        assert_eq!(processes([None, None, None]), None);
        assert_eq!(processes([Some(96_365), Some(32_768), None]), None);
        assert_eq!(processes([Some(96_365), Some(32_768), Some(1000)]).unwrap().verdict, Note);
        assert_eq!(processes([Some(10), None, None]).unwrap().verdict, Warning);
    }

    #[test]
    fn temporary_directories_and_other_runs() {
        let tmp = Path::new("/tmp");
        assert_eq!(directory(tmp, Ok(()), Some(1 << 30)).found, "/tmp can be written, 1.0 GiB free");
        assert_eq!(directory(tmp, Ok(()), Some(1)).verdict, Warning);
        assert_eq!(directory(tmp, Err(String::from("set TMPDIR")), None).remedy.unwrap(), "set TMPDIR");
        assert_eq!(other_runs(tmp, 0, 0), None);
        assert_eq!(other_runs(tmp, 2, 0).unwrap().verdict, Note);
        assert_eq!(other_runs(tmp, 2, 1).unwrap().verdict, Warning);
    }

    #[test]
    fn only_directories_with_a_lock_are_runs() {
        let parent = Scratch::new().unwrap();
        for name in ["estafette-1-a", "estafette-2-b", "other"] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        for name in ["estafette-1-a", "other"] {
            std::fs::write(parent.path().join(name).join("lock"), "").unwrap();
        }
        assert_eq!(runs(parent.path()), 1);
        assert_eq!(runs(Path::new("/there/is/no/such/directory")), 0);
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(300 << 20), "300 MiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }
}
