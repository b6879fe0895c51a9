//! The step of a round trip at which the parties of a process are.
//!
//! If a lossless mechanism drops a message of a ping-pong, both sides wait forever, each within a
//! call of the mechanism. To distinguish that from a mechanism that hangs, each side stores its
//! step in a static of its process. The coordinator reads it from outside (`/proc/PID/mem`, as a
//! debugger does), and only after the time at which the instance should have ended. The loops pay
//! two stores per round trip, and need neither a system call nor a second thread.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The step of one side. Odd: a request is in flight, or its reply is being made. Even: neither.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Step(AtomicU64);

impl Step {
    /// Stores the number of requests so far, and whether one is in flight.
    #[inline(always)]
    pub(crate) fn set(&self, requests: u64, is_in_flight: bool) {
        // Relaxed: it orders no other memory, and a stale value has changed by the next look.
        self.0.store(requests << 1 | u64::from(is_in_flight), Ordering::Relaxed);
    }
}

/// The steps of both sides, as far as they run in this process.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Exchange {
    /// A request is in flight from when it has been sent until its reply has been received.
    pub(crate) requester: Step,
    /// A request is in flight from when it has been received until its reply has been sent.
    pub(crate) replier: Step,
}

/// The steps of this process.
pub(crate) static EXCHANGE: Exchange =
    Exchange { requester: Step(AtomicU64::new(0)), replier: Step(AtomicU64::new(0)) };

impl Exchange {
    /// Its address in this process.
    pub(crate) fn address(&'static self) -> u64 {
        std::ptr::from_ref(self).addr() as u64
    }
}

/// The steps of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    requester: u64,
    replier: u64,
}

impl Snapshot {
    #[cfg(test)]
    pub(crate) fn new((requester, replier): (u64, u64)) -> Snapshot {
        Snapshot { requester, replier }
    }

    /// Reads the steps at `address` of a process.
    ///
    /// # Errors
    /// When the process has ended, or the machine forbids it (`kernel.yama.ptrace_scope`).
    pub(crate) fn of(process: u32, address: u64) -> io::Result<Snapshot> {
        let mut bytes = [0; size_of::<Exchange>()];
        File::open(format!("/proc/{process}/mem"))?.read_exact_at(&mut bytes, address)?;
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Ok(Snapshot {
            requester: word(std::mem::offset_of!(Exchange, requester)),
            replier: word(std::mem::offset_of!(Exchange, replier)),
        })
    }

    /// Whether the requesting side waits for a reply.
    pub(crate) fn waits_for_reply(&self) -> bool {
        self.requester & 1 == 1
    }

    /// Whether the replying side waits for a request.
    pub(crate) fn waits_for_request(&self) -> bool {
        self.replier & 1 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_of_a_process_are_read_from_outside() {
        static OURS: Exchange = Exchange { requester: Step(AtomicU64::new(0)), replier: Step(AtomicU64::new(0)) };
        let look = || Snapshot::of(std::process::id(), OURS.address()).unwrap();
        let idle = look();
        assert!(!idle.waits_for_reply() && idle.waits_for_request());
        OURS.requester.set(5, true);
        OURS.replier.set(5, true);
        let both = look();
        assert!(both.waits_for_reply() && !both.waits_for_request());
        OURS.replier.set(6, false);
        assert!(look().waits_for_request());
        assert_ne!(look(), both);
        assert!(Snapshot::of(std::process::id(), 1).is_err());
    }
}
