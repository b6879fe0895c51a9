//! Shared memory with names. A library that uses `shm_open` leaves them in a directory of the whole machine, and they outlive
//! its processes. So it is written down in the instance's directory what names it gives, before it does; whoever removes the
//! directory removes them first.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use glob::Pattern;
use rustix::fs::{FlockOperation, flock};

/// Where `shm_open` puts what it makes.
const DIRECTORY: &str = "/dev/shm";
/// The file that says what an instance makes there: a pattern a line.
const NAMES: &str = "shared-memory";

/// Writes down, in an instance's directory, a pattern of names.
pub(crate) fn note(instance: &Path, pattern: &str) -> io::Result<()> {
    let mut names = OpenOptions::new().append(true).create(true).open(instance.join(NAMES))?;
    // One write, as other children may write theirs.
    names.write_all(format!("{pattern}\n").as_bytes())
}

/// Removes the shared memory whose names are written down in an instance's directory, where there are any.
pub(crate) fn remove(instance: &Path) {
    remove_from(Path::new(DIRECTORY), instance);
}

fn remove_from(directory: &Path, instance: &Path) {
    let Ok(names) = fs::read_to_string(instance.join(NAMES)) else { return };
    let patterns: Vec<Pattern> = names.lines().filter_map(|name| Pattern::new(name).ok()).collect();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| patterns.iter().any(|pattern| pattern.matches(name)));
        // Held, and so locked, until it is removed: nobody begins to use it in between. What cannot be opened nobody has locked.
        let file = File::open(entry.path());
        if named && !file.as_ref().is_ok_and(in_use) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a process holds a lock on it: that is how a library whose names are alike in every program knows its own. Where none
/// does, this one has it now.
fn in_use(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::Scratch;

    #[test]
    fn what_is_written_down_is_removed_and_nothing_else() {
        let mut run = Scratch::new().unwrap();
        let (instance, directory) = (run.instance().unwrap(), run.instance().unwrap());
        for name in ["ours-1", "ours-2", "theirs", "7.lib", "8.lib"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let used = File::open(directory.path().join("8.lib")).unwrap();
        flock(&used, FlockOperation::NonBlockingLockShared).unwrap();
        remove_from(directory.path(), instance.path());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5, "nothing was written down");
        note(instance.path(), "ours-*").unwrap();
        note(instance.path(), "*.lib").unwrap();
        remove_from(directory.path(), instance.path());
        let mut left: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["8.lib", "theirs"]);
    }
}
