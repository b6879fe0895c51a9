//! Removes named shared memory that an instance has left.
//!
//! A library that uses `shm_open` creates objects in a directory of the whole machine, and they
//! outlive its processes. So the patterns of their names are saved in the instance's directory
//! before the objects are created. Whoever removes that directory removes the objects first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use glob::Pattern;
use rustix::fs::{FlockOperation, flock};

/// The directory of `shm_open`.
const DIRECTORY: &str = "/dev/shm";
/// The file in the instance's directory with the patterns of names, one a line.
const NAMES: &str = "shared-memory";

/// Saves a pattern of names in an instance's directory.
pub(crate) fn note(instance: &Path, pattern: &str) -> io::Result<()> {
    let mut names = OpenOptions::new().append(true).create(true).open(instance.join(NAMES))?;
    // A single write, because other children may append to the file at the same time.
    names.write_all(format!("{pattern}\n").as_bytes())
}

/// Removes the shared memory that matches the patterns in an instance's directory.
pub(crate) fn remove(instance: &Path) {
    remove_from(Path::new(DIRECTORY), instance);
}

fn remove_from(directory: &Path, instance: &Path) {
    let Ok(names) = fs::read_to_string(instance.join(NAMES)) else { return };
    let patterns: Vec<Pattern> = names.lines().filter_map(|name| Pattern::new(name).ok()).collect();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| patterns.iter().any(|pattern| pattern.matches(name)));
        // `file` stays open, and so keeps the lock that `in_use` takes, until the object is
        // removed. Nobody can lock it in between. An object that cannot be opened is not locked by
        // anybody.
        let file = File::open(entry.path());
        if named && !file.as_ref().is_ok_and(in_use) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a process has locked the file. Libraries whose names are the same in every program mark
/// the objects in use that way. If no process has, this function takes the lock.
fn in_use(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Scratch;

    #[test]
    fn only_unlocked_objects_that_match_a_saved_pattern_are_removed() {
        let mut run = Scratch::new().unwrap();
        let (instance, directory) = (run.instance().unwrap(), run.instance().unwrap());
        for name in ["ours-1", "ours-2", "theirs", "7.lib", "8.lib"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let used = File::open(directory.path().join("8.lib")).unwrap();
        flock(&used, FlockOperation::NonBlockingLockShared).unwrap();
        remove_from(directory.path(), instance.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5, "no pattern was saved");
        note(instance.path(), "ours-*").unwrap();
        note(instance.path(), "*.lib").unwrap();
        remove_from(directory.path(), instance.path());
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["8.lib", "theirs"]);
    }
}
