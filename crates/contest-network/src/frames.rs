//! Framed messages on a byte stream, optimised for speed.
//!
//! A message and its frame header are sent with one system call. Messages of a stream are batched,
//! about 64 KiB at a time. One read takes everything that has arrived, up to 256 KiB, and messages
//! are verified in place. If the case allows spinning, a receiver reads without blocking for 50 us
//! before it sleeps.
//!
//! [`FrameWriter`] and [`FrameReader`] define the frame format. A [`FrameSink`] and a
//! [`ByteSource`], such as a [`Socket`], transfer the bytes.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use estafette_contest_common::buffer::Buffer;
use estafette_measure::case::{Case, Load, Pattern, Role};
use estafette_measure::pattern::TURN;
use estafette_measure::spec::Wait;
use estafette_measure::{Ends, Generator, Rx, Tx, Verifier};
use rustix::net::{RecvFlags, SendFlags, getpeername, recv, send, sockopt};

/// How many bytes are sent together, and how many are read at once.
pub(super) const BATCH_BYTES: usize = 64 << 10;
pub(super) const READ_BYTES: usize = 256 << 10;
/// How long a receiver spins before it sleeps.
pub(super) const SPIN: Duration = Duration::from_micros(50);

/// Returns whether the messages of a case may be batched: nobody waits for a single one, and none
/// has a time at which it must be sent. With several connections, a batch belongs to one
/// connection's turn. With several writers, each message is sent immediately.
pub(super) fn batched(case: &Case) -> bool {
    let streams = matches!(case.pattern, Pattern::Stream | Pattern::Duplex | Pattern::FanIn | Pattern::Connections);
    streams && case.load == Load::Saturated
}

/// Returns the highest number of bytes in a batch of frames of `frame` bytes; 0 means no batching.
pub(super) fn max_batch_bytes(case: &Case, frame: usize) -> usize {
    match case.pattern {
        _ if !batched(case) => 0,
        // There may be a thousand connections, so the buffer is limited to one turn.
        Pattern::Connections => BATCH_BYTES.min(TURN as usize * frame),
        _ => BATCH_BYTES,
    }
}

/// Writes messages as frames. All messages of a case have the same length.
pub(super) trait FrameWriter: Send + 'static {
    /// The length of a frame with its message, in bytes.
    fn frame(&self) -> usize;

    /// Writes the frame of the next message. `place` is exactly one frame long.
    fn write(&mut self, place: &mut [u8], source: &mut Generator) -> io::Result<()>;
}

/// Finds messages in frames.
pub(super) trait FrameReader: Send + 'static {
    /// The highest length of a frame with its message, in bytes.
    fn frame(&self) -> usize;

    /// Verifies the first message in `buffered`. Returns the length of its frame, or `None` if it
    /// is incomplete.
    fn read(&mut self, buffered: &mut [u8], verifier: &mut Verifier) -> io::Result<Option<usize>>;
}

/// Consecutive messages without any framing.
#[derive(Clone, Copy)]
pub(super) struct Bare {
    pub(super) len: usize,
}

impl FrameWriter for Bare {
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

impl FrameReader for Bare {
    #[inline(always)]
    fn frame(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn read(&mut self, buffered: &mut [u8], verifier: &mut Verifier) -> io::Result<Option<usize>> {
        Ok(buffered.get(..self.len).map(|message| {
            verifier.bytes(message);
            self.len
        }))
    }
}

/// A destination of whole frames.
pub(super) trait FrameSink: Send + 'static {
    /// Sends all bytes. Blocks until they are accepted.
    fn send(&mut self, frames: &[u8]) -> io::Result<()>;
}

/// A source of bytes.
pub(super) trait ByteSource: Send + 'static {
    /// Waits for bytes. Returns their number, or 0 at the end of the stream.
    fn fill(&mut self, space: &mut [u8]) -> io::Result<usize>;
}

/// A stream socket.
pub(super) struct Socket {
    socket: OwnedFd,
    spins: bool,
}

impl Socket {
    pub(super) fn new(socket: impl Into<OwnedFd>, case: &Case) -> Socket {
        let socket = socket.into();
        avoid_pacing(&socket);
        Socket { socket, spins: case.wait == Wait::Adaptive }
    }

    /// Duplicates the socket's descriptor.
    pub(super) fn another(&self) -> io::Result<Socket> {
        Ok(Socket { socket: self.socket.try_clone()?, spins: self.spins })
    }
}

/// Replaces BBR for a TCP connection within this machine. It paces packets, which is useful between
/// hosts only.
fn avoid_pacing(socket: &OwnedFd) {
    let peer = getpeername(socket).ok().flatten().and_then(|peer| SocketAddr::try_from(peer).ok());
    let is_within = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    if is_within && sockopt::tcp_congestion(socket).is_ok_and(|name| name.starts_with("bbr")) {
        // Paced if it fails.
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

impl FrameSink for Socket {
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

impl ByteSource for Socket {
    #[inline(always)]
    fn fill(&mut self, space: &mut [u8]) -> io::Result<usize> {
        spin_then_block(self.spins, |sleeps| {
            let flags = if sleeps { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            Ok(recv(&self.socket, &mut *space, flags)?.0)
        })
    }
}

/// Receives with a function whose argument says whether it may block. With `spins`, it may not
/// block during the first [`SPIN`].
#[inline(always)]
pub(super) fn spin_then_block<T>(spins: bool, mut receive: impl FnMut(bool) -> io::Result<T>) -> io::Result<T> {
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

/// Creates both ends of a party. The sockets are the one to send to and the one to receive from.
pub(super) fn ends<W: FrameWriter, R: FrameReader>(
    writes: W,
    reads: R,
    sockets: [OwnedFd; 2],
    case: &Case,
    role: Role,
) -> Ends<SendEnd<W, Socket>, RecvEnd<R, Socket>> {
    let [to, from] = sockets.map(|socket| Socket::new(socket, case));
    Ends::both(role, SendEnd::new(writes, to, case), RecvEnd::new(reads, from))
}

/// The sending end.
pub(super) struct SendEnd<W, O> {
    writes: W,
    outlet: O,
    /// Whole frames to be sent, and space for more.
    frames: Buffer,
    filled: usize,
}

impl<W: FrameWriter, O: FrameSink> SendEnd<W, O> {
    /// Creates an end that batches messages if the case allows it.
    pub(super) fn new(writes: W, outlet: O, case: &Case) -> SendEnd<W, O> {
        let most = max_batch_bytes(case, writes.frame());
        SendEnd::with_batch_bytes(writes, outlet, most)
    }

    /// Creates an end that batches up to `most` bytes, but at least one message.
    pub(super) fn with_batch_bytes(writes: W, outlet: O, most: usize) -> SendEnd<W, O> {
        let frames = Buffer::new(most.max(writes.frame()));
        SendEnd { writes, outlet, frames, filled: 0 }
    }

    /// Adds a message. Sends the batch if no other message fits.
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

impl<W: FrameWriter, O: FrameSink> Tx for SendEnd<W, O> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        self.add(source)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()
    }
}

/// The receiving end.
pub(super) struct RecvEnd<R, I> {
    reads: R,
    inlet: I,
    buffer: Vec<u8>,
    /// The bytes that were read but not verified.
    start: usize,
    end: usize,
}

impl<R: FrameReader, I: ByteSource> RecvEnd<R, I> {
    pub(super) fn new(reads: R, inlet: I) -> RecvEnd<R, I> {
        let buffer = vec![0; READ_BYTES.max(2 * reads.frame())];
        RecvEnd { reads, inlet, buffer, start: 0, end: 0 }
    }

    /// Verifies the next message. Reads until it is complete.
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

impl<R: FrameReader, I: ByteSource> Rx for RecvEnd<R, I> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.read_into(verifier)
    }
}
