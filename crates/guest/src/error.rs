//! The errors of sends and replies.

use std::fmt;

/// Why the host did not send a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The function has no output topic with this index. See `output.topics` in the YAML file.
    NoSuchTopic,
    /// The message is longer than `max_message` of its topic.
    TooLong,
    /// The function has no input stream to reply on.
    NoStream,
    /// A result code that this version of the crate does not know.
    Other(i32),
}

impl SendError {
    /// Translates the result of `send` and `send_batch`.
    pub(crate) fn of_send(result: i32) -> Result<(), Self> {
        match result {
            0 => Ok(()),
            1 => Err(Self::NoSuchTopic),
            2 => Err(Self::TooLong),
            other => Err(Self::Other(other)),
        }
    }

    /// Translates the result of `reply`.
    pub(crate) fn of_reply(result: i32) -> Result<(), Self> {
        match result {
            1 => Err(Self::NoStream),
            other => Self::of_send(other),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchTopic => f.write_str("no output topic has this index: add it to `output.topics`"),
            Self::TooLong => f.write_str("the message is longer than `max_message` of its topic"),
            Self::NoStream => f.write_str("the function is not fed by a stream: only an `input` can reply"),
            Self::Other(result) => write!(f, "the host refused the message, result {result}"),
        }
    }
}

impl std::error::Error for SendError {}
