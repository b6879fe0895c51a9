//! Pauses: the instances of a cell take turns. Between its turns all processes of an instance are stopped (`SIGSTOP`).
//!
//! Its clock stands still meanwhile: every time that the driver uses is `CLOCK_MONOTONIC` less all pauses so far. The
//! coordinator writes their sum to a file that it shares with the children, while they are stopped. A child reads it after
//! any two looks at the clock that are further apart than the shortest pause is long, so an undisturbed loop pays nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, pread, pwrite};

/// A pause lasts longer than this: other instances have at least one slice in it.
pub(crate) const SHORTEST_NS: u64 = 500_000;

/// The turn of an instance that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Its number, from 1. 0 before the first.
    pub(crate) lap: u64,
    /// All pauses until then, in nanoseconds.
    pub(crate) paused_ns: u64,
}

/// The coordinator's end: says which turn begins.
#[derive(Debug)]
pub(crate) struct TurnWriter(OwnedFd);

impl TurnWriter {
    /// A file of its own.
    ///
    /// # Errors
    /// When there is no descriptor or no memory left.
    pub(crate) fn new() -> io::Result<TurnWriter> {
        let writer = TurnWriter(memfd_create("estafette-turns", MemfdFlags::CLOEXEC)?);
        writer.write(Turn::default())?;
        Ok(writer)
    }

    /// What a child reads.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.0
    }

    /// Writes the turn that begins. The children are stopped.
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
    /// Of an instance that takes turns.
    pub(crate) fn new(file: OwnedFd) -> Pauses {
        Pauses { file: Some(Arc::new(file)), turn: Turn::default() }
    }

    /// Whether the instance takes turns.
    pub(crate) fn are_expected(&self) -> bool {
        self.file.is_some()
    }

    /// Reads which turn it is, if so much time has passed between two looks at the clock that a pause fits in. Whether it is
    /// another turn than at the look before.
    #[inline]
    pub(crate) fn look(&mut self, passed_ns: u64) -> bool {
        passed_ns > SHORTEST_NS && self.has_turned()
    }

    #[cold]
    fn has_turned(&mut self) -> bool {
        let Some(file) = &self.file else { return false };
        let mut text = [0; 16];
        let read = loop {
            match pread(file, &mut text, 0) {
                Err(Errno::INTR) => {}
                read => break read,
            }
        };
        // The coordinator's file is there and as long, for as long as there are children.
        debug_assert_eq!(read, Ok(16));
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| text[at + byte]));
        let turn = Turn { lap: word(0), paused_ns: word(8) };
        let has_turned = turn.lap != self.turn.lap;
        self.turn = turn;
        has_turned
    }

    /// The turn at the last look.
    pub(crate) fn turn(&self) -> Turn {
        self.turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_noticed_once_by_a_look_after_a_pause() {
        let writer = TurnWriter::new().unwrap();
        let mut pauses = Pauses::new(writer.file().try_clone().unwrap());
        assert!(!pauses.look(u64::MAX), "there was none yet");
        let turn = Turn { lap: 3, paused_ns: 7_000_000 };
        writer.write(turn).unwrap();
        assert!(!pauses.look(SHORTEST_NS), "no pause is as short");
        assert_eq!(pauses.turn(), Turn::default());
        assert!(pauses.look(SHORTEST_NS + 1));
        assert_eq!(pauses.turn(), turn);
        assert!(!pauses.look(u64::MAX));
    }

    #[test]
    fn without_a_file_there_are_no_pauses() {
        let mut pauses = Pauses::default();
        assert!(!pauses.look(u64::MAX) && !pauses.are_expected());
    }
}
