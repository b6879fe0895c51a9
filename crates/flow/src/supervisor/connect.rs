//! The time before a pipeline runs, while it connects to the server of topics that cross hosts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use super::{Ended, Message, Supervisor};
use crate::connector::Connections;

/// The longest wait for a message.
const LOOK: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Connects to the server, and answers messages in the meantime. None if the pipeline was ended
    /// before.
    ///
    /// # Errors
    ///
    /// If the server refuses something, or the supervisor itself fails.
    pub(super) fn connect(&mut self) -> Result<Option<Connections>> {
        let ends = self.connectors.remote_ends(&self.pipeline);
        if ends.is_empty() {
            return ends.connect().map(Some);
        }
        let mailbox = self.poll.mailbox();
        // If the pipeline is ended before, this thread ends later by its timeouts.
        let connect = move || {
            let connected = catch_unwind(AssertUnwindSafe(|| ends.connect()));
            let connected = connected.unwrap_or_else(|_| Err(anyhow!("connecting panicked; the log says where")));
            mailbox.send(Message::Connected(connected.map(Box::new)));
        };
        thread::Builder::new().name("connect".into()).spawn(connect).context("cannot start a thread")?;
        loop {
            self.poll.wait(LOOK).context("cannot wait for events")?;
            let mut connected = None;
            for message in self.poll.messages() {
                match message {
                    Message::Connected(result) => connected = Some(result),
                    Message::End => {
                        self.summary.ended = Ended::Drained;
                        return Ok(None);
                    }
                    other => self.on_message(other),
                }
            }
            if let Some(connected) = connected {
                return connected.map(|connections| Some(*connections));
            }
        }
    }
}
