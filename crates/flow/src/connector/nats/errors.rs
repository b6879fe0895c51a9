//! Errors of the client, in one line of text.

/// An error and its causes, in one line.
pub(super) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    plain(&text)
}

pub(super) fn plain(text: &str) -> String {
    text.trim_start_matches("nats: ").replace(['\n', '\r'], " ")
}
