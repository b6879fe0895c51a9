//! Many connections that one thread reads, as fast as that can be written: epoll, edge by edge, tells which have something; one
//! read takes whatever has come, up to 256 KiB, into memory that all of them share, and messages are looked at where they lie.
//! Only what is left of a message at the end of it is put aside until its connection is read again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use estafette_measure::Verifier;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::frames::{AT_ONCE, Reads, spinning};

/// How many connections one wait tells of.
const EVENTS: usize = 256;

/// The receiving end of many connections.
pub(super) struct Merging<R> {
    reads: R,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// How many of them have not ended.
    left: usize,
    /// Those that may have something.
    ready: VecDeque<usize>,
    /// Those that had more than was read, and wait for the others' turn.
    again: VecDeque<usize>,
    /// Whose bytes lie in the buffer.
    current: usize,
    buffer: Vec<u8>,
    /// What was read and not looked at.
    start: usize,
    end: usize,
    spins: bool,
}

struct Connection {
    /// None once it has ended.
    socket: Option<OwnedFd>,
    /// What came of a message, while others are read.
    rest: Vec<u8>,
    /// Whether the peer sends no more: the end has to be read, as nothing will tell of it again.
    ends: bool,
}

impl<R: Reads> Merging<R> {
    /// Of these sockets, looked at for some time before it sleeps where it `spins`.
    pub(super) fn new(reads: R, sockets: Vec<OwnedFd>, spins: bool) -> Result<Merging<R>> {
        let capacity = AT_ONCE.max(2 * reads.frame());
        Merging::with_room(reads, sockets, spins, capacity)
    }

    /// Reads up to so many bytes at once, which hold a frame at the least.
    fn with_room(reads: R, sockets: Vec<OwnedFd>, spins: bool, capacity: usize) -> Result<Merging<R>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll instance")?;
        let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        for (at, socket) in sockets.iter().enumerate() {
            epoll::add(&epoll, socket, epoll::EventData::new_u64(at as u64), events)
                .context("adding a socket to epoll")?;
        }
        let connection = |socket| Connection { socket: Some(socket), rest: Vec::new(), ends: false };
        Ok(Merging {
            reads,
            epoll,
            left: sockets.len(),
            connections: sockets.into_iter().map(connection).collect(),
            ready: VecDeque::with_capacity(EVENTS),
            again: VecDeque::new(),
            current: 0,
            buffer: vec![0; capacity],
            start: 0,
            end: 0,
            spins,
        })
    }

    /// Looks at the next message, and reads where none is there.
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

    /// Reads once from the next connection that may have something.
    fn fill(&mut self) -> io::Result<()> {
        let Some(next) = self.ready.pop_front() else { return self.wait() };
        self.turn_to(next);
        let connection = &mut self.connections[next];
        let Some(socket) = &connection.socket else { return Ok(()) };
        match recv(socket, &mut self.buffer[self.end..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                connection.socket = None;
                self.left -= 1;
                // One that has sent its last goes, and others go on.
                let whole = self.start == self.end && self.left > 0;
                return if whole { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) };
            }
            Ok((read, _)) => {
                self.end += read;
                if self.end == self.buffer.len() || connection.ends {
                    self.again.push_back(next);
                }
            }
            Err(Errno::AGAIN) => {}
            Err(Errno::INTR) => self.ready.push_front(next),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Makes room in the buffer behind what has come of a connection's message.
    fn turn_to(&mut self, next: usize) {
        if next == self.current {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            return;
        }
        self.connections[self.current].rest.extend_from_slice(&self.buffer[self.start..self.end]);
        let rest = &mut self.connections[next].rest;
        self.buffer[..rest.len()].copy_from_slice(rest);
        (self.start, self.end) = (0, rest.len());
        rest.clear();
        self.current = next;
    }

    /// Waits for connections that have something; where some are known, looks for others.
    fn wait(&mut self) -> io::Result<()> {
        self.ready.append(&mut self.again);
        let knows = !self.ready.is_empty();
        spinning(self.spins && !knows, |sleeps| {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
            let timeout = if sleeps && !knows { None } else { Some(&timeout) };
            let mut events = [MaybeUninit::uninit(); EVENTS];
            let (events, _) = epoll::wait(&self.epoll, &mut events, timeout)?;
            for event in &*events {
                let at = event.data.u64() as usize;
                let flags = event.flags;
                self.connections[at].ends |= flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP);
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
    use super::super::frames::Writes;
    use super::*;

    const LEN: usize = 1000;
    const LENGTHS: Lengths = Lengths { len: LEN };
    const FRAME: usize = LEN + 4;

    fn merging(connections: usize, spins: bool, capacity: usize) -> (Vec<UnixStream>, Merging<Lengths>) {
        let (theirs, ours): (Vec<_>, Vec<_>) = (0..connections).map(|_| UnixStream::pair().unwrap()).unzip();
        let ours = ours.into_iter().map(OwnedFd::from).collect();
        (theirs, Merging::with_room(LENGTHS, ours, spins, capacity).unwrap())
    }

    /// The first frames of a producer's stream.
    fn frames(producer: usize, count: usize) -> Vec<u8> {
        let mut next = Generator::new(1, producer, LEN);
        let mut frames = vec![0; count * FRAME];
        frames.chunks_mut(FRAME).for_each(|frame| Writes::write(&mut { LENGTHS }, frame, &mut next).unwrap());
        frames
    }

    #[test]
    fn messages_come_whole_from_connections_that_bring_them_in_pieces() {
        const PIECES: [usize; 5] = [1, 3, 700, 2500, 10];
        // With room for one frame and a half, most of what comes fills it.
        for (spins, capacity) in [(false, AT_ONCE), (true, AT_ONCE), (false, LEN + LEN / 2)] {
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
            assert!(verifier.finish().1.none());
        }
    }

    #[test]
    fn a_connection_that_ends_leaves_the_others_and_the_last_one_ends_it_all() {
        let (mut theirs, mut merging) = merging(2, false, AT_ONCE);
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
    fn a_message_that_is_cut_off_is_an_error() {
        let (mut theirs, mut merging) = merging(2, false, AT_ONCE);
        theirs[0].write_all(&frames(0, 1)[..LEN]).unwrap();
        drop(theirs.remove(0));
        let error = merging.read_into(&mut Verifier::new(1, 2, LEN)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
