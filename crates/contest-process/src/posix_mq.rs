//! A POSIX message queue, blocking, with at most the length that the system allows unprivileged
//! users.
//!
//! A queue's name outlives its processes. So the consumer removes the name immediately and passes
//! the queue on as a descriptor.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use anyhow::{Context, Result};
use estafette_contest_common::packets::{self, PacketRx, PacketSocket, PacketTx};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Mechanism, Raw, Rendezvous, Spec, Transport};
use nix::mqueue::{MQ_OFlag, MqAttr, mq_close, mq_open, mq_unlink};
use nix::sys::stat::Mode;
use rustix::process::{Resource, getrlimit};

use super::passing;

/// The directory that contains the names of queues, if it is mounted.
const QUEUES: &str = "/dev/mqueue";
/// The kernel's limits: messages per queue, and bytes per message.
const MOST_MESSAGES: &str = "/proc/sys/fs/mqueue/msg_max";
const LONGEST: &str = "/proc/sys/fs/mqueue/msgsize_max";
/// An upper bound of what the kernel counts for a message in addition to its bytes.
const OVERHEAD: usize = 128;

pub(super) struct PosixMq;

impl Mechanism for PosixMq {
    fn spec(&self) -> Spec {
        Spec::new("process/posix-mq")
            .kernel_copies(2)
            .implementation("mq_open(3), mq_send and mq_receive")
            .patterns(&[
                Pattern::PingPong,
                Pattern::Stream,
                Pattern::Duplex,
                Pattern::FanIn,
                Pattern::RequestReply,
                Pattern::PubSub,
            ])
            .max_producers(None)
            .tier(Tier::Suite)
    }

    fn supports(&self, case: &Case) -> Result<(), String> {
        match limit(LONGEST) {
            Some(longest) if case.payload.len() > longest => Err(format!(
                "a message of {} bytes is longer than this system's maximum of {longest}: raise fs.mqueue.msgsize_max",
                case.payload.len()
            )),
            _ => within_limit(case),
        }
    }

    fn check_available(&self) -> Result<(), String> {
        match limit(MOST_MESSAGES) {
            Some(_) => Ok(()),
            None => Err(String::from("this kernel has no POSIX message queues (CONFIG_POSIX_MQUEUE)")),
        }
    }

    /// Counts the messages that a queue accepts before a sender blocks.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        let queue = make(case, &passing::of_this_process("capacity"), MQ_OFlag::O_NONBLOCK).ok()?;
        let message = vec![0; case.payload.len()];
        let sent = (0..case.capacity).take_while(|_| send(&queue, &message).is_ok());
        Some(sent.count() as u64)
    }
}

fn limit(path: &str) -> Option<usize> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the capacity of the case's queues in messages.
fn messages(case: &Case) -> usize {
    case.capacity.min(limit(MOST_MESSAGES).unwrap_or(10)).max(1)
}

/// Checks that the case's queues fit into the user's limit.
fn within_limit(case: &Case) -> Result<(), String> {
    let queues = match case.pattern {
        Pattern::PubSub => case.consumers(),
        pattern if pattern.is_bidirectional() => 1 + case.producers,
        _ => 1,
    };
    let bytes = queues * messages(case) * (case.payload.len() + OVERHEAD);
    match getrlimit(Resource::Msgqueue).current {
        Some(most) if bytes as u64 > most => {
            Err(format!("its queues need {bytes} bytes, and this user's limit is {most}: raise it with `ulimit -q`"))
        }
        _ => Ok(()),
    }
}

/// Creates a queue for the case and removes its name. On Linux it is an ordinary descriptor.
fn make(case: &Case, name: &str, flags: MQ_OFlag) -> Result<OwnedFd> {
    let messages = messages(case);
    let attributes = MqAttr::new(0, messages as i64, case.payload.len() as i64, 0);
    passing::sweep(QUEUES);
    let flags = flags | MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL | MQ_OFlag::O_RDWR | MQ_OFlag::O_CLOEXEC;
    let queue = mq_open(name, flags, Mode::S_IRUSR | Mode::S_IWUSR, Some(&attributes)).with_context(|| {
        format!("making the message queue {name} (`ulimit -q` says how many bytes all queues may use)")
    })?;
    mq_unlink(name).with_context(|| format!("removing the name {name}"))?;
    let descriptor = queue.as_fd().try_clone_to_owned()?;
    mq_close(queue)?;
    Ok(descriptor)
}

/// Sends a message. Blocks while the queue is full.
///
/// Like `recv`, it calls the C library directly: nix's functions are not inlined, and a return
/// after a system call costs about 9 ns; see `byte_stream.rs`.
#[inline(always)]
#[allow(unsafe_code)]
fn send(queue: &OwnedFd, message: &[u8]) -> io::Result<()> {
    loop {
        // SAFETY: the call reads as many bytes as the message has, and writes nothing.
        if unsafe { libc::mq_send(queue.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) } == 0 {
            return Ok(());
        }
        check_interrupted()?;
    }
}

/// Receives the oldest message. Blocks while the queue is empty. Returns the message's length.
#[inline(always)]
#[allow(unsafe_code)]
fn recv(queue: &OwnedFd, message: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the call writes at most `message.len()` bytes. The null pointer means that no
        // priority is requested.
        let got =
            unsafe { libc::mq_receive(queue.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), ptr::null_mut()) };
        if let Ok(got) = usize::try_from(got) {
            return Ok(got);
        }
        check_interrupted()?;
    }
}

/// Returns `Ok` if a failed call was only interrupted by a signal.
#[cold]
fn check_interrupted() -> io::Result<()> {
    match io::Error::last_os_error() {
        error if error.kind() == ErrorKind::Interrupted => Ok(()),
        error => Err(error),
    }
}

impl Transport<Raw> for PosixMq {
    type Tx = PacketTx<Queue>;
    type Rx = PacketRx<Queue>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let dir = rendezvous.dir().to_owned();
        packets::open(case, role, rendezvous, |direction| {
            let name = passing::unique(&dir, &format!("{role}-{direction}"))?;
            let queue = make(case, &name, MQ_OFlag::empty())?;
            Ok((queue.try_clone()?, queue))
        })
    }
}

/// An open queue.
pub(super) struct Queue(OwnedFd);

impl From<OwnedFd> for Queue {
    fn from(descriptor: OwnedFd) -> Queue {
        Queue(descriptor)
    }
}

impl PacketSocket for Queue {
    #[inline(always)]
    fn send_packet(&mut self, packet: &[u8]) -> io::Result<()> {
        send(&self.0, packet)
    }

    #[inline(always)]
    fn recv_packet(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        recv(&self.0, buffer)
    }
}
