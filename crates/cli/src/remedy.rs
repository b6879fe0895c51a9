//! What to do when a process has too many open files, which any system call can report.

/// Adds the remedy to the text of an error, if it is that one.
pub(crate) fn with_remedy(error: &str) -> String {
    // `EMFILE`: from this process or from a child.
    match error.contains("(os error 24)") {
        true => format!("{error}; allow more with `ulimit -n 1024`"),
        false => error.to_owned(),
    }
}
