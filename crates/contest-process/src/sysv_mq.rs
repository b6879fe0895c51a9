//! A System V message queue, blocking.
//!
//! Such a queue outlives its processes: it stays until somebody removes it. So it lies in an IPC namespace of its own, made
//! by the first consumer and entered by the others, which is gone with the last of them however they end. A new namespace
//! begins with the kernel's own limits.

use std::fs::{self, File};
use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};
use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use libc::{c_int, c_long};
use rustix::io::Errno;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// The longest message, and the bytes that a queue holds, as a namespace begins (`MSGMAX` and `MSGMNB` of the kernel): what is
/// set in `kernel.msgmax` and `kernel.msgmnb` outside is not handed down.
const LONGEST: usize = 8192;
const QUEUE: usize = 16_384;
/// Where the namespaces of a thread are.
const USER: &str = "/proc/self/ns/user";
const IPC: &str = "/proc/self/ns/ipc";
/// What a trial says that came to its end: the program that it would begin is not begun.
const TRIED: Errno = Errno::CANCELED;

pub(super) struct SysvMq;

impl Mechanism for SysvMq {
    fn spec(&self) -> Spec {
        Spec::new("process/sysv-mq")
            .implementation("msgget(2), msgsnd and msgrcv, in an IPC namespace of its own")
            .patterns(&[
                Pattern::PingPong,
                Pattern::Stream,
                Pattern::Duplex,
                Pattern::FanIn,
                Pattern::RequestReply,
                Pattern::PubSub,
            ])
            .max_message(LONGEST)
            .max_producers(None)
            .tier(Tier::Standard)
    }

    /// A queue is full by its bytes.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some((QUEUE / case.payload.len()) as u64)
    }

    fn check_available(&self) -> Result<(), String> {
        if !fs::exists(IPC).unwrap_or(false) || !fs::exists("/proc/sys/kernel/msgmnb").unwrap_or(false) {
            return Err(String::from("this kernel has no SysV queues in namespaces (CONFIG_SYSVIPC, CONFIG_IPC_NS)"));
        }
        static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
        TRIED.get_or_init(try_apart).clone()
    }
}

/// Makes an IPC namespace of this thread's own, and enters it. Whoever may not do so becomes root of a user namespace first,
/// which a process may with one thread alone.
fn leave() -> rustix::io::Result<()> {
    match unshare(UnshareFlags::NEWIPC) {
        Err(Errno::PERM) => unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWIPC),
        left => left,
    }
}

#[allow(unsafe_code)]
fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of descriptors stays shared.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Whether a process may leave its IPC namespace, tried in one that ends at that.
#[allow(unsafe_code)]
fn try_apart() -> Result<(), String> {
    let mut trial = Command::new("/proc/self/exe");
    let left = || Err(io::Error::from(leave().err().unwrap_or(TRIED)));
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    let started = unsafe { trial.pre_exec(left) }.spawn();
    match started {
        Err(error) if error.raw_os_error() == Some(TRIED.raw_os_error()) => Ok(()),
        Err(error) => Err(format!(
            "a queue must go with its processes, and this user may make no IPC namespace for it ({error}): run as root, or \
             allow user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone; \
             kernel.apparmor_restrict_unprivileged_userns=0)"
        )),
        // It cannot be: no program is begun.
        Ok(mut child) => child.wait().map(drop).map_err(|error| error.to_string()),
    }
}

impl Transport<Raw> for SysvMq {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let len = case.payload.len();
        let tx = |queues| Sending { queues, message: Message::new(len) };
        let rx = |queue| Receiving { queue, message: Message::new(len) };
        let answers = case.pattern.both_ways();
        match role {
            Role::Consumer(0) => {
                leave().context("leaving the IPC namespace")?;
                let namespaces = [File::open(USER)?, File::open(IPC)?];
                rendezvous.offer_descriptors("namespaces", &namespaces.each_ref().map(AsFd::as_fd))?;
            }
            _ => enter(rendezvous.request_descriptors("namespaces")?)?,
        }
        // Other credentials may undo what a child asks for first of all.
        set_parent_process_death_signal(Some(Signal::KILL)).context("asking to end with the coordinator")?;
        // One for all producers; where one publishes, one for each subscriber.
        let receivers = if case.pattern == Pattern::PubSub { case.consumers() } else { 1 };
        if let Role::Producer(index) = role {
            let forward = (0..receivers).map(|receiver| request(rendezvous, &format!("forward:{receiver}")));
            let forward = tx(forward.collect::<Result<_>>()?);
            return match answers {
                true => Ok(Ends::both(role, forward, rx(request(rendezvous, &format!("reply:{index}"))?))),
                false => Ok(Ends::producer(index, forward)),
            };
        }
        let index = if let Role::Consumer(index) = role { index } else { 0 };
        let forward = rx(make(rendezvous, &format!("forward:{index}"))?);
        if !answers {
            return Ok(Ends::consumer(index, forward));
        }
        let reply = (0..case.producers).map(|client| Ok(tx(vec![make(rendezvous, &format!("reply:{client}"))?])));
        match <[Sending; 1]>::try_from(reply.collect::<Result<Vec<_>>>()?) {
            Ok([reply]) => Ok(Ends::both(role, reply, forward)),
            Err(reply) => Ok(Ends::server(forward, reply)),
        }
    }
}

/// Enters the first consumer's namespaces.
fn enter([user, ipc]: [OwnedFd; 2]) -> Result<()> {
    let (user, ours) = (File::from(user), fs::metadata(USER)?);
    // Where it needed none of its own, there is none to enter.
    if user.metadata()?.ino() != ours.ino() {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
            .context("entering the user namespace")?;
    }
    move_into_link_name_space(ipc.as_fd(), Some(LinkNameSpaceType::InterProcessCommunication))
        .context("entering the IPC namespace")
}

/// Makes a queue and tells the producers its number.
#[allow(unsafe_code)]
fn make(rendezvous: &mut Rendezvous, name: &str) -> Result<c_int> {
    // SAFETY: it takes two numbers.
    let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    if queue < 0 {
        return Err(io::Error::last_os_error()).context("making a message queue");
    }
    rendezvous.publish(name, &queue.to_string())?;
    Ok(queue)
}

fn request(rendezvous: &mut Rendezvous, name: &str) -> Result<c_int> {
    let number = rendezvous.request(name)?;
    number.parse().with_context(|| format!("`{number}` is no message queue"))
}

/// What is sent: a type, which is not zero, and the bytes behind it.
struct Message {
    /// A cache line whose last word is the type; the message begins at the next.
    buffer: Buffer,
}

impl Message {
    const HEAD: usize = 64;
    const TYPE: usize = Message::HEAD - size_of::<c_long>();

    fn new(len: usize) -> Message {
        let mut buffer = Buffer::new(Message::HEAD + len);
        buffer[Message::TYPE..Message::HEAD].copy_from_slice(&c_long::to_ne_bytes(1));
        Message { buffer }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[Message::HEAD..]
    }
}

/// What a call returned, or none where it was interrupted.
#[inline(always)]
fn checked(returned: isize) -> io::Result<Option<usize>> {
    if let Ok(returned) = usize::try_from(returned) {
        return Ok(Some(returned));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// The sending end.
pub(super) struct Sending {
    queues: Vec<c_int>,
    message: Message,
}

impl Sending {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send(&mut self, queue: usize) -> io::Result<()> {
        let len = self.message.bytes().len();
        let from = self.message.buffer[Message::TYPE..].as_ptr();
        loop {
            // SAFETY: from there on lie a type and `len` bytes, initialised.
            let sent = unsafe { libc::msgsnd(self.queues[queue], from.cast(), len, 0) };
            if checked(sent as isize)?.is_some() {
                return Ok(());
            }
        }
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(self.message.bytes());
        ready((0..self.queues.len()).try_for_each(|queue| self.send(queue)))
    }
}

/// The receiving end.
pub(super) struct Receiving {
    queue: c_int,
    message: Message,
}

impl Receiving {
    /// Returns the message's length.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn receive(&mut self) -> io::Result<usize> {
        let len = self.message.bytes().len();
        let to = self.message.buffer[Message::TYPE..].as_mut_ptr();
        loop {
            // SAFETY: from there on is room for a type and `len` bytes.
            let received = unsafe { libc::msgrcv(self.queue, to.cast(), len, 0, 0) };
            if let Some(length) = checked(received)? {
                return Ok(length);
            }
        }
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive().map(|length| verifier.bytes(&self.message.bytes()[..length])))
    }
}
