//! The receiver copies each message out of the sender's memory, with one system call and one copy. Two pipes carry a byte for
//! each message that is there, and for each that has been copied.

use std::fs;
use std::future::{Future, ready};
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

/// Where Yama says who may read whose memory.
const PTRACE_SCOPE: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// As many bytes as are taken out of a pipe at once.
const MOST_TOKENS: usize = 256;

pub(super) struct ProcessVmReadv;

impl Mechanism for ProcessVmReadv {
    fn spec(&self) -> Spec {
        Spec::new("process/process-vm-readv")
            .implementation("process_vm_readv(2) out of the sender's memory, two pipes to tell")
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
            Err(error) => Err(format!("this process may not read another's memory ({error}): allow CAP_SYS_PTRACE")),
        }
    }
}

/// Whether Yama lets processes of one user into each other where they allow it.
pub(super) fn yama() -> Result<(), String> {
    let guard = fs::read_to_string(PTRACE_SCOPE).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if guard.is_some_and(|guard| guard > 1) {
        return Err(String::from("kernel.yama.ptrace_scope keeps processes out of each other: set it to 1 or 0"));
    }
    Ok(())
}

impl Transport<Raw> for ProcessVmReadv {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let shape = (case.payload.len(), slots(case));
        let answers = case.pattern.both_ways();
        // Both wait for the other's offer, and both have made theirs by then.
        match role {
            Role::Producer(index) if !answers => {
                Ok(Ends::producer(index, Sending::open("forward", shape, rendezvous)?))
            }
            Role::Producer(_) => {
                let tx = Sending::open("forward", shape, rendezvous)?;
                Ok(Ends::both(role, tx, Receiving::open("reply", shape, rendezvous)?))
            }
            Role::Consumer(index) if !answers => {
                Ok(Ends::consumer(index, Receiving::open("forward", shape, rendezvous)?))
            }
            _ => {
                let tx = Sending::open("reply", shape, rendezvous)?;
                Ok(Ends::both(role, tx, Receiving::open("forward", shape, rendezvous)?))
            }
        }
    }
}

/// The sending end.
pub(super) struct Sending {
    memory: Buffer,
    len: usize,
    slots: usize,
    sent: u64,
    /// Slots that may be filled without asking.
    free: usize,
    filled: PipeWriter,
    freed: PipeReader,
}

impl Sending {
    fn open(name: &str, (len, slots): (usize, usize), rendezvous: &mut Rendezvous) -> Result<Sending> {
        // Where Yama guards processes from each other, this one lets itself be read. Elsewhere nobody need be asked.
        let _ = set_ptracer(PTracer::Any);
        let memory = Buffer::new(len * slots);
        let ((theirs, filled), (freed, frees)) = (pipe()?, pipe()?);
        let address = format!("{} {}", std::process::id(), memory.as_ptr() as usize);
        rendezvous.publish(&format!("memory:{name}"), &address)?;
        rendezvous.offer_descriptors(name, &[theirs.as_fd(), frees.as_fd()])?;
        Ok(Sending { memory, len, slots, sent: 0, free: slots, filled, freed })
    }

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

    fn wait_for_all(&mut self) -> io::Result<()> {
        while self.free < self.slots {
            self.free += tokens(&mut self.freed)?;
        }
        Ok(())
    }
}

/// Waits for one token at least; returns how many there were.
fn tokens(pipe: &mut PipeReader) -> io::Result<usize> {
    loop {
        match pipe.read(&mut [0; MOST_TOKENS]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send(source))
    }

    /// Waits until all has been copied: the memory goes with this end.
    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.wait_for_all())
    }
}

/// The receiving end.
pub(super) struct Receiving {
    buffer: Buffer,
    slots: usize,
    received: u64,
    /// Messages that are there.
    waiting: usize,
    sender: Pid,
    address: usize,
    filled: PipeReader,
    freed: PipeWriter,
}

impl Receiving {
    fn open(name: &str, (len, slots): (usize, usize), rendezvous: &mut Rendezvous) -> Result<Receiving> {
        let place = rendezvous.request(&format!("memory:{name}"))?;
        let parse = || -> Option<(i32, usize)> {
            let (process, address) = place.split_once(' ')?;
            Some((process.parse().ok()?, address.parse().ok()?))
        };
        let (process, address) = parse().with_context(|| format!("`{place}` is no process and address"))?;
        ensure!(address.checked_add(len * slots).is_some(), "`{place}` is no address");
        let [filled, freed] = rendezvous.request_descriptors(name)?;
        let (filled, freed) = (filled.into(), freed.into());
        let buffer = Buffer::new(len);
        Ok(Receiving { buffer, slots, received: 0, waiting: 0, sender: Pid::from_raw(process), address, filled, freed })
    }

    fn receive(&mut self) -> io::Result<()> {
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

impl Rx for Receiving {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.receive().map(|()| verifier.bytes(&self.buffer)))
    }
}
