//! Words that one process posts into the other's io_uring. MSG_RING adds an entry with 64 bits plus
//! 32 bits from the sender to the receiver's completion queue. The receiver waits for entries, or
//! polls the queue in memory that it shares with the kernel.
//!
//! The kernel would store entries that do not fit into the queue in memory of its own, without
//! limit. So the sender needs credit for each message. The receiver posts credit back, a quarter of
//! the capacity at a time.
//!
//! Since Linux 6.8 the kernel refuses to pass a ring's descriptor through a socket. Each side
//! copies the other's descriptor with `pidfd_getfd`.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use ::io_uring::{IoUring, cqueue, opcode, squeue, types};
use anyhow::{Context, Result};
use estafette_measure::case::{Case, PayloadKind, Role};
use estafette_measure::spec::{Tier, Wait};
use estafette_measure::{Ends, Generator, Mechanism, PartyEnds, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use rustix::process::{PTracer, Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open, set_ptracer};

use super::io_uring::{VERSION, usable};
use super::process_vm_readv;

/// The highest capacity in messages: the largest completion queue, minus entries that are not
/// messages.
const MAX_CAPACITY: usize = 32_768;
/// The values of the 32 bits: the 64 bits are a message, or an amount of credit.
const MESSAGE: i32 = 1;
const CREDIT: i32 = 2;

pub(super) struct MsgRing;

impl Mechanism for MsgRing {
    fn spec(&self) -> Spec {
        Spec::new("process/io-uring-msg-ring")
            .kernel_copies(0)
            .version(VERSION)
            .implementation("IORING_OP_MSG_RING into the receiver's io_uring; polled, or waited for")
            .payloads(&[PayloadKind::U64])
            .waits(&[Wait::Spin, Wait::Block])
            .tier(Tier::Standard)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(capacity(case) as u64)
    }

    fn check_available(&self) -> Result<(), String> {
        let ring = usable(&[(opcode::MsgRingData::CODE, "MSG_RING")])?;
        process_vm_readv::yama()?;
        let own = |ring: &IoUring| -> rustix::io::Result<OwnedFd> {
            copy_fd(&pidfd_open(getpid(), PidfdFlags::empty())?, ring.as_raw_fd())
        };
        own(&ring).map(drop).map_err(|error| {
            format!(
                "this process may not copy a ring's descriptor from another process ({error}): allow pidfd_getfd, of Linux 5.6"
            )
        })
    }
}

fn capacity(case: &Case) -> usize {
    case.capacity.clamp(1, MAX_CAPACITY)
}

fn copy_fd(process: &OwnedFd, descriptor: RawFd) -> rustix::io::Result<OwnedFd> {
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())
}

impl Transport<Raw> for MsgRing {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        // Permits other processes to copy this one's ring if Yama is active. Without Yama this is
        // not needed.
        let _ = set_ptracer(PTracer::Any);
        let (sends, receives) = match role {
            Role::Consumer(_) => ("reply", "forward"),
            _ => ("forward", "reply"),
        };
        let (capacity, polls) = (capacity(case), case.wait == Wait::Spin);
        let has_reply = case.pattern.is_bidirectional();
        // Each side waits for the other's ring, and both have published theirs by then.
        let tx = (has_reply || sends == "forward").then(|| Ring::publish(rendezvous, &format!("{sends}:tx"), capacity));
        let rx = (has_reply || receives == "forward")
            .then(|| Ring::publish(rendezvous, &format!("{receives}:rx"), capacity));
        let tx = match tx {
            Some(ring) => Some(SendEnd {
                ring: ring?.connect(rendezvous, &format!("{sends}:rx"), polls)?,
                credit: capacity as u64,
            }),
            None => None,
        };
        let rx = match rx {
            Some(ring) => Some(RecvEnd {
                ring: ring?.connect(rendezvous, &format!("{receives}:tx"), polls)?,
                unreturned: 0,
                batch_len: (capacity as u64 / 4).max(1),
            }),
            None => None,
        };
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// A ring whose peer is not known yet.
struct Ring(IoUring);

impl Ring {
    /// Creates a ring and publishes it to the other side.
    fn publish(rendezvous: &mut Rendezvous, name: &str, capacity: usize) -> Result<Ring> {
        // Reserves entries for a credit and an error.
        let entries = (capacity + 8).next_power_of_two() as u32;
        let ring = IoUring::builder().setup_cqsize(entries).build(2).context("setting up io_uring")?;
        rendezvous.publish(name, &format!("{} {}", std::process::id(), ring.as_raw_fd()))?;
        Ok(Ring(ring))
    }

    /// Copies the descriptor of the peer's ring.
    fn connect(self, rendezvous: &mut Rendezvous, name: &str, polls: bool) -> Result<Peered> {
        let place = rendezvous.request(name)?;
        let parse = || -> Option<(Pid, RawFd)> {
            let (process, descriptor) = place.split_once(' ')?;
            Some((Pid::from_raw(process.parse().ok()?)?, descriptor.parse().ok()?))
        };
        let (process, descriptor) = parse().with_context(|| format!("`{place}` is not a process and a descriptor"))?;
        let process = pidfd_open(process, PidfdFlags::empty()).context("the process of the other side")?;
        let peer = copy_fd(&process, descriptor).context("fetching the ring of the other side")?;
        Ok(Peered { ring: self.0, peer, polls })
    }
}

/// A ring and its peer.
struct Peered {
    ring: IoUring,
    peer: OwnedFd,
    polls: bool,
}

impl Peered {
    /// Posts an entry to the peer.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn post(&mut self, kind: i32, word: u64) -> io::Result<()> {
        let entry = opcode::MsgRingData::new(types::Fd(self.peer.as_raw_fd()), kind, word, None).build();
        // Only a failure produces a completion entry here.
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: the operation contains only numbers, no pointers.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                submitted => return submitted.map(drop),
            }
        }
    }

    /// Returns the next entry, or `None`. Does not wait.
    #[inline(always)]
    fn try_recv_entry(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Waits for the next entry.
    #[inline(always)]
    fn wait(&mut self) -> io::Result<cqueue::Entry> {
        loop {
            if let Some(entry) = self.try_recv_entry() {
                return Ok(entry);
            }
            if self.polls {
                std::hint::spin_loop();
                continue;
            }
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
    }
}

/// Returns the word of an entry, which must be of the given kind.
#[inline(always)]
fn word(entry: &cqueue::Entry, kind: i32) -> io::Result<u64> {
    match entry.result() {
        result if result == kind => Ok(entry.user_data()),
        // A failed operation of this process. Successful ones leave no entry.
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        other => Err(io::Error::new(ErrorKind::InvalidData, format!("an entry of kind {other}, not {kind}"))),
    }
}

/// The sending end.
pub(super) struct SendEnd {
    ring: Peered,
    /// How many messages may be sent before the receiver posts more credit.
    credit: u64,
}

impl SendEnd {
    #[inline(always)]
    fn send(&mut self, message: u64) -> io::Result<()> {
        while let Some(entry) = self.ring.try_recv_entry() {
            self.credit += word(&entry, CREDIT)?;
        }
        if self.credit == 0 {
            self.credit = word(&self.ring.wait()?, CREDIT)?;
        }
        self.credit -= 1;
        self.ring.post(MESSAGE, message)
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.send(source.word())
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    ring: Peered,
    /// Received messages whose credit was not returned yet.
    unreturned: u64,
    /// How much credit is returned at a time.
    batch_len: u64,
}

impl RecvEnd {
    #[inline(always)]
    fn recv_word(&mut self) -> io::Result<u64> {
        let message = word(&self.ring.wait()?, MESSAGE)?;
        self.unreturned += 1;
        if self.unreturned == self.batch_len {
            self.ring.post(CREDIT, self.unreturned)?;
            self.unreturned = 0;
        }
        Ok(message)
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_word().map(|message| verifier.word(message))
    }
}
