//! Ends over a stream of bytes: every message of a case has the same length, so no frame is needed.
//!
//! Their work is a plain function that the driver's loop inlines, with loops where one would write `write_all` and
//! `read_exact`: a return after a system call costs about 9 ns where the kernel guards the processor's predictor of
//! returns, and each call between the loop and the system call adds one. So do `read` and `write` of the standard library,
//! which are not inlined: [`PipeEnd`] and [`SocketEnd`] are here for that.

use std::future::{Future, ready};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use estafette_measure::{Generator, Rx, Tx, Verifier};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::buffer::Buffer;

/// An end of a pipe, read from and written to without a function in between.
#[derive(Debug)]
pub struct PipeEnd(OwnedFd);

impl PipeEnd {
    /// Takes an end of a pipe.
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

/// A stream socket, as [`PipeEnd`]; by `send` and `recv`, which are some 70 ns shorter on a socket than `write` and `read`.
#[derive(Debug)]
pub struct SocketEnd(OwnedFd);

impl SocketEnd {
    /// Takes a connected stream socket. Returns an end for each direction.
    ///
    /// # Errors
    ///
    /// If no descriptor is left.
    pub fn both(socket: impl Into<OwnedFd>) -> io::Result<(SocketEnd, SocketEnd)> {
        let socket = socket.into();
        Ok((SocketEnd(socket.try_clone()?), SocketEnd(socket)))
    }

    /// Takes a connected stream socket.
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

/// Writes each message from one buffer, to one stream or to each of several.
#[derive(Debug)]
pub struct Writing<W> {
    streams: Vec<W>,
    buffer: Buffer,
}

impl<W: Write> Writing<W> {
    /// Writes messages of so many bytes to one stream.
    pub fn new(stream: W, len: usize) -> Writing<W> {
        Writing::to_each([stream], len)
    }

    /// Writes each message of so many bytes to all of these.
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
    fn send(&mut self, source: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        source.fill(&mut self.buffer);
        ready(self.write())
    }
}

/// Reads each message into one buffer.
#[derive(Debug)]
pub struct Reading<R> {
    stream: R,
    buffer: Buffer,
}

impl<R: Read> Reading<R> {
    /// Reads messages of so many bytes.
    pub fn new(stream: R, len: usize) -> Reading<R> {
        Reading { stream, buffer: Buffer::new(len) }
    }

    /// Reads one message.
    ///
    /// # Errors
    ///
    /// If the stream has ended, or cannot be read.
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
    fn recv(&mut self, verifier: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read_into(verifier))
    }
}
