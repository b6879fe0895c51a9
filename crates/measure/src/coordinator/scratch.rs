//! The run's directory: one for the run, one in it for each instance. None outlives its run for long.
//!
//! The run holds a lock on a file in its directory. A run that was killed leaves a directory whose lock is free; the
//! next run removes it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::shared_memory;

const PREFIX: &str = "estafette-";
const LOCK: &str = "lock";
/// `sun_path` holds 108 bytes; a socket in an instance's directory may use this many of them.
const SOCKET_NAME: usize = 30;
const SUN_PATH: usize = 108;

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Held until the directory goes.
    lock: Option<File>,
    instances: u64,
}

impl Scratch {
    /// Makes the run's directory under `TMPDIR` or `/tmp`, for this user alone, after removing those of runs that were
    /// killed.
    ///
    /// # Errors
    /// Where the directory cannot be made, with what to do.
    pub fn new() -> Result<Scratch> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let path = parent.join(format!("{PREFIX}{}-{:08x}", std::process::id(), fastrand::u32(..)));
        let remedy = || {
            format!("cannot use the temporary directory {}: set TMPDIR to one that can be written", parent.display())
        };
        if path.as_os_str().len() + 10 + SOCKET_NAME >= SUN_PATH {
            anyhow::bail!(
                "the temporary directory {} is too long a path for UNIX sockets: set TMPDIR to a shorter one",
                parent.display()
            );
        }
        DirBuilder::new().mode(0o700).create(&path).with_context(remedy)?;
        let mut scratch = Scratch { path, lock: None, instances: 0 };
        let lock = File::create(scratch.path.join(LOCK)).with_context(remedy)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).with_context(remedy)?;
        scratch.lock = Some(lock);
        Ok(scratch)
    }

    /// Makes a directory in it for one instance.
    ///
    /// # Errors
    /// Where it cannot be made.
    pub fn instance(&mut self) -> Result<Scratch> {
        self.instances += 1;
        let path = self.path.join(format!("i{}", self.instances));
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Scratch { path, lock: None, instances: 0 })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Removing takes descriptors, and this run may have ended for want of them.
        drop(self.lock.take());
        // Nothing can be done about a failure here; the next run's sweep tries again.
        shared_memory::remove(&self.path);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of runs that have ended without doing so.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        if ours && abandoned(&entry.path()).unwrap_or(false) {
            let instances = fs::read_dir(entry.path()).into_iter().flatten().flatten();
            instances.for_each(|instance| shared_memory::remove(&instance.path()));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether it is a run's directory whose run has ended. Another user's cannot be opened, and stays; so does that of a
/// run that is just beginning, and has made its lock but does not hold it yet.
fn abandoned(path: &Path) -> io::Result<bool> {
    let run = path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
    let alive = run.is_none_or(|pid: u32| Path::new("/proc").join(pid.to_string()).exists());
    if alive || !fs::symlink_metadata(path)?.is_dir() {
        return Ok(false);
    }
    let lock = match File::open(path.join(LOCK)) {
        // One that was killed before it came to that has nothing in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(fs::read_dir(path)?.next().is_none()),
        lock => lock?,
    };
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_go_with_their_owner() {
        let mut run = Scratch::new().unwrap();
        let (run_path, instance) = (run.path().to_owned(), run.instance().unwrap());
        let instance_path = instance.path().to_owned();
        fs::write(instance_path.join("left"), "over").unwrap();
        drop(instance);
        assert!(!instance_path.exists() && run_path.exists());
        drop(run);
        assert!(!run_path.exists());
    }

    #[test]
    fn a_killed_runs_directory_is_swept_and_a_living_ones_is_not() {
        let parent = Scratch::new().unwrap();
        // No process has a number this high.
        let dead = parent.path().join("estafette-4194305-dead");
        let unborn = parent.path().join("estafette-4194305-unborn");
        let live = parent.path().join("estafette-4194305-live");
        let other = parent.path().join("estafette-notes");
        let others = parent.path().join("estafette-4194305");
        for dir in [&dead, &unborn, &live, &other, &others] {
            fs::create_dir(dir).unwrap();
        }
        fs::write(others.join("notes"), "").unwrap();
        File::create(dead.join(LOCK)).unwrap();
        let held = File::create(live.join(LOCK)).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && !unborn.exists());
        assert!(live.exists() && other.exists() && others.exists());
    }
}
