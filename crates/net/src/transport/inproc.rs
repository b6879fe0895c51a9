//! Connections within one process: one in-memory pipe for each direction.
//!
//! A pipe is a bounded queue under a lock, which is held while bytes are copied. Each end has a
//! bell, a descriptor that epoll watches like a socket. An end's bell rings when the end may be
//! waiting: data arrived in an empty pipe, or a pipe found full has space again.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice, Read};
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use super::bell::Bell;
use super::{Link, Listener, Listening, Opened, Options, Transport};
use crate::Address;
use crate::address::Place;
use crate::lock::lock;

/// The default capacity of a pipe, in bytes.
const DEFAULT_CAPACITY: usize = 256 << 10;

/// The listeners in this process, by name.
static LISTENERS: Mutex<BTreeMap<Box<str>, Arc<AcceptQueue>>> = Mutex::new(BTreeMap::new());

pub(crate) struct Inproc;

fn name(address: &Address) -> io::Result<&str> {
    match address.place() {
        Place::Name(name) => Ok(name),
        _ => Err(io::Error::new(ErrorKind::InvalidInput, format!("{address} has no name"))),
    }
}

fn refused(why: &str) -> io::Error {
    io::Error::new(ErrorKind::ConnectionRefused, why)
}

impl Transport for Inproc {
    fn connect(&self, address: &Address, options: &Options) -> io::Result<Opened> {
        let name = name(address)?;
        let queue = lock(&LISTENERS)
            .get(name)
            .cloned()
            .ok_or_else(|| refused("nobody in this process listens at this name"))?;
        let (ours, theirs) = pair(options.buffer.or(queue.buffer).unwrap_or(DEFAULT_CAPACITY), name)?;
        queue.push(theirs)?;
        Ok(Opened::Stream(Box::new(ours)))
    }

    fn listen(&self, address: &Address, options: &Options) -> io::Result<Listening> {
        let name: Box<str> = name(address)?.into();
        let queue = Arc::new(AcceptQueue {
            bell: Bell::new()?,
            backlog: options.backlog.max(1) as usize,
            buffer: options.buffer,
            waiting: Mutex::new(Some(VecDeque::new())),
        });
        let mut listeners = lock(&LISTENERS);
        if listeners.contains_key(&name) {
            return Err(io::Error::new(ErrorKind::AddrInUse, "the name is in use in this process"));
        }
        listeners.insert(name.clone(), queue.clone());
        Ok(Listening::Streams(Box::new(InprocListener { queue, name })))
    }
}

/// The queue of connections that wait to be accepted.
struct AcceptQueue {
    bell: Bell,
    backlog: usize,
    /// The pipe capacity that the listener asks for.
    buffer: Option<usize>,
    /// `None` once nobody listens any more.
    waiting: Mutex<Option<VecDeque<End>>>,
}

impl AcceptQueue {
    fn push(&self, end: End) -> io::Result<()> {
        match &mut *lock(&self.waiting) {
            Some(waiting) if waiting.len() < self.backlog => waiting.push_back(end),
            Some(_) => return Err(refused("the listener's backlog is full")),
            None => return Err(refused("nobody in this process listens at this name")),
        }
        self.bell.ring();
        Ok(())
    }
}

struct InprocListener {
    queue: Arc<AcceptQueue>,
    name: Box<str>,
}

impl Listener for InprocListener {
    fn source(&self) -> BorrowedFd<'_> {
        self.queue.bell.source()
    }

    fn accept(&self) -> io::Result<Box<dyn Link>> {
        match lock(&self.queue.waiting).as_mut().and_then(VecDeque::pop_front) {
            Some(end) => Ok(Box::new(end)),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn local(&self) -> Option<Address> {
        named(&self.name)
    }

    fn close(&self) {
        let mut listeners = lock(&LISTENERS);
        if listeners.get(&self.name).is_some_and(|queue| Arc::ptr_eq(queue, &self.queue)) {
            listeners.remove(&self.name);
        }
        drop(listeners);
        // Connections that were not accepted end here.
        drop(lock(&self.queue.waiting).take());
    }
}

impl Drop for InprocListener {
    fn drop(&mut self) {
        self.close();
    }
}

fn named(name: &str) -> Option<Address> {
    format!("inproc://{name}").parse().ok()
}

/// One direction of a connection.
struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// The writer has found it full and waits.
    full: bool,
    /// The writer writes no more.
    ended: bool,
    /// The reader reads no more.
    deserted: bool,
}

impl Pipe {
    fn new(capacity: usize) -> Arc<Mutex<Pipe>> {
        let pipe =
            Pipe { bytes: VecDeque::new(), capacity: capacity.max(1), full: false, ended: false, deserted: false };
        Arc::new(Mutex::new(pipe))
    }
}

/// One end of a connection.
struct End {
    reads: Arc<Mutex<Pipe>>,
    writes: Arc<Mutex<Pipe>>,
    bell: Arc<Bell>,
    /// The other end's bell.
    other: Arc<Bell>,
    /// The listener's name, and whether this end was accepted.
    name: Box<str>,
    accepted: bool,
}

/// Creates both ends of a connection: the connecting one and the accepted one.
fn pair(capacity: usize, name: &str) -> io::Result<(End, End)> {
    let (forward, reply) = (Pipe::new(capacity), Pipe::new(capacity));
    let (ours, theirs) = (Arc::new(Bell::new()?), Arc::new(Bell::new()?));
    let end = |reads: &Arc<_>, writes: &Arc<_>, bell: &Arc<_>, other: &Arc<_>, accepted| End {
        reads: Arc::clone(reads),
        writes: Arc::clone(writes),
        bell: Arc::clone(bell),
        other: Arc::clone(other),
        name: name.into(),
        accepted,
    };
    Ok((end(&reply, &forward, &ours, &theirs, false), end(&forward, &reply, &theirs, &ours, true)))
}

impl Link for End {
    fn source(&self) -> BorrowedFd<'_> {
        self.bell.source()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut pipe = lock(&self.reads);
        if pipe.bytes.is_empty() {
            return if pipe.ended { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        // The bytes may wrap around in the ring buffer.
        let mut read = pipe.bytes.read(buffer)?;
        read += pipe.bytes.read(&mut buffer[read..])?;
        // A waiting writer is woken once half of the pipe is free, and not for each read.
        let has_space = pipe.bytes.len() <= pipe.capacity / 2 && mem::take(&mut pipe.full);
        let was_last = pipe.bytes.is_empty() && pipe.ended;
        drop(pipe);
        if has_space {
            self.other.ring();
        }
        if was_last {
            // The end's edge has been consumed already. Ring again, because a short read is not
            // followed by another read.
            self.bell.ring();
        }
        Ok(read)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = lock(&self.writes);
        if pipe.ended || pipe.deserted {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let space = pipe.capacity - pipe.bytes.len();
        if space == 0 {
            pipe.full = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        let was_empty = pipe.bytes.is_empty();
        let mut left = space;
        for part in parts {
            let part = &part[..part.len().min(left)];
            pipe.bytes.extend(part);
            left -= part.len();
        }
        drop(pipe);
        if was_empty {
            self.other.ring();
        }
        Ok(space - left)
    }

    fn short_read_is_last(&self) -> bool {
        true
    }

    fn finish(&self) -> io::Result<()> {
        if !mem::replace(&mut lock(&self.writes).ended, true) {
            self.other.ring();
        }
        Ok(())
    }

    fn is_deserted(&self) -> bool {
        lock(&self.writes).deserted
    }

    fn peer(&self) -> Option<Address> {
        if self.accepted { None } else { named(&self.name) }
    }

    fn local(&self) -> Option<Address> {
        if self.accepted { named(&self.name) } else { None }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.writes).ended = true;
        let mut reads = lock(&self.reads);
        reads.deserted = true;
        reads.bytes = VecDeque::new();
        drop(reads);
        self.other.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many times a bell has rung since the last call.
    fn rung(bell: &Bell) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(bell.source(), &mut count) {
            Ok(_) => u64::from_ne_bytes(count),
            Err(_) => 0,
        }
    }

    fn write(end: &End, bytes: &[u8]) -> Result<usize, ErrorKind> {
        end.write(&[IoSlice::new(bytes)]).map_err(|error| error.kind())
    }

    fn read(end: &End, capacity: usize) -> Result<Vec<u8>, ErrorKind> {
        let mut buffer = vec![0; capacity];
        let read = end.read(&mut buffer).map_err(|error| error.kind())?;
        buffer.truncate(read);
        Ok(buffer)
    }

    #[test]
    fn a_bell_rings_only_for_an_end_that_may_be_waiting() {
        let (ours, theirs) = pair(100, "name").unwrap();
        for _ in 0..10 {
            assert_eq!(write(&ours, &[7; 10]), Ok(10));
        }
        assert_eq!((rung(&theirs.bell), rung(&ours.bell)), (1, 0));
        assert_eq!(write(&ours, &[7]), Err(ErrorKind::WouldBlock));
        assert_eq!(read(&theirs, 49).unwrap().len(), 49);
        assert_eq!(rung(&ours.bell), 0);
        assert_eq!(read(&theirs, 1).unwrap().len(), 1);
        assert_eq!(rung(&ours.bell), 1);
        assert_eq!(read(&theirs, 100).unwrap().len(), 50);
        assert_eq!(read(&theirs, 100), Err(ErrorKind::WouldBlock));
        assert_eq!((rung(&theirs.bell), rung(&ours.bell)), (0, 0));
    }

    #[test]
    fn bytes_keep_their_order_when_they_wrap_around() {
        let (ours, theirs) = pair(64, "name").unwrap();
        let (mut next, mut expected) = (0_u8, 0_u8);
        for len in (1..=64).cycle().take(1000) {
            let bytes: Vec<u8> = (0..len).map(|i| next.wrapping_add(i)).collect();
            let written = ours.write(&[IoSlice::new(&bytes[..1]), IoSlice::new(&bytes[1..])]).unwrap();
            next = next.wrapping_add(written as u8);
            for byte in read(&theirs, 40).unwrap() {
                assert_eq!(byte, expected);
                expected = expected.wrapping_add(1);
            }
        }
    }

    #[test]
    fn the_end_is_reported_after_all_data() {
        let (ours, theirs) = pair(100, "name").unwrap();
        write(&ours, b"last").unwrap();
        ours.finish().unwrap();
        ours.finish().unwrap();
        assert_eq!(rung(&theirs.bell), 2);
        assert_eq!(write(&ours, b"more"), Err(ErrorKind::BrokenPipe));
        assert_eq!(read(&theirs, 100).unwrap(), b"last");
        // It rings again: a reader whose read was short does not read further.
        assert_eq!(rung(&theirs.bell), 1);
        assert_eq!(read(&theirs, 100).unwrap(), b"");
        assert!(!theirs.is_deserted());
        assert_eq!(write(&theirs, b"answer"), Ok(6));
        drop(ours);
        assert!(theirs.is_deserted());
        assert_eq!(write(&theirs, b"more"), Err(ErrorKind::BrokenPipe));
        assert_eq!(rung(&theirs.bell), 1);
    }
}
