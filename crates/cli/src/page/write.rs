//! Writes a report's files.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a file. Writes a temporary file beside it and renames it, so that a reader never finds a
/// part of it.
///
/// # Errors
/// When the folder does not exist or cannot be written.
pub(crate) fn write(path: &Path, content: &str) -> Result<()> {
    let remedy =
        || format!("cannot write {}: choose a file in a folder that exists and can be written", path.display());
    // A device or a pipe cannot be replaced by a file.
    if path.metadata().is_ok_and(|file| !file.is_file() && !file.is_dir()) {
        return fs::write(path, content).with_context(remedy);
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".part");
    let temporary = Path::new(&temporary);
    let written = fs::write(temporary, content).and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(temporary);
    }
    written.with_context(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_no_temporary_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write(&path, "first").unwrap();
        write(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file_and_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().join("missing/report.html"), folder.path().to_owned()] {
            let error = format!("{:#}", write(&path, "").unwrap_err());
            assert!(error.contains(&*path.to_string_lossy()) && error.contains("choose a file in a folder"), "{error}");
        }
    }
}
