//! Messages behind their length on a TCP connection, as fast as that can be written: a message and its length leave in one
//! system call, and messages of a stream together, some 64 KiB at a time; one read takes whatever has come, up to 256 KiB, and
//! messages are looked at where they lie. Where it may spin before it sleeps, it reads without blocking for 50 us first.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use estafette_measure::case::{Case, Load, Pattern, Role};
use estafette_measure::spec::{Joins, Wait};
use estafette_measure::{Carries, Ends, Generator, Mechanism, Party, Raw, Rendezvous, Rx, Spec, Tx, Verifier};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::tcp::connected;

/// How much is sent together, and read at once.
const TOGETHER: usize = 64 << 10;
const AT_ONCE: usize = 256 << 10;
/// The length before a message.
const LENGTH: usize = 4;
/// How long a receiver that may spin does.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// `network/framed-tuned`.
pub(super) struct FramedTuned;

impl Mechanism for FramedTuned {
    fn spec(&self) -> Spec {
        Spec::new("network/framed-tuned")
            .stands_on(
                "TCP on 127.0.0.1, TCP_NODELAY: a length of 4 bytes and the message, many by one send and one recv",
            )
            .patterns(&[Pattern::PingPong, Pattern::Stream, Pattern::Duplex])
            .waits(&[Wait::Block, Wait::Adaptive])
            .joins(Joins::Standard)
    }
}

impl Carries<Raw> for FramedTuned {
    type Tx = Sending;
    type Rx = Receiving;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Sending, Receiving>> {
        let socket: OwnedFd = connected(role, meet)?.into();
        let len = case.payload.len();
        let frames = Vec::with_capacity(TOGETHER.max(LENGTH + len));
        let tx = Sending { socket: socket.try_clone()?, len, together: together(case), frames };
        let rx = Receiving {
            socket,
            len,
            buffer: vec![0; AT_ONCE.max(2 * (LENGTH + len))],
            start: 0,
            end: 0,
            spins: case.wait == Wait::Adaptive,
        };
        Ok(Ends(vec![Party { role, tx: Some(tx), rx: Some(rx) }]))
    }
}

/// Whether the messages of a case may leave together: nobody waits for any of them, and none is due at a time.
pub(super) fn together(case: &Case) -> bool {
    matches!(case.pattern, Pattern::Stream | Pattern::Duplex) && case.load == Load::Saturated
}

/// The sending end.
pub(super) struct Sending {
    socket: OwnedFd,
    len: usize,
    /// Whether messages wait for others.
    together: bool,
    /// Whole frames that are to be sent.
    frames: Vec<u8>,
}

impl Sending {
    /// Adds a message.
    #[inline(always)]
    fn add(&mut self, next: &mut Generator) {
        let at = self.frames.len();
        self.frames.resize(at + LENGTH + self.len, 0);
        let (length, message) = self.frames[at..].split_at_mut(LENGTH);
        length.copy_from_slice(&(self.len as u32).to_be_bytes());
        next.fill(message);
    }

    /// Sends what there is.
    #[inline(always)]
    fn send(&mut self) -> io::Result<()> {
        let mut rest = &self.frames[..];
        while !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.frames.clear();
        Ok(())
    }
}

impl Tx for Sending {
    #[inline(always)]
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        self.add(next);
        let waits = self.together && self.frames.len() + LENGTH + self.len <= TOGETHER;
        ready(if waits { Ok(()) } else { self.send() })
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send())
    }
}

/// The receiving end.
pub(super) struct Receiving {
    socket: OwnedFd,
    /// How long a message is.
    len: usize,
    buffer: Vec<u8>,
    /// What was read and not looked at.
    start: usize,
    end: usize,
    spins: bool,
}

impl Receiving {
    /// Looks at the next message, and reads where it is not there.
    #[inline(always)]
    fn read_into(&mut self, seen: &mut Verifier) -> io::Result<()> {
        loop {
            let there = &self.buffer[self.start..self.end];
            if let Some((length, rest)) = there.split_first_chunk::<LENGTH>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length > self.len {
                    return Err(io::Error::other(format!("a message of {length} bytes")));
                }
                if let Some(message) = rest.get(..length) {
                    seen.bytes(message);
                    self.start += LENGTH + length;
                    return Ok(());
                }
            }
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.start + LENGTH + self.len > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.fill() {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.end += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline(always)]
    fn fill(&mut self) -> rustix::io::Result<usize> {
        let space = &mut self.buffer[self.end..];
        if self.spins {
            let begun = Instant::now();
            while begun.elapsed() < SPIN {
                match recv(&self.socket, &mut *space, RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN) => {}
                    other => return Ok(other?.0),
                }
            }
        }
        Ok(recv(&self.socket, &mut *space, RecvFlags::empty())?.0)
    }
}

impl Rx for Receiving {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read_into(seen))
    }
}
