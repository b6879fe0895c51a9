//! The receiver copies each message from the sender's memory with `process_vm_readv`: one system
//! call and one copy. Two pipes carry one byte for each message that was sent, and for each that
//! was copied.

use std::fs;
use std::io::{self, ErrorKind, IoSliceMut, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsFd;

use anyhow::{Context, Result, ensure};
use estafette_contest_common::buffer::Buffer;
use estafette_contest_common::capacity::slots;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::{Ends, Generator, Mechanism, Raw, Rendezvous, Rx, Spec, Transport, Tx, Verifier};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use rustix::process::{PTracer, set_ptracer};

/// Yama's setting for access to other processes' memory.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// How many bytes are read from a pipe at once.
const MOST_TOKENS: usize = 256;

pub(super) struct ProcessVmReadv;

impl Mechanism for ProcessVmReadv {
    fn spec(&self) -> Spec {
        Spec::new("process/process-vm-readv")
            .kernel_copies(1)
            .implementation("process_vm_readv(2) out of the sender's memory, two pipes to notify the other side")
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .tier(Tier::Suite)
    }

    fn effective_capacity(&self, case: &Case) -> Option<u64> {
        Some(slots(case) as u64)
    }

    fn check_available(&self) -> Result<(), String> {
        yama()?;
        let (ours, mut read) = (*b"estafette", [0; 9]);
        let remote = RemoteIoVec { base: ours.as_ptr() as usize, len: ours.len() };
        match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(&mut read)], &[remote]) {
            Ok(_) => Ok(()),
            Err(error) => {
                Err(format!("this process may not read another process's memory ({error}): allow CAP_SYS_PTRACE"))
            }
        }
    }
}

/// Checks that Yama lets a process access another one of the same user that permits it.
pub(super) fn yama() -> Result<(), String> {
    let scope = fs::read_to_string(PTRACE_SCOPE).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if scope.is_some_and(|scope| scope > 1) {
        return Err(String::from(
            "kernel.yama.ptrace_scope forbids access to other processes' memory: set it to 1 or 0",
        ));
    }
    Ok(())
}

impl Transport<Raw> for ProcessVmReadv {
    type Tx = SendEnd;
    type Rx = RecvEnd;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<SendEnd, RecvEnd>> {
        let shape = (case.payload.len(), slots(case));
        let has_reply = case.pattern.is_bidirectional();
        // Each side waits for what the other publishes, and both have published by then.
        match role {
            Role::Producer(index) if !has_reply => {
                Ok(Ends::producer(index, SendEnd::open("forward", shape, rendezvous)?))
            }
            Role::Producer(_) => {
                let tx = SendEnd::open("forward", shape, rendezvous)?;
                Ok(Ends::both(role, tx, RecvEnd::open("reply", shape, rendezvous)?))
            }
            Role::Consumer(index) if !has_reply => {
                Ok(Ends::consumer(index, RecvEnd::open("forward", shape, rendezvous)?))
            }
            _ => {
                let tx = SendEnd::open("reply", shape, rendezvous)?;
                Ok(Ends::both(role, tx, RecvEnd::open("forward", shape, rendezvous)?))
            }
        }
    }
}

/// The sending end.
pub(super) struct SendEnd {
    memory: Buffer,
    len: usize,
    slots: usize,
    sent: u64,
    /// Slots that may be filled before reading from `freed`.
    free: usize,
    filled: PipeWriter,
    freed: PipeReader,
}

impl SendEnd {
    fn open(name: &str, (len, slots): (usize, usize), rendezvous: &mut Rendezvous) -> Result<SendEnd> {
        // Permits all processes to read this one's memory if Yama is active. Without Yama this is
        // not needed.
        let _ = set_ptracer(PTracer::Any);
        let memory = Buffer::new(len * slots);
        let ((theirs, filled), (freed, frees)) = (pipe()?, pipe()?);
        let address = format!("{} {}", std::process::id(), memory.as_ptr() as usize);
        rendezvous.publish(&format!("memory:{name}"), &address)?;
        rendezvous.publish_descriptors(name, &[theirs.as_fd(), frees.as_fd()])?;
        Ok(SendEnd { memory, len, slots, sent: 0, free: slots, filled, freed })
    }

    fn wait_for_all(&mut self) -> io::Result<()> {
        while self.free < self.slots {
            self.free += tokens(&mut self.freed)?;
        }
        Ok(())
    }
}

/// Waits for at least one token. Returns how many there were.
fn tokens(pipe: &mut PipeReader) -> io::Result<usize> {
    loop {
        match pipe.read(&mut [0; MOST_TOKENS]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

impl Tx for SendEnd {
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        if self.free == 0 {
            self.free = tokens(&mut self.freed)?;
        }
        let from = (self.sent % self.slots as u64) as usize * self.len;
        source.fill(&mut self.memory[from..from + self.len]);
        self.sent += 1;
        self.free -= 1;
        self.filled.write_all(&[0])
    }

    /// Waits until all messages are copied, because the memory is freed with this end.
    fn flush(&mut self) -> io::Result<()> {
        self.wait_for_all()
    }
}

/// The receiving end.
pub(super) struct RecvEnd {
    buffer: Buffer,
    slots: usize,
    received: u64,
    /// Messages that were sent but not received.
    waiting: usize,
    sender: Pid,
    address: usize,
    filled: PipeReader,
    freed: PipeWriter,
}

impl RecvEnd {
    fn open(name: &str, (len, slots): (usize, usize), rendezvous: &mut Rendezvous) -> Result<RecvEnd> {
        let place = rendezvous.request(&format!("memory:{name}"))?;
        let parse = || -> Option<(i32, usize)> {
            let (process, address) = place.split_once(' ')?;
            Some((process.parse().ok()?, address.parse().ok()?))
        };
        let (process, address) = parse().with_context(|| format!("`{place}` is not a process and an address"))?;
        ensure!(address.checked_add(len * slots).is_some(), "`{place}` is not a valid address");
        let [filled, freed] = rendezvous.request_descriptors(name)?;
        let (filled, freed) = (filled.into(), freed.into());
        let buffer = Buffer::new(len);
        Ok(RecvEnd { buffer, slots, received: 0, waiting: 0, sender: Pid::from_raw(process), address, filled, freed })
    }

    fn recv_message(&mut self) -> io::Result<()> {
        if self.waiting == 0 {
            self.waiting = tokens(&mut self.filled)?;
        }
        let len = self.buffer.len();
        let from = (self.received % self.slots as u64) as usize * len;
        let remote = RemoteIoVec { base: self.address + from, len };
        let copied = process_vm_readv(self.sender, &mut [IoSliceMut::new(&mut self.buffer)], &[remote])?;
        if copied < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.received += 1;
        self.waiting -= 1;
        self.freed.write_all(&[0])
    }
}

impl Rx for RecvEnd {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.recv_message().map(|()| verifier.bytes(&self.buffer))
    }
}
