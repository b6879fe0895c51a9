//! One thread that reads many connections, optimised for speed.
//!
//! Edge-triggered epoll reports which connections are readable. One read takes everything that has
//! arrived, up to 256 KiB, into a buffer that all connections share. Messages are verified in
//! place. Only an incomplete message at the end of the buffer is copied aside until its connection
//! is read again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use estafette_measure::Verifier;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::frames::{FrameReader, READ_BYTES, spin_then_block};

/// The number of events that one `epoll_wait` returns at most.
const EVENTS: usize = 256;

/// The receiving end of many connections.
pub(super) struct EpollRecvEnd<R> {
    reads: R,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// The number of connections that have not ended.
    open_count: usize,
    /// The connections that may be readable.
    ready: VecDeque<usize>,
    /// Connections with more data than was read. They wait until the others had their turn.
    partly_read: VecDeque<usize>,
    /// The connection whose bytes are in the buffer.
    buffered_connection: usize,
    buffer: Vec<u8>,
    /// The bytes that were read but not verified.
    start: usize,
    end: usize,
    spins: bool,
}

struct Connection {
    /// `None` after the connection has ended.
    socket: Option<OwnedFd>,
    /// The received part of an incomplete message, while other connections are read.
    partial: Vec<u8>,
    /// Whether the peer has closed its sending direction. The end of the stream must then be read,
    /// because epoll reports no further edge.
    peer_closed: bool,
}

impl<R: FrameReader> EpollRecvEnd<R> {
    /// Reads from these sockets. With `spins`, it polls for some time before it sleeps.
    pub(super) fn new(reads: R, sockets: Vec<OwnedFd>, spins: bool) -> Result<EpollRecvEnd<R>> {
        let capacity = READ_BYTES.max(2 * reads.frame());
        EpollRecvEnd::with_buffer_bytes(reads, sockets, spins, capacity)
    }

    /// Creates a receiver with a buffer of `capacity` bytes, which must hold a frame.
    fn with_buffer_bytes(reads: R, sockets: Vec<OwnedFd>, spins: bool, capacity: usize) -> Result<EpollRecvEnd<R>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll instance")?;
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for (at, socket) in sockets.iter().enumerate() {
            epoll::add(&epoll, socket, epoll::EventData::new_u64(at as u64), events)
                .context("adding a socket to epoll")?;
        }
        let connection = |socket| Connection { socket: Some(socket), partial: Vec::new(), peer_closed: false };
        Ok(EpollRecvEnd {
            reads,
            epoll,
            open_count: sockets.len(),
            connections: sockets.into_iter().map(connection).collect(),
            ready: VecDeque::with_capacity(EVENTS),
            partly_read: VecDeque::new(),
            buffered_connection: 0,
            buffer: vec![0; capacity],
            start: 0,
            end: 0,
            spins,
        })
    }

    /// Verifies the next message. Reads until it is complete.
    #[inline(always)]
    pub(super) fn read_into(&mut self, verifier: &mut Verifier) -> io::Result<()> {
        loop {
            if let Some(frame) = self.reads.read(&mut self.buffer[self.start..self.end], verifier)? {
                self.start += frame;
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Reads once from the next connection that may be readable.
    fn fill(&mut self) -> io::Result<()> {
        let Some(next) = self.ready.pop_front() else { return self.wait() };
        self.switch_to(next);
        let connection = &mut self.connections[next];
        let Some(socket) = &connection.socket else { return Ok(()) };
        match recv(socket, &mut self.buffer[self.end..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                connection.socket = None;
                self.open_count -= 1;
                // A connection that has sent its last message ends; the others continue.
                let whole = self.start == self.end && self.open_count > 0;
                return if whole { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
            Ok((read, _)) => {
                self.end += read;
                if self.end == self.buffer.len() || connection.peer_closed {
                    self.partly_read.push_back(next);
                }
            }
            Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => self.ready.push_front(next),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Switches the buffer to a connection: moves its incomplete message to the beginning.
    fn switch_to(&mut self, next: usize) {
        if next == self.buffered_connection {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            return;
        }
        self.connections[self.buffered_connection].partial.extend_from_slice(&self.buffer[self.start..self.end]);
        let partial = &mut self.connections[next].partial;
        self.buffer[..partial.len()].copy_from_slice(partial);
        (self.start, self.end) = (0, partial.len());
        partial.clear();
        self.buffered_connection = next;
    }

    /// Waits for readable connections. If some are already known, only checks for more.
    fn wait(&mut self) -> io::Result<()> {
        self.ready.append(&mut self.partly_read);
        let has_ready = !self.ready.is_empty();
        spin_then_block(self.spins && !has_ready, |sleeps| {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
            let timeout = if sleeps && !has_ready { None } else { Some(&timeout) };
            let mut events = [MaybeUninit::uninit(); EVENTS];
            let (events, _) = epoll::wait(&self.epoll, &mut events, timeout)?;
            for event in &*events {
                let at = event.data.u64() as usize;
                let flags = event.flags;
                self.connections[at].peer_closed |= flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP);
                self.ready.push_back(at);
            }
            if self.ready.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use estafette_measure::Generator;

    use super::super::framed_tuned::Lengths;
    use super::super::frames::FrameWriter;
    use super::*;

    const LEN: usize = 1000;
    const LENGTHS: Lengths = Lengths { len: LEN };
    const FRAME: usize = LEN + 4;

    fn merging(connections: usize, spins: bool, capacity: usize) -> (Vec<UnixStream>, EpollRecvEnd<Lengths>) {
        let (theirs, ours): (Vec<_>, Vec<_>) = (0..connections).map(|_| UnixStream::pair().unwrap()).unzip();
        let ours = ours.into_iter().map(OwnedFd::from).collect();
        (theirs, EpollRecvEnd::with_buffer_bytes(LENGTHS, ours, spins, capacity).unwrap())
    }

    /// Returns the first frames of a producer's stream.
    fn frames(producer: usize, count: usize) -> Vec<u8> {
        let mut next = Generator::new(1, producer, LEN);
        let mut frames = vec![0; count * FRAME];
        frames.chunks_mut(FRAME).for_each(|frame| FrameWriter::write(&mut { LENGTHS }, frame, &mut next).unwrap());
        frames
    }

    #[test]
    fn messages_are_complete_although_connections_deliver_pieces() {
        const PIECES: [usize; 5] = [1, 3, 700, 2500, 10];
        // With a buffer of one and a half frames, most reads fill it.
        for (spins, capacity) in [(false, READ_BYTES), (true, READ_BYTES), (false, LEN + LEN / 2)] {
            let (mut theirs, mut merging) = merging(3, spins, capacity);
            let streams: Vec<Vec<u8>> = (0..3).map(|producer| frames(producer, 50)).collect();
            let mut verifier = Verifier::new(1, 3, LEN);
            let mut written = [0; 3];
            for step in 0.. {
                let at = step % 3;
                let piece = PIECES[step % PIECES.len()].min(streams[at].len() - written[at]);
                theirs[at].write_all(&streams[at][written[at]..][..piece]).unwrap();
                written[at] += piece;
                let whole: usize = written.iter().map(|written| written / FRAME).sum();
                while verifier.received() < whole as u64 {
                    merging.read_into(&mut verifier).unwrap();
                }
                if whole == 150 {
                    break;
                }
            }
            assert!(verifier.finish().1.is_empty());
        }
    }

    #[test]
    fn a_closed_connection_does_not_end_the_others_but_the_last_one_is_the_end() {
        let (mut theirs, mut merging) = merging(2, false, READ_BYTES);
        let mut verifier = Verifier::new(1, 2, LEN);
        let mut first = theirs.remove(0);
        first.write_all(&frames(0, 2)).unwrap();
        drop(first);
        (0..2).for_each(|_| merging.read_into(&mut verifier).unwrap());
        theirs[0].write_all(&frames(1, 1)).unwrap();
        merging.read_into(&mut verifier).unwrap();
        theirs.clear();
        let error = merging.read_into(&mut verifier).unwrap_err();
        assert_eq!((error.kind(), verifier.received()), (ErrorKind::UnexpectedEof, 3));
    }

    #[test]
    fn a_truncated_message_is_an_error() {
        let (mut theirs, mut merging) = merging(2, false, READ_BYTES);
        theirs[0].write_all(&frames(0, 1)[..LEN]).unwrap();
        drop(theirs.remove(0));
        let error = merging.read_into(&mut Verifier::new(1, 2, LEN)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
