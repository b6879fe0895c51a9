//! The memory of this process.

use std::fs;
use std::io;

/// Resident bytes of this process, in whole pages. Kernel memory of its sockets is not included.
pub fn resident() -> io::Result<usize> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size())
}
