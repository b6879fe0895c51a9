//! Short-lived machine-wide names of shared memory and message queues.
//!
//! A name is removed as soon as its object is open. A process that is killed in between leaves its
//! name behind; the next run removes it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const PREFIX: &str = "estafette-";

/// Returns a unique name made from an instance's directory, which is
/// `estafette-PROCESS-RANDOM/iNUMBER`.
pub(super) fn unique(dir: &Path, name: &str) -> Result<String> {
    let (run, instance) = (dir.parent().and_then(Path::file_name), dir.file_name());
    let (run, instance) =
        run.zip(instance).with_context(|| format!("{} is not an instance's directory", dir.display()))?;
    Ok(format!("/{}-{}-{name}", run.to_string_lossy(), instance.to_string_lossy()))
}

/// Returns a name for the probes of the coordinator before a run.
pub(super) fn of_this_process(name: &str) -> String {
    format!("/{PREFIX}{}-{name}", std::process::id())
}

/// Removes the names that ended runs have left in a directory.
pub(super) fn sweep(directory: &str) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let run = || name.to_str()?.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok();
        if run().is_some_and(|run| !Path::new("/proc").join(run.to_string()).exists()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_names_of_ended_runs_only() {
        // No process has an identifier this high.
        for (run, stays) in [(4_194_305, false), (std::process::id(), true)] {
            let path = format!("/dev/shm/{PREFIX}{run}-test-i1-forward");
            fs::write(&path, "").unwrap();
            sweep("/dev/shm");
            assert_eq!(Path::new(&path).exists(), stays);
            let _ = fs::remove_file(&path);
        }
    }

    #[test]
    fn a_unique_name_contains_process_and_instance() {
        let dir = Path::new("/tmp/estafette-7-x/i3");
        assert_eq!(unique(dir, "forward").unwrap(), "/estafette-7-x-i3-forward");
        assert!(unique(Path::new("/"), "forward").is_err());
    }
}
