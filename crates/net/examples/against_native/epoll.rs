//! The least that a program with epoll does: it writes blocking, waits for readability, and reads
//! without blocking. The time above that of the native ends is the cost of epoll itself.

use std::io::ErrorKind;
use std::net::{TcpStream, UdpSocket};
use std::ops::{ControlFlow, Range};
use std::os::fd::{AsFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::net::{RecvFlags, recv};

use crate::contender::{Link, Side};
use crate::native::{check_length, tcp, udp, write_message};
use crate::{BUFFER, Result, Task, Wire};

/// An epoll instance with both ends of a thread.
struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    /// Whether the next read may find something without a wait.
    reads_first: bool,
}

impl Poll {
    /// A thread that sends to itself reads before it waits.
    fn new(task: Task, ends: [&dyn AsFd; 2]) -> Result<Poll> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (end, number) in ends.into_iter().zip(0..) {
            epoll::add(&epoll, end.as_fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        }
        Ok(Poll { epoll, events: Vec::with_capacity(16), reads_first: task == Task::OneThread })
    }

    /// Reads what is there, and waits for it if there is nothing. Returns how many bytes.
    fn read(&mut self, from: impl AsFd, buffer: &mut [u8]) -> Result<usize> {
        if !self.reads_first {
            self.wait()?;
        }
        loop {
            match recv(&from, &mut *buffer, RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                received => return Ok(received?.0),
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), None)?;
        Ok(())
    }
}

/// A TCP connection.
pub(crate) struct PolledStream {
    to: TcpStream,
    from: TcpStream,
    framed: bool,
    len: usize,
    poll: Poll,
    buffer: Vec<u8>,
    /// What was read of it and not passed on.
    unread: Range<usize>,
}

impl PolledStream {
    pub(crate) fn open(wire: Wire, task: Task, side: Side) -> Result<PolledStream> {
        let [to, from] = tcp(side)?;
        let poll = Poll::new(task, [&to, &from])?;
        let (framed, len) = (wire == Wire::Framed, task.len());
        Ok(PolledStream { to, from, framed, len, poll, buffer: vec![0; 4 * BUFFER], unread: 0..0 })
    }

    /// The next complete message in the buffer.
    fn next(&mut self) -> Result<Option<Range<usize>>> {
        let head = if self.framed { 4 } else { 0 };
        if self.unread.len() < head + self.len {
            return Ok(None);
        }
        let start = self.unread.start;
        if let Some(header) = self.buffer[start..][..head].first_chunk() {
            check_length(*header, self.len)?;
        }
        self.unread.start += head + self.len;
        Ok(Some(start + head..start + head + self.len))
    }
}

impl Link for PolledStream {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        write_message(&mut self.to, self.framed, message)
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            while let Some(message) = self.next()? {
                if look(&self.buffer[message]).is_break() {
                    return Ok(());
                }
            }
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
            let read = self.poll.read(&self.from, &mut self.buffer[self.unread.end..])?;
            if read == 0 {
                return Err("the connection ended".into());
            }
            self.unread.end += read;
        }
    }
}

/// Connected UDP sockets.
pub(crate) struct PolledUdp {
    to: UdpSocket,
    from: UdpSocket,
    poll: Poll,
    buffer: Vec<u8>,
}

impl PolledUdp {
    pub(crate) fn open(task: Task, side: Side) -> Result<PolledUdp> {
        let [to, from] = udp(side)?;
        let mut poll = Poll::new(task, [&to, &from])?;
        // In a stream more datagrams wait. A round trip has one.
        poll.reads_first |= matches!(task, Task::Stream(_));
        Ok(PolledUdp { to, from, poll, buffer: vec![0; BUFFER] })
    }
}

impl Link for PolledUdp {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.to.send(message)?;
        Ok(())
    }

    fn recv(&mut self, mut look: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        loop {
            let len = self.poll.read(&self.from, &mut self.buffer)?;
            if look(&self.buffer[..len]).is_break() {
                return Ok(());
            }
        }
    }
}
