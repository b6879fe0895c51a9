//! Access to the files that a check reads.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use super::yaml::MAX_BYTES;

/// The files that a check may read.
pub(super) trait Files {
    /// Reads a file, up to one byte more than a pipeline's file may have.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Whether the path is a regular file, not a folder, device or pipe.
    fn is_file(&self, path: &Path) -> bool;
}

/// The files of this machine.
pub(super) struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn is_file(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
    }
}
