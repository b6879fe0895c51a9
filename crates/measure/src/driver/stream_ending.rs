//! The end of a stream: the end mark, and what follows it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::step::{Action, ActionResult, Step, Waiting};
use crate::message::Generator;

/// How many times the end mark of a lossy mechanism is sent, because one may be lost.
const LOSSY_END_MARKS: usize = 8;
/// The time between two of them.
const LOSSY_PAUSE: Duration = Duration::from_millis(1);

/// What a sender still has to do after its last message.
#[derive(Debug)]
pub(super) enum StreamEnding {
    /// To send the end mark.
    Mark,
    /// To flush.
    Flush,
    /// To send an end mark that may be lost, and to flush and wait after it; this many times.
    LossyMarks { left: usize, next: LossyStep, mark: Generator },
    /// Nothing.
    Over,
}

/// The steps of an end mark that may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossyStep {
    Send,
    Flush,
    Wait,
}

impl StreamEnding {
    /// Ends the stream of `source`.
    pub(super) fn with_mark(source: &mut Generator, lossy: bool) -> StreamEnding {
        source.end();
        match lossy {
            true => StreamEnding::LossyMarks { left: LOSSY_END_MARKS, next: LossyStep::Send, mark: source.clone() },
            false => StreamEnding::Mark,
        }
    }

    /// The next step. Every copy of a lossy end mark is the same message of `source`.
    pub(super) fn next(&mut self, source: &mut Generator) -> Step {
        match self {
            StreamEnding::Mark => Step::Act(Action::Send),
            StreamEnding::Flush => Step::Act(Action::Flush),
            StreamEnding::LossyMarks { left: 0, .. } | StreamEnding::Over => Step::Done,
            StreamEnding::LossyMarks { left, next, mark } => match next {
                LossyStep::Send => {
                    *source = mark.clone();
                    Step::Act(Action::Send)
                }
                LossyStep::Flush => Step::Act(Action::Flush),
                LossyStep::Wait => {
                    *left -= 1;
                    *next = LossyStep::Send;
                    Step::Wait(Waiting::About(LOSSY_PAUSE))
                }
            },
        }
    }

    /// Takes the result of the step.
    ///
    /// # Errors
    /// When the end mark cannot be sent. Errors of a lossy mechanism are ignored: the receiver may
    /// have got one mark and closed before the others arrive.
    pub(super) fn handle(&mut self, result: ActionResult) -> Result<()> {
        match self {
            StreamEnding::Mark => {
                without_side(result).context("sending the end mark")?;
                *self = StreamEnding::Flush;
            }
            StreamEnding::Flush => {
                without_side(result).context("flushing")?;
                *self = StreamEnding::Over;
            }
            StreamEnding::LossyMarks { next, .. } => {
                *next = if *next == LossyStep::Send { LossyStep::Flush } else { LossyStep::Wait };
            }
            StreamEnding::Over => {}
        }
        Ok(())
    }
}

/// The result of an action whose end is known.
pub(super) fn without_side(result: ActionResult) -> std::io::Result<()> {
    use super::step::EndError::{Receiving, Sending};
    result.map_err(|error| match error {
        Sending(error) | Receiving(error) => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::step::EndError;

    #[test]
    fn a_mark_is_sent_and_flushed() {
        let mut source = Generator::new(1, 0, 8);
        let mut ending = StreamEnding::with_mark(&mut source, false);
        for action in [Action::Send, Action::Flush] {
            assert_eq!(ending.next(&mut source), Step::Act(action));
            ending.handle(Ok(())).unwrap();
        }
        assert_eq!(ending.next(&mut source), Step::Done);
    }

    #[test]
    fn a_mark_that_cannot_be_sent_is_an_error_unless_it_may_be_lost() {
        let broken = || Err(EndError::Sending(std::io::ErrorKind::BrokenPipe.into()));
        let mut source = Generator::new(1, 0, 8);
        let error = StreamEnding::with_mark(&mut source, false).handle(broken()).unwrap_err();
        assert!(error.to_string().contains("end mark"), "{error}");
        let mut ending = StreamEnding::with_mark(&mut source, true);
        let mut sends = 0;
        loop {
            match ending.next(&mut source) {
                Step::Done => break,
                Step::Act(action) => {
                    sends += usize::from(action == Action::Send);
                    ending.handle(broken()).unwrap();
                }
                Step::Wait(waiting) => assert_eq!(waiting, Waiting::About(LOSSY_PAUSE)),
            }
        }
        assert_eq!(sends, LOSSY_END_MARKS);
    }
}
