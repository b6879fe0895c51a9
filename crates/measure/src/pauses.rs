//! Pauses of an instance that is measured in slices. Between its turns all processes of the
//! instance are stopped (`SIGSTOP`).
//!
//! The clock of the instance stands still during a pause: the driver uses `CLOCK_MONOTONIC` minus
//! the sum of all pauses so far. The coordinator writes this sum to a file that it shares with the
//! children, while they are stopped. A child reads the file only if two readings of the clock are
//! further apart than the shortest possible pause. So a loop that is not interrupted pays nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, pwrite};

/// Every pause is longer than this, because other instances have at least one slice in it.
pub(crate) const SHORTEST_NS: u64 = 500_000;

/// The current turn of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The number of the lap, from 1. 0 before the first turn.
    pub(crate) lap: u64,
    /// The sum of all pauses before this turn, in nanoseconds.
    pub(crate) paused_ns: u64,
}

/// The coordinator's side: announces each turn to the children.
#[derive(Debug)]
pub(crate) struct TurnWriter(OwnedFd);

impl TurnWriter {
    /// Creates the shared file.
    ///
    /// # Errors
    /// When there is no descriptor or no memory left.
    pub(crate) fn new() -> io::Result<TurnWriter> {
        let writer = TurnWriter(memfd_create("estafette-turns", MemfdFlags::CLOEXEC)?);
        writer.write(Turn::default())?;
        Ok(writer)
    }

    /// The file that the children read.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.0
    }

    /// Writes the next turn. The children must be stopped.
    ///
    /// # Errors
    /// When there is no memory left.
    pub(crate) fn write(&self, turn: Turn) -> io::Result<()> {
        let mut text = [0; 16];
        text[..8].copy_from_slice(&turn.lap.to_ne_bytes());
        text[8..].copy_from_slice(&turn.paused_ns.to_ne_bytes());
        match pwrite(&self.0, &text, 0)? {
            16 => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// A party's view of its turns. Without a file there are no pauses.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    file: Option<Arc<OwnedFd>>,
    turn: Turn,
}

impl Pauses {
    /// The pauses of an instance that is measured in slices.
    pub(crate) fn new(file: OwnedFd) -> Pauses {
        Pauses { file: Some(Arc::new(file)), turn: Turn::default() }
    }

    /// Whether the instance is measured in slices.
    pub(crate) fn are_expected(&self) -> bool {
        self.file.is_some()
    }

    /// Reads the current turn from the file, if `passed_ns`, the time between two readings of the
    /// clock, is long enough for a pause. Returns whether the turn has changed.
    #[inline]
    pub(crate) fn has_turned(&mut self, passed_ns: u64) -> bool {
        passed_ns > SHORTEST_NS && self.read_turn()
    }

    #[cold]
    fn read_turn(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        let mut text = [0; 16];
        let read = loop {
            match pread(file, &mut text, 0) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        // The file always has 16 bytes, and it exists as long as the children do.
        debug_assert_eq!(read, Ok(16));
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| text[at + byte]));
        let turn = Turn { lap: word(0), paused_ns: word(8) };
        let has_turned = turn.lap != self.turn.lap;
        self.turn = turn;
        has_turned
    }

    /// The turn at the last reading.
    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_turn_is_reported_once_after_a_pause() {
        let writer = TurnWriter::new().unwrap();
        let mut pauses = Pauses::new(writer.file().try_clone().unwrap());
        assert!(!pauses.has_turned(u64::MAX), "there was no turn yet");
        let turn = Turn { lap: 3, paused_ns: 7_000_000 };
        writer.write(turn).unwrap();
        assert!(!pauses.has_turned(SHORTEST_NS), "no pause is this short");
        assert_eq!(pauses.turn(), Turn::default());
        assert!(pauses.has_turned(SHORTEST_NS + 1));
        assert_eq!(pauses.turn(), turn);
        assert!(!pauses.has_turned(u64::MAX));
    }

    #[test]
    fn without_a_file_there_are_no_pauses() {
        let mut pauses = Pauses::default();
        assert!(!pauses.has_turned(u64::MAX) && !pauses.are_expected());
    }
}
