//! Which step of an exchange of questions and answers the parties of a process are at.
//!
//! Where a lossless mechanism drops a message of a ping-pong, both sides wait for ever, and neither can say so. To tell that from a
//! mechanism that hangs, each side counts its steps in a static of its process. The coordinator reads it from outside
//! (`/proc/PID/mem`, as a debugger does), and only after the time at which the instance should have ended. So the loops pay
//! two stores for a round trip, and need neither a system call nor a second thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The steps of one side. Odd: a question is on its way, or being answered. Even: none is.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Steps(AtomicU64);

impl Steps {
    /// After so many questions, with or without another one under way.
    #[inline(always)]
    pub(crate) fn set(&self, questions: u64, under_way: bool) {
        // Relaxed: it says nothing about other memory, and a stale value changes until the next look.
        self.0.store(questions << 1 | u64::from(under_way), Ordering::Relaxed);
    }
}

/// Both sides, as far as they are in this process.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Exchange {
    /// A question is under way from when it has been sent until its answer has been received.
    pub(crate) asking: Steps,
    /// A question is under way from when it has been received until its answer has been sent.
    pub(crate) answering: Steps,
}

/// Those of this process.
pub(crate) static EXCHANGE: Exchange =
    Exchange { asking: Steps(AtomicU64::new(0)), answering: Steps(AtomicU64::new(0)) };

impl Exchange {
    /// Where it lies in this process.
    pub(crate) fn address(&'static self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

/// What the parties of a process were doing at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    asking: u64,
    answering: u64,
}

impl Snapshot {
    #[cfg(test)]
    pub(crate) fn new((asking, answering): (u64, u64)) -> Snapshot {
        Snapshot { asking, answering }
    }

    /// Reads what lies at `address` of a process.
    ///
    /// # Errors
    /// When it has ended, or the machine forbids it (`kernel.yama.ptrace_scope`).
    pub(crate) fn of(process: u32, address: u64) -> io::Result<Snapshot> {
        let mut bytes = [0; size_of::<Exchange>()];
        File::open(format!("/proc/{process}/mem"))?.read_exact_at(&mut bytes, address)?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Ok(Snapshot {
            asking: word(std::mem::offset_of!(Exchange, asking)),
            answering: word(std::mem::offset_of!(Exchange, answering)),
        })
    }

    /// Whether the side that asks waits for an answer.
    pub(crate) fn waits_for_answer(&self) -> bool {
        self.asking & 1 == 1
    }

    /// Whether the side that answers waits for a question.
    pub(crate) fn waits_for_question(&self) -> bool {
        self.answering & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_a_process_are_read_from_outside() {
        static OURS: Exchange = Exchange { asking: Steps(AtomicU64::new(0)), answering: Steps(AtomicU64::new(0)) };
        let look = || Snapshot::of(std::process::id(), OURS.address()).unwrap();
        let idle = look();
        assert!(!idle.waits_for_answer() && idle.waits_for_question());
        OURS.asking.set(5, true);
        OURS.answering.set(5, true);
        let both = look();
        assert!(both.waits_for_answer() && !both.waits_for_question());
        OURS.answering.set(6, false);
        assert!(look().waits_for_question());
        assert_ne!(look(), both);
        assert!(Snapshot::of(std::process::id(), 1).is_err());
    }
}
