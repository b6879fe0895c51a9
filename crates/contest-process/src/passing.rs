//! Names of the whole machine, of shared memory and of queues, that last for a moment: they are taken away as soon as what
//! they name is open. Who is killed in between leaves one behind, which the next takes away.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const PREFIX: &str = "estafette-";

/// A name that no other has, from an instance's directory, which is `estafette-PROCESS-RANDOM/iNUMBER`.
pub(super) fn unique(dir: &Path, name: &str) -> Result<String> {
    let (run, instance) = (dir.parent().and_then(Path::file_name), dir.file_name());
    let (run, instance) = run.zip(instance).with_context(|| format!("{} is no instance's directory", dir.display()))?;
    Ok(format!("/{}-{}-{name}", run.to_string_lossy(), instance.to_string_lossy()))
}

/// The same for what the coordinator tries before a run.
pub(super) fn of_this_process(name: &str) -> String {
    format!("/{PREFIX}{}-{name}", std::process::id())
}

/// Takes away the names of runs that have ended, where names are files of a directory.
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
    fn names_of_dead_runs_are_swept_and_those_of_living_ones_are_not() {
        // No process has a number this high.
        for (run, stays) in [(4_194_305, false), (std::process::id(), true)] {
            let path = format!("/dev/shm/{PREFIX}{run}-test-i1-forward");
            fs::write(&path, "").unwrap();
            sweep("/dev/shm");
            assert_eq!(Path::new(&path).exists(), stays);
            let _ = fs::remove_file(&path);
        }
    }

    #[test]
    fn a_name_says_whose_it_is() {
        let dir = Path::new("/tmp/estafette-7-x/i3");
        assert_eq!(unique(dir, "forward").unwrap(), "/estafette-7-x-i3-forward");
        assert!(unique(Path::new("/"), "forward").is_err());
    }
}
