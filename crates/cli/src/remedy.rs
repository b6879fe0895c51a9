//! The remedy for an error that any system call can return.

/// Adds a remedy to the text of an error that any system call can return.
pub(crate) fn with_remedy(error: &str) -> String {
    // `EMFILE`: from this process or from a child.
    match error.contains("(os error 24)") {
        true => format!("{error}; allow more with `ulimit -n 1024`"),
        false => error.to_owned(),
    }
}
