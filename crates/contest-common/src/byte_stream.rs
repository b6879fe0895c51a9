//! Sending and receiving ends over a byte stream. All messages of a case have the same length, so
//! they need no framing.
//!
//! The ends avoid function calls between the driver's loop and the system call. Where the kernel
//! protects the return-address predictor, a return after a system call costs about 9 ns. Each call
//! in between adds one such return. Therefore:
//!
//! - the ends do their work in plain functions, which the compiler inlines into the driver's loop;
//! - they loop themselves instead of calling `write_all` and `read_exact`;
//! - [`PipeEnd`] and [`SocketEnd`] replace `read` and `write` of the standard library, which are
//!   not inlined.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use estafette_measure::{Generator, Rx, Tx, Verifier};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::buffer::Buffer;

/// One end of a pipe. Its `read` and `write` are inlined down to the system call.
#[derive(Debug)]
pub struct PipeEnd(OwnedFd);

impl PipeEnd {
    /// Wraps one end of a pipe.
    pub fn new(end: impl Into<OwnedFd>) -> PipeEnd {
        PipeEnd(end.into())
    }
}

impl Read for PipeEnd {
    #[inline(always)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.0, buffer)?)
    }
}

impl Write for PipeEnd {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.0, bytes)?)
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream socket, inlined like [`PipeEnd`]. It uses `send` and `recv`, which are about 70 ns
/// faster on a socket than `write` and `read`.
#[derive(Debug)]
pub struct SocketEnd(OwnedFd);

impl SocketEnd {
    /// Wraps a connected stream socket and duplicates its descriptor. Returns one end for each
    /// direction.
    ///
    /// # Errors
    ///
    /// If the process has no free file descriptor.
    pub fn both(socket: impl Into<OwnedFd>) -> io::Result<(SocketEnd, SocketEnd)> {
        let socket = socket.into();
        Ok((SocketEnd(socket.try_clone()?), SocketEnd(socket)))
    }

    /// Wraps a connected stream socket.
    pub fn new(socket: impl Into<OwnedFd>) -> SocketEnd {
        SocketEnd(socket.into())
    }
}

impl AsFd for SocketEnd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Read for SocketEnd {
    #[inline(always)]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, buffer, RecvFlags::empty())?.0)
    }
}

impl Write for SocketEnd {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sending end: writes each message from one buffer to one or more streams.
#[derive(Debug)]
pub struct Writing<W> {
    streams: Vec<W>,
    buffer: Buffer,
}

impl<W: Write> Writing<W> {
    /// Creates a sender of messages of `len` bytes to one stream.
    pub fn new(stream: W, len: usize) -> Writing<W> {
        Writing::to_each([stream], len)
    }

    /// Creates a sender that writes each message of `len` bytes to all streams, one after the
    /// other.
    pub fn to_each(streams: impl IntoIterator<Item = W>, len: usize) -> Writing<W> {
        Writing { streams: streams.into_iter().collect(), buffer: Buffer::new(len) }
    }

    #[inline(always)]
    fn write(&mut self) -> io::Result<()> {
        for stream in &mut self.streams {
            let mut rest = &self.buffer[..];
            while !rest.is_empty() {
                match stream.write(rest) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(written) => rest = &rest[written..],
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl<W: Write + Send + 'static> Tx for Writing<W> {
    #[inline(always)]
    fn send(&mut self, source: &mut Generator) -> io::Result<()> {
        source.fill(&mut self.buffer);
        self.write()
    }
}

/// A receiving end: reads each message into one buffer.
#[derive(Debug)]
pub struct Reading<R> {
    stream: R,
    buffer: Buffer,
}

impl<R: Read> Reading<R> {
    /// Creates a receiver of messages of `len` bytes.
    pub fn new(stream: R, len: usize) -> Reading<R> {
        Reading { stream, buffer: Buffer::new(len) }
    }

    /// Reads one message. Blocks until it is complete.
    ///
    /// # Errors
    ///
    /// If the stream has ended or a read fails.
    #[inline(always)]
    pub fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        let mut rest = &mut self.buffer[..];
        while !rest.is_empty() {
            match self.stream.read(rest) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        verifier.bytes(&self.buffer);
        Ok(())
    }
}

impl<R: Read + Send + 'static> Rx for Reading<R> {
    #[inline(always)]
    fn recv(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        self.read_into(verifier)
    }
}
