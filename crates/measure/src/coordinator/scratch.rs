//! Temporary directories: one for the run, and one in it for each instance.
//!
//! The run locks a file in its directory. A run that was killed leaves a directory whose lock is
//! free. The next run removes that directory.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};

use crate::shared_memory;

const PREFIX: &str = "estafette-";
const LOCK: &str = "lock";
/// The maximum length of a socket's name in an instance's directory.
const SOCKET_NAME: usize = 30;
/// The size of `sun_path`, the path of a UNIX socket, in bytes.
const SUN_PATH: usize = 108;

/// A directory that is removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// The locked file. The lock lasts until the directory is removed.
    lock: Option<File>,
    instances: u64,
}

impl Scratch {
    /// Makes the run's directory under `TMPDIR` or `/tmp`, accessible to this user only. First
    /// removes the directories of runs that were killed.
    ///
    /// # Errors
    /// When the directory cannot be made, with what to do.
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

    /// Makes a subdirectory for one instance.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn instance(&mut self) -> Result<Scratch> {
        self.instances += 1;
        let path = self.path.join(format!("i{}", self.instances));
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Scratch { path, lock: None, instances: 0 })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Closing the lock first frees a descriptor, which removing the directory needs. The run
        // may have failed because none was left.
        drop(self.lock.take());
        // An error is ignored: the next run tries again.
        shared_memory::remove(&self.path);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the directories of runs that were killed.
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

/// Whether this is the directory of a run that has ended. Another user's directory cannot be opened
/// and stays. The directory of a run that is just starting, which has not locked its file yet,
/// stays too.
fn abandoned(path: &Path) -> io::Result<bool> {
    let run = path.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
    let alive = run.is_none_or(|pid: u32| Path::new("/proc").join(pid.to_string()).exists());
    if alive || !fs::symlink_metadata(path)?.is_dir() {
        return Ok(false);
    }
    let lock = match File::open(path.join(LOCK)) {
        // A run that was killed before it made the lock file has left an empty directory.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(fs::read_dir(path)?.next().is_none()),
        lock => lock?,
    };
    Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_removed_when_dropped() {
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
    fn the_directory_of_a_killed_run_is_removed_and_that_of_a_live_run_stays() {
        let parent = Scratch::new().unwrap();
        // No process has an id this high.
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
        let lock = File::create(live.join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && !unborn.exists());
        assert!(live.exists() && other.exists() && others.exists());
    }
}
