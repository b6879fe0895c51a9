//! A System V message queue, blocking.
//!
//! Such a queue exists until somebody removes it, even after its processes have ended. So it is in
//! a separate IPC namespace, which the first consumer creates and the others enter. The namespace
//! disappears with its last process, however that ends. A new namespace has the kernel's default
//! limits.

use std::fs::{self, File};
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

/// The longest message and the size of a queue in bytes in a new namespace (the kernel's `MSGMAX`
/// and `MSGMNB`). The values of `kernel.msgmax` and `kernel.msgmnb` outside do not apply.
const LONGEST: usize = 8192;
const QUEUE: usize = 16_384;
/// The namespaces of the current thread.
const USER: &str = "/proc/self/ns/user";
const IPC: &str = "/proc/self/ns/ipc";
/// The error with which a successful trial ends, so that no program is executed.
const TRIED: Errno = Errno::CANCELED;

pub(super) struct SysvMq;

impl Mechanism for SysvMq {
    fn spec(&self) -> Spec {
        Spec::new("process/sysv-mq")
            .kernel_copies(2)
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

    /// A queue is limited by its bytes.
    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some((QUEUE / case.payload.len()) as u64)
    }

    fn check_available(&self) -> Result<(), String> {
        if !fs::exists(IPC).unwrap_or(false) || !fs::exists("/proc/sys/kernel/msgmnb").unwrap_or(false) {
            return Err(String::from("this kernel has no SysV queues in namespaces (CONFIG_SYSVIPC, CONFIG_IPC_NS)"));
        }
        static TRIED: OnceLock<Result<(), String>> = OnceLock::new();
        TRIED.get_or_init(try_new_namespace).clone()
    }
}

/// Creates an IPC namespace for this thread and enters it. Without the privilege, it first becomes
/// root of a new user namespace, which the kernel allows only to a process with one thread.
fn enter_new_namespace() -> rustix::io::Result<()> {
    match unshare(UnshareFlags::NEWIPC) {
        Err(Errno::PERM) => unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWIPC),
        entered => entered,
    }
}

#[allow(unsafe_code)]
fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the table of file descriptors stays shared.
    unsafe { rustix::thread::unshare_unsafe(namespaces) }
}

/// Tests in a child process whether this user may create an IPC namespace.
#[allow(unsafe_code)]
fn try_new_namespace() -> Result<(), String> {
    let mut trial = Command::new("/proc/self/exe");
    let entered = || Err(io::Error::from(enter_new_namespace().err().unwrap_or(TRIED)));
    // SAFETY: between fork and exec the closure makes two system calls and does not allocate.
    let started = unsafe { trial.pre_exec(entered) }.spawn();
    match started {
        Err(error) if error.raw_os_error() == Some(TRIED.raw_os_error()) => Ok(()),
        Err(error) => Err(format!(
            "a queue must disappear with its processes, and this user may not create an IPC namespace for it \
             ({error}): run as root, or \
             allow user namespaces (user.max_user_namespaces, kernel.unprivileged_userns_clone; \
             kernel.apparmor_restrict_unprivileged_userns=0)"
        )),
        // Unreachable: the closure always fails, so no program starts.
        Ok(mut child) => child.wait().map(drop).map_err(|error| error.to_string()),
    }
}

impl Transport<Raw> for SysvMq {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let len = case.payload.len();
        let tx = |queues| SendEnd { queues, message: Message::new(len) };
        let rx = |queue| RecvEnd { queue, message: Message::new(len) };
        let has_reply = case.pattern.is_bidirectional();
        match role {
            Role::Consumer(0) => {
                enter_new_namespace().context("creating an IPC namespace")?;
                let namespaces = [File::open(USER)?, File::open(IPC)?];
                rendezvous.publish_descriptors("namespaces", &namespaces.each_ref().map(AsFd::as_fd))?;
            }
            _ => enter(rendezvous.request_descriptors("namespaces")?)?,
        }
        // A change of credentials may reset the death signal, which a child sets at its start.
        set_parent_process_death_signal(Some(Signal::KILL)).context("setting the death signal")?;
        // One queue for all producers; for a publisher, one for each subscriber.
        let receivers = if case.pattern == Pattern::PubSub { case.consumers() } else { 1 };
        if let Role::Producer(index) = role {
            let forward = (0..receivers).map(|receiver| request(rendezvous, &format!("forward:{receiver}")));
            let forward = tx(forward.collect::<Result<_>>()?);
            return match has_reply {
                true => Ok(Ends::both(role, forward, rx(request(rendezvous, &format!("reply:{index}"))?))),
                false => Ok(Ends::producer(index, forward)),
            };
        }
        let index = if let Role::Consumer(index) = role { index } else { 0 };
        let forward = rx(make(rendezvous, &format!("forward:{index}"))?);
        if !has_reply {
            return Ok(Ends::consumer(index, forward));
        }
        let reply = (0..case.producers).map(|client| Ok(tx(vec![make(rendezvous, &format!("reply:{client}"))?])));
        match <[SendEnd; 1]>::try_from(reply.collect::<Result<Vec<_>>>()?) {
            Ok([reply]) => Ok(Ends::both(role, reply, forward)),
            Err(reply) => Ok(Ends::server(forward, reply)),
        }
    }
}

/// Enters the first consumer's namespaces.
fn enter([user, ipc]: [OwnedFd; 2]) -> Result<()> {
    let (user, ours) = (File::from(user), fs::metadata(USER)?);
    // If the first consumer needed no user namespace of its own, there is none to enter.
    if user.metadata()?.ino() != ours.ino() {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))
            .context("entering the user namespace")?;
    }
    move_into_link_name_space(ipc.as_fd(), Some(LinkNameSpaceType::InterProcessCommunication))
        .context("entering the IPC namespace")
}

/// Creates a queue and publishes its identifier.
#[allow(unsafe_code)]
fn make(rendezvous: &mut Rendezvous, name: &str) -> Result<c_int> {
    // SAFETY: the call takes two numbers.
    let queue = unsafe { libc::msgget(libc::IPC_PRIVATE, 0o600) };
    if queue < 0 {
        return Err(io::Error::last_os_error()).context("making a message queue");
    }
    rendezvous.publish(name, &queue.to_string())?;
    Ok(queue)
}

fn request(rendezvous: &mut Rendezvous, name: &str) -> Result<c_int> {
    let number = rendezvous.request(name)?;
    number.parse().with_context(|| format!("`{number}` is not a message queue"))
}

/// A message for `msgsnd`: a type, which must not be zero, and the bytes after it.
struct Message {
    /// A cache line whose last word is the type. The message begins at the next cache line.
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

/// Converts the return value of a call; `None` means that a signal interrupted it.
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
pub(super) struct SendEnd {
    queues: Vec<c_int>,
    message: Message,
}

impl SendEnd {
    #[inline(always)]
    #[allow(unsafe_code)]
    fn send(&mut self, queue: usize) -> io::Result<()> {
        let len = self.message.bytes().len();
        let from = self.message.buffer[Message::TYPE..].as_ptr();
        loop {
            // SAFETY: `from` points to a type and `len` bytes, all initialised.
            let sent = unsafe { libc::msgsnd(self.queues[queue], from.cast(), len, 0) };
            if checked(sent as isize)?.is_some() {
                return Ok(());
            }
        }
    }
}

impl Tx for SendEnd {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(self.message.bytes());
        (0..self.queues.len()).try_for_each(|queue| self.send(queue))
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    queue: c_int,
    message: Message,
}

impl RecvEnd {
    /// Receives one message. Returns its length.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn recv_message(&mut self) -> io::Result<usize> {
        let len = self.message.bytes().len();
        let to = self.message.buffer[Message::TYPE..].as_mut_ptr();
        loop {
            // SAFETY: `to` points to memory for a type and `len` bytes.
            let received = unsafe { libc::msgrcv(self.queue, to.cast(), len, 0, 0) };
            if let Some(length) = checked(received)? {
                return Ok(length);
            }
        }
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_message().map(|length| verifier.bytes(&self.message.bytes()[..length]))
    }
}
