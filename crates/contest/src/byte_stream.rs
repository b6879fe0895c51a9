//! Ends over a stream of bytes: every message of a case has the same length, so no frame is needed.
//!
//! Their work is a plain function that the driver's loop inlines, with loops where one would write `write_all` and
//! `read_exact`: a return after a system call costs about 9 ns where the kernel guards the processor's predictor of
//! returns, and each call between the loop and the system call adds one.

use std::future::{Future, ready};
use std::io::{self, ErrorKind, Read, Write};

use estafette_measure::{Generator, Rx, Tx, Verifier};

use crate::buffer::Buffer;

/// Writes each message from one buffer, to one stream or to each of several.
#[derive(Debug)]
pub struct Writing<W> {
    streams: Vec<W>,
    buffer: Buffer,
}

impl<W: Write> Writing<W> {
    pub(crate) fn new(stream: W, len: usize) -> Writing<W> {
        Writing::to_each([stream], len)
    }

    pub(crate) fn to_each(streams: impl IntoIterator<Item = W>, len: usize) -> Writing<W> {
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
    fn put(&mut self, next: &mut Generator) -> impl Future<Output = io::Result<()>> + Send {
        next.fill(&mut self.buffer);
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
    pub(crate) fn new(stream: R, len: usize) -> Reading<R> {
        Reading { stream, buffer: Buffer::new(len) }
    }

    /// Reads one message.
    #[inline(always)]
    pub(crate) fn read_into(&mut self, seen: &mut Verifier) -> io::Result<()> {
        let mut rest = &mut self.buffer[..];
        while !rest.is_empty() {
            match self.stream.read(rest) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        seen.bytes(&self.buffer);
        Ok(())
    }
}

impl<R: Read + Send + 'static> Rx for Reading<R> {
    #[inline(always)]
    fn get(&mut self, seen: &mut Verifier) -> impl Future<Output = io::Result<()>> + Send {
        ready(self.read_into(seen))
    }
}
