//! Control groups: limits on resources other than the choice of cores.
//!
//! A limit applies from any folder between the process's own and the root of its hierarchy, so all
//! of them are read and the lowest limit counts. Version 2 has one hierarchy, version 1 one per
//! controller; a machine may have both. Inside a container the process's path is often not visible.
//! Then the mount point of the hierarchy is its own folder.

use std::path::{Component, Path, PathBuf};

use super::read::read;

/// Returns the CPU quota in cores; `None` without a limit.
pub(super) fn cpu_quota() -> Option<f64> {
    let quotas = folders("cpu").into_iter().filter_map(|folder| {
        let file = |name: &str| read(folder.join(name).to_str()?);
        match file("cpu.max") {
            Some(both) => quota(&both),
            None => quota(&format!("{} {}", file("cpu.cfs_quota_us")?, file("cpu.cfs_period_us")?)),
        }
    });
    quotas.min_by(f64::total_cmp)
}

/// Returns how many more processes and threads may be started; `None` without a limit.
pub(super) fn pids_left() -> Option<u64> {
    lowest("pids", |file| {
        let most: u64 = file("pids.max")?.parse().ok()?;
        Some(most.saturating_sub(file("pids.current")?.parse().ok()?))
    })
}

/// Returns the memory limit in bytes; `None` without a limit.
pub(super) fn memory() -> Option<u64> {
    lowest("memory", |file| file("memory.max").or_else(|| file("memory.limit_in_bytes"))?.parse().ok())
}

/// Returns the lowest limit over all folders that have one.
fn lowest(controller: &str, limit: impl Fn(&dyn Fn(&str) -> Option<String>) -> Option<u64>) -> Option<u64> {
    let limits = folders(controller).into_iter().filter_map(|folder| {
        let file = |name: &str| read(folder.join(name).to_str()?);
        limit(&file)
    });
    limits.min()
}

fn folders(controller: &str) -> Vec<PathBuf> {
    let (groups, mounts) = (read("/proc/self/cgroup"), read("/proc/self/mountinfo"));
    folders_in(&groups.unwrap_or_default(), &mounts.unwrap_or_default(), controller)
}

/// Returns the folders of a process in the hierarchies that may have this controller, its own
/// first. Parses the texts of `/proc/self/cgroup` (`5:cpu,cpuacct:/path`, in version 2 `0::/path`)
/// and `/proc/self/mountinfo`.
fn folders_in(groups: &str, mounts: &str, controller: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for mount in mounts.lines() {
        // id parent device root mount-point options [tags] - type source options; see proc_pid_mountinfo(5).
        let Some((place, kind)) = mount.split_once(" - ") else { continue };
        let (place, kind): (Vec<_>, Vec<_>) = (place.split(' ').collect(), kind.split(' ').collect());
        let (&[_, _, _, root, point, ..], &[kind, _, options, ..]) = (&place[..], &kind[..]) else { continue };
        let is_version_2 = match kind {
            "cgroup2" => true,
            "cgroup" if options.split(',').any(|option| option == controller) => false,
            _ => continue,
        };
        let path = groups.lines().find_map(|group| {
            let mut parts = group.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let ours = if is_version_2 {
                controllers.is_empty()
            } else {
                controllers.split(',').any(|name| name == controller)
            };
            ours.then_some(path)
        });
        let relative = path.and_then(|path| Path::new(path).strip_prefix(root).ok()).unwrap_or(Path::new(""));
        let visible = relative.components().all(|part| matches!(part, Component::Normal(_)));
        let relative = if visible { relative } else { Path::new("") };
        // The ancestors of a relative path end with the empty path, which means the mount point
        // itself.
        folders
            .extend(relative.ancestors().map(|part| Path::new(point).components().chain(part.components()).collect()));
    }
    folders
}

/// Parses a quota: `150000 100000` is 1.5 cores; `max` and -1 mean no limit.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0 && quota.is_finite() && period.is_finite()).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "\
        31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
        32 23 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
        33 23 0:29 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw,nsdelegate\n\
        34 23 8:1 / / rw - ext4 /dev/sda rw\n";

    fn found(groups: &str, mounts: &str, controller: &str) -> Vec<String> {
        folders_in(groups, mounts, controller).iter().map(|folder| folder.display().to_string()).collect()
    }

    #[test]
    fn quotas() {
        assert_eq!(quota("150000 100000"), Some(1.5));
        for none in ["max 100000", "-1 100000", "0 100000", "1 0", "", "5", "nan 1", "inf 1", "x y"] {
            assert_eq!(quota(none), None, "{none}");
        }
    }

    #[test]
    fn version_2_reads_from_the_own_folder_to_the_root() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(
            found("0::/user.slice/a.scope", mounts, "cpu"),
            ["/sys/fs/cgroup/user.slice/a.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]
        );
        assert_eq!(found("0::/", mounts, "cpu"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn version_1_has_a_hierarchy_per_controller_next_to_version_2() {
        let groups = "2:cpu,cpuacct:/jobs/7\n3:memory:/m\n0::/";
        assert_eq!(
            found(groups, BOTH, "cpu"),
            [
                "/sys/fs/cgroup/cpu,cpuacct/jobs/7",
                "/sys/fs/cgroup/cpu,cpuacct/jobs",
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/unified"
            ]
        );
        assert_eq!(found(groups, BOTH, "pids"), ["/sys/fs/cgroup/unified"]);
    }

    #[test]
    fn in_a_container_the_mount_point_is_the_own_folder() {
        // Docker with version 1: the host's path, of which only the end is mounted, or none of it.
        let mounts = "31 23 0:27 /docker/ab /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu";
        assert_eq!(found("2:cpu:/docker/ab/x", mounts, "cpu"), ["/sys/fs/cgroup/cpu/x", "/sys/fs/cgroup/cpu"]);
        assert_eq!(found("2:cpu:/elsewhere", mounts, "cpu"), ["/sys/fs/cgroup/cpu"]);
        // A process that was moved out of its namespace.
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        assert_eq!(found("0::/../other", mounts, "cpu"), ["/sys/fs/cgroup"]);
    }

    #[test]
    fn malformed_texts_mean_no_limit() {
        for text in ["", "-", " - ", "\n\n", "0::", "::::", "1 2 3 4 5 6", "1 2 3 / /x - cgroup2"] {
            assert_eq!(found(text, text, "cpu"), Vec::<String>::new(), "{text:?}");
        }
        assert_eq!(found("", BOTH, "memory"), ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"]);
    }
}
