//! A lasting problem of a connector, such as a lost server: it is shown, and ends by itself.

// So far, only connectors of a NATS server have any.
#![cfg_attr(not(feature = "nats"), allow(dead_code))]

use std::sync::{Mutex, PoisonError};

/// What keeps a connector from its work at the moment, if anything does.
#[derive(Debug)]
pub(super) struct Problem {
    connector: String,
    text: Mutex<Option<String>>,
}

impl Problem {
    pub(super) fn new(connector: &str) -> Problem {
        Problem { connector: connector.to_owned(), text: Mutex::new(None) }
    }

    /// Sets the problem. Logs it if it is another one than before.
    pub(super) fn set(&self, text: String) {
        let mut current = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref() != Some(&text) {
            tracing::warn!(connector = self.connector, "{text}");
            *current = Some(text);
        }
    }

    /// Records that there is no problem any more.
    pub(super) fn clear(&self) {
        if self.text.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!(connector = self.connector, "it works again");
        }
    }

    pub(super) fn get(&self) -> Option<String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
