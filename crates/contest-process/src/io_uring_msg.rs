//! Words that one process posts into the other's ring of io_uring: MSG_RING makes an entry of the receiver's completion
//! queue out of 64 bits of the sender's choice and 32 bits more. The receiver waits for entries, or polls the queue, which
//! lies in memory that it shares with the kernel.
//!
//! What does not fit the queue the kernel would keep in memory of its own, without end. So the sender sends no more than it
//! has credit for, and the receiver posts credit back, a quarter of the capacity at a time.
//!
//! A ring's descriptor cannot be passed through a socket: since Linux 6.8 the kernel refuses. Each side fetches the other's
//! out of its process.

use std::future::{Future, ready};
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

/// The most entries of a completion queue, less those that are not messages.
const MOST: usize = 32_768;
/// What the 32 bits say of the 64: a message, or so much credit.
const MESSAGE: i32 = 1;
const CREDIT: i32 = 2;

pub(super) struct MsgRing;

impl Mechanism for MsgRing {
    fn spec(&self) -> Spec {
        Spec::new("process/io-uring-msg-ring")
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
            fetch(&pidfd_open(getpid(), PidfdFlags::empty())?, ring.as_raw_fd())
        };
        own(&ring).map(drop).map_err(|error| {
            format!(
                "this process may not fetch a ring's descriptor from another ({error}): allow pidfd_getfd, of Linux 5.6"
            )
        })
    }
}

fn capacity(case: &Case) -> usize {
    case.capacity.clamp(1, MOST)
}

fn fetch(process: &OwnedFd, descriptor: RawFd) -> rustix::io::Result<OwnedFd> {
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())
}

impl Transport<Raw> for MsgRing {
    type Tx = Posting;
    type Rx = Waiting;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Posting, Waiting>> {
        // Where Yama guards processes from each other, this one lets its ring be fetched. Elsewhere nobody need be asked.
        let _ = set_ptracer(PTracer::Any);
        let (sends, receives) = match role {
            Role::Consumer(_) => ("reply", "forward"),
            _ => ("forward", "reply"),
        };
        let (capacity, polls) = (capacity(case), case.wait == Wait::Spin);
        let answers = case.pattern.both_ways();
        // Both wait for the other's rings, and both have offered theirs by then.
        let tx = (answers || sends == "forward").then(|| Ring::publish(rendezvous, &format!("{sends}:tx"), capacity));
        let rx =
            (answers || receives == "forward").then(|| Ring::publish(rendezvous, &format!("{receives}:rx"), capacity));
        let tx = match tx {
            Some(ring) => Some(Posting {
                ring: ring?.joined(rendezvous, &format!("{sends}:rx"), polls)?,
                credit: capacity as u64,
            }),
            None => None,
        };
        let rx = match rx {
            Some(ring) => Some(Waiting {
                ring: ring?.joined(rendezvous, &format!("{receives}:tx"), polls)?,
                owed: 0,
                handful: (capacity as u64 / 4).max(1),
            }),
            None => None,
        };
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// A ring that waits for its peer.
struct Ring(IoUring);

impl Ring {
    /// Makes one and offers it to the other side.
    fn publish(rendezvous: &mut Rendezvous, name: &str, capacity: usize) -> Result<Ring> {
        // Room for a credit, or an error, besides.
        let entries = (capacity + 8).next_power_of_two() as u32;
        let ring = IoUring::builder().setup_cqsize(entries).build(2).context("setting up io_uring")?;
        rendezvous.publish(name, &format!("{} {}", std::process::id(), ring.as_raw_fd()))?;
        Ok(Ring(ring))
    }

    /// Fetches the peer's.
    fn joined(self, rendezvous: &mut Rendezvous, name: &str, polls: bool) -> Result<Joined> {
        let place = rendezvous.request(name)?;
        let parse = || -> Option<(Pid, RawFd)> {
            let (process, descriptor) = place.split_once(' ')?;
            Some((Pid::from_raw(process.parse().ok()?)?, descriptor.parse().ok()?))
        };
        let (process, descriptor) = parse().with_context(|| format!("`{place}` is no process and descriptor"))?;
        let process = pidfd_open(process, PidfdFlags::empty()).context("the process of the other side")?;
        let peer = fetch(&process, descriptor).context("fetching the ring of the other side")?;
        Ok(Joined { ring: self.0, peer, polls })
    }
}

/// A ring and its peer.
struct Joined {
    ring: IoUring,
    peer: OwnedFd,
    polls: bool,
}

impl Joined {
    /// Posts into the peer.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn post(&mut self, kind: i32, word: u64) -> io::Result<()> {
        let entry = opcode::MsgRingData::new(types::Fd(self.peer.as_raw_fd()), kind, word, None).build();
        // Nothing is to be heard of it but that it failed.
        let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        // SAFETY: the operation is about numbers alone.
        unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                submitted => return submitted.map(drop),
            }
        }
    }

    /// What has been posted here, if anything.
    #[inline(always)]
    fn posted(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Waits for what is posted here.
    #[inline(always)]
    fn wait(&mut self) -> io::Result<cqueue::Entry> {
        loop {
            if let Some(entry) = self.posted() {
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

/// The word that an entry of this kind carries.
#[inline(always)]
fn word(entry: &cqueue::Entry, kind: i32) -> io::Result<u64> {
    match entry.result() {
        result if result == kind => Ok(entry.user_data()),
        // Of an operation of one's own, which left it only because it failed.
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        other => Err(io::Error::new(ErrorKind::InvalidData, format!("an entry of kind {other}, not {kind}"))),
    }
}

/// The sending end.
pub(super) struct Posting {
    ring: Joined,
    /// How many messages may be sent before the receiver gives more.
    credit: u64,
}

impl Posting {
    #[inline(always)]
    fn send(&mut self, message: u64) -> io::Result<()> {
        while let Some(entry) = self.ring.posted() {
            self.credit += word(&entry, CREDIT)?;
        }
        if self.credit == 0 {
            self.credit = word(&self.ring.wait()?, CREDIT)?;
        }
        self.credit -= 1;
        self.ring.post(MESSAGE, message)
    }
}

impl Tx for Posting {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source.word()))
    }
}

/// The receiving end.
pub(super) struct Waiting {
    ring: Joined,
    /// Messages for which no credit has been given back.
    owed: u64,
    /// As much is given back at a time.
    handful: u64,
}

impl Waiting {
    #[inline(always)]
    fn receive(&mut self) -> io::Result<u64> {
        let message = word(&self.ring.wait()?, MESSAGE)?;
        self.owed += 1;
        if self.owed == self.handful {
            self.ring.post(CREDIT, self.owed)?;
            self.owed = 0;
        }
        Ok(message)
    }
}

impl Rx for Waiting {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive().map(|message| verifier.word(message)))
    }
}
