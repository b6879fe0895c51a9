//! What memory the process has.

use std::fs;
use std::io;

/// How many bytes of this process are in memory: what it touched, in whole pages, not what the system keeps for its sockets.
pub fn resident() -> io::Result<usize> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let pages = pages.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    Ok(pages.ok_or(io::ErrorKind::InvalidData)? * rustix::param::page_size())
}
