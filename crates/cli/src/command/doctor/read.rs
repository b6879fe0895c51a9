//! Reads what the kernel says of the machine.

use std::fs;

/// Reads a file of `/proc` or `/sys` and trims it; `None` if it cannot be read.
pub(super) fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_has_no_text() {
        assert_eq!(read("/proc/there/is/no/such/file"), None);
    }
}
