//! Messages in frames on a stream of bytes, as fast as that can be written: a message and what goes around it leave in one system
//! call, and messages of a stream together, some 64 KiB at a time; one read takes whatever has come, up to 256 KiB, and messages
//! are looked at where they lie. Where it may spin before it sleeps, it reads without blocking for 50 us first.
//!
//! [`Writes`] and [`Reads`] say what a frame looks like; an [`Outlet`] and an [`Inlet`], such as a [`Socket`], are what bytes go
//! through.

use std::future::{Future, ready};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Load, Pattern, Role, TURN};
use estafette_measure::spec::Wait;
use estafette_measure::{Ends, Generator, Rx, Tx, Verifier};
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// How much is sent together, and read at once.
pub(super) const TOGETHER: usize = 64 << 10;
pub(super) const AT_ONCE: usize = 256 << 10;
/// How long a receiver that may spin does.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// Whether the messages of a case may leave together: nobody waits for any of them, and none is due at a time. Those of several
/// connections do as long as it is one's turn. Of several writers each is on its way when it has been sent.
pub(super) fn together(case: &Case) -> bool {
    let streams = matches!(case.pattern, Pattern::Stream | Pattern::Duplex | Pattern::FanIn | Pattern::Connections);
    streams && case.load == Load::Saturated
}

/// How many bytes of a case's messages leave together at the most, where each is in a frame of so many.
pub(super) fn most_together(case: &Case, frame: usize) -> usize {
    match case.pattern {
        _ if !together(case) => 0,
        // There may be a thousand connections, and a turn is all that there is room for.
        Pattern::Connections => TOGETHER.min(TURN as usize * frame),
        _ => TOGETHER,
    }
}

/// How messages are put into frames. All of a case are of one length.
pub(super) trait Writes: Send + 'static {
    /// How long a frame is, with its message.
    fn frame(&self) -> usize;

    /// Writes the frame of the next message; `place` is as long as that.
    fn write(&mut self, place: &mut [u8], source: &mut Generator) -> io::Result<()>;
}

/// How messages are found in frames.
pub(super) trait Reads: Send + 'static {
    /// How long a frame is at the most, with its message.
    fn frame(&self) -> usize;

    /// Looks at the first message of what has come. Returns how long its frame is; nothing where it has not come whole.
    fn read(&mut self, forward: &mut [u8], verifier: &mut Verifier) -> io::Result<Option<usize>>;
}

/// One message after the other, with nothing around them.
#[derive(Clone, Copy)]
pub(super) struct Bare {
    pub(super) len: usize,
}

impl Writes for Bare {
    #[inline(always)]
    fn frame(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn write(&mut self, place: &mut [u8], source: &mut Generator) -> io::Result<()> {
        source.fill(place);
        Ok(())
    }
}

impl Reads for Bare {
    #[inline(always)]
    fn frame(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn read(&mut self, forward: &mut [u8], verifier: &mut Verifier) -> io::Result<Option<usize>> {
        Ok(forward.get(..self.len).map(|message| {
            verifier.bytes(message);
            self.len
        }))
    }
}

/// Where whole frames go.
pub(super) trait Outlet: Send + 'static {
    /// Sends all of them.
    fn send(&mut self, frames: &[u8]) -> io::Result<()>;
}

/// Where bytes come from.
pub(super) trait Inlet: Send + 'static {
    /// Waits until there are some. Returns how many; none at the end.
    fn fill(&mut self, space: &mut [u8]) -> io::Result<usize>;
}

/// A socket.
pub(super) struct Socket {
    socket: OwnedFd,
    spins: bool,
}

impl Socket {
    pub(super) fn new(socket: impl Into<OwnedFd>, case: &Case) -> Socket {
        Socket { socket: socket.into(), spins: case.wait == Wait::Adaptive }
    }

    /// The same once more.
    pub(super) fn another(&self) -> io::Result<Socket> {
        Ok(Socket { socket: self.socket.try_clone()?, spins: self.spins })
    }
}

impl Outlet for Socket {
    #[inline(always)]
    fn send(&mut self, frames: &[u8]) -> io::Result<()> {
        let mut rest = frames;
        while !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = &rest[sent..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Inlet for Socket {
    #[inline(always)]
    fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        spinning(self.spins, |sleeps| {
            let flags = if sleeps { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            Ok(recv(&self.socket, &mut *space, flags)?.0)
        })
    }
}

/// Receives by a call that is told whether it may sleep. Where it may spin, it may not sleep for the first [`SPIN`].
#[inline(always)]
pub(super) fn spinning<T>(spins: bool, mut receive: impl FnMut(bool) -> io::Result<T>) -> io::Result<T> {
    let until = spins.then(|| Instant::now() + SPIN);
    loop {
        let sleeps = until.is_none_or(|until| Instant::now() >= until);
        match receive(sleeps) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && !sleeps => {}
            received => return received,
        }
    }
}

/// Both ends of a party on the sockets that it sends by and receives from.
pub(super) fn ends<W: Writes, R: Reads>(
    writes: W,
    reads: R,
    sockets: [OwnedFd; 2],
    case: &Case,
    role: Role,
) -> Ends<Sending<W, Socket>, Receiving<R, Socket>> {
    let [to, from] = sockets.map(|socket| Socket::new(socket, case));
    Ends::both(role, Sending::new(writes, to, case), Receiving::new(reads, from))
}

/// The sending end.
pub(super) struct Sending<W, O> {
    writes: W,
    outlet: O,
    /// Whole frames that are to be sent, and room for more.
    frames: Buffer,
    filled: usize,
}

impl<W: Writes, O: Outlet> Sending<W, O> {
    /// One whose messages leave together where the case allows it.
    pub(super) fn new(writes: W, outlet: O, case: &Case) -> Sending<W, O> {
        let most = most_together(case, writes.frame());
        Sending::with_room(writes, outlet, most)
    }

    /// One that sends together what fits into so many bytes, a message at the least.
    pub(super) fn with_room(writes: W, outlet: O, most: usize) -> Sending<W, O> {
        let frames = Buffer::new(most.max(writes.frame()));
        Sending { writes, outlet, frames, filled: 0 }
    }

    /// Adds a message, and sends what there is where there is no room for another.
    #[inline(always)]
    fn add(&mut self, source: &mut Generator) -> io::Result<()> {
        let frame = self.writes.frame();
        self.writes.write(&mut self.frames[self.filled..][..frame], source)?;
        self.filled += frame;
        if self.filled + frame <= self.frames.len() { Ok(()) } else { self.send() }
    }

    #[inline(always)]
    fn send(&mut self) -> io::Result<()> {
        let filled = std::mem::take(&mut self.filled);
        self.outlet.send(&self.frames[..filled])
    }
}

impl<W: Writes, O: Outlet> Tx for Sending<W, O> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.add(source))
    }

    fn flush(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.send())
    }
}

/// The receiving end.
pub(super) struct Receiving<R, I> {
    reads: R,
    inlet: I,
    buffer: Vec<u8>,
    /// What was read and not looked at.
    start: usize,
    end: usize,
}

impl<R: Reads, I: Inlet> Receiving<R, I> {
    pub(super) fn new(reads: R, inlet: I) -> Receiving<R, I> {
        let buffer = vec![0; AT_ONCE.max(2 * reads.frame())];
        Receiving { reads, inlet, buffer, start: 0, end: 0 }
    }

    /// Looks at the next message, and reads where it is not there.
    #[inline(always)]
    pub(super) fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            if let Some(frame) = self.reads.read(&mut self.buffer[self.start..self.end], verifier)? {
                self.start += frame;
                return Ok(());
            }
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.start + self.reads.frame() > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.inlet.fill(&mut self.buffer[self.end..])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => self.end += read,
            }
        }
    }
}

impl<R: Reads, I: Inlet> Rx for Receiving<R, I> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read_into(verifier))
    }
}
