//! Ends over a stream of bytes: every message of a case has the same length, so no frame is needed.

use std::io::{self, Read, Write};

use estafette_measure::{Generator, Rx, Tx, Verifier};

/// Writes each message from one buffer.
#[derive(Debug)]
pub struct Writing<W> {
    stream: W,
    buffer: Vec<u8>,
}

impl<W: Write> Writing<W> {
    pub(crate) fn new(stream: W, len: usize) -> Writing<W> {
        Writing { stream, buffer: vec![0; len] }
    }
}

impl<W: Write + Send + 'static> Tx for Writing<W> {
    async fn put(&mut self, next: &mut Generator) -> io::Result<()> {
        next.fill(&mut self.buffer);
        self.stream.write_all(&self.buffer)
    }
}

/// Reads each message into one buffer.
#[derive(Debug)]
pub struct Reading<R> {
    stream: R,
    buffer: Vec<u8>,
}

impl<R: Read> Reading<R> {
    pub(crate) fn new(stream: R, len: usize) -> Reading<R> {
        Reading { stream, buffer: vec![0; len] }
    }
}

impl<R: Read + Send + 'static> Rx for Reading<R> {
    async fn get(&mut self, seen: &mut Verifier) -> io::Result<()> {
        self.stream.read_exact(&mut self.buffer)?;
        seen.bytes(&self.buffer);
        Ok(())
    }
}
