//! What a loop does next.
//!
//! A timed loop is split in two. Its state decides what to do next and when to stop. It knows no
//! ends, so it is compiled once, and it can be tested without a mechanism. The other half calls the
//! ends ([`super::blocking`], [`super::asynchronous`]). It is a few lines long, because it is
//! compiled for every mechanism.

use std::io;
use std::time::Duration;

use anyhow::Result;

use crate::protocol::PartyReport;
use crate::usage::Usage;

/// What a loop does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Calls the ends.
    Act(Action),
    /// Waits without the ends.
    Wait(Waiting),
    /// The loop is over.
    Done,
}

/// A call of the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The loop's own batch, of this many messages or round trips.
    Batch(u64),
    /// Sends one message.
    Send,
    /// Receives one message.
    Receive,
    /// Flushes what is buffered.
    Flush,
}

/// Waiting without a call of the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// For about this time. A task only lets the others run once.
    About(Duration),
    /// Until this time, by looking at the clock.
    Until(u64),
}

/// The error that stopped an action, and the end where it happened.
#[derive(Debug)]
pub(super) enum EndError {
    /// The sending end.
    Sending(io::Error),
    /// The receiving end.
    Receiving(io::Error),
}

impl EndError {
    /// The error.
    pub(super) fn error(&self) -> &io::Error {
        let (EndError::Sending(error) | EndError::Receiving(error)) = self;
        error
    }

    /// Whether the stream has ended: every sender has closed, and nothing is left to receive.
    pub(super) fn is_end_of_stream(&self) -> bool {
        matches!(self, EndError::Receiving(error) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

/// The result of an action.
pub(super) type ActionResult = Result<(), EndError>;

/// What a party reports, and the usage of its process if it is the one whose window counts.
pub(super) type PartyResult = (PartyReport, Option<Usage>);

/// The state of a loop.
pub(super) trait Control {
    /// What to do next.
    ///
    /// # Errors
    /// When the loop cannot continue.
    fn next(&mut self) -> Result<Step>;

    /// Takes the result of an action.
    ///
    /// # Errors
    /// When the loop cannot continue.
    fn handle(&mut self, action: Action, result: ActionResult) -> Result<()>;

    /// Takes the time at which a wait ended. `None` if what it waited for had come before it began.
    fn waited(&mut self, now_ns: Option<u64>) {
        let _ = now_ns;
    }

    /// Whether the ends must stay open after the loop.
    ///
    /// A party that stops at a damaged message leaves them open. Dropping them would close the
    /// channel, and the other parties would report a closed peer instead of the damage. The
    /// coordinator kills this child after its report.
    fn keeps_open(&self) -> bool {
        false
    }

    /// The report, after the loop.
    ///
    /// # Errors
    /// When the times cannot be reported.
    fn finish(self) -> Result<PartyResult>;
}
