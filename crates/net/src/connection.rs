//! The sending half of a connection, which any thread may use.
//!
//! A message is written at once, under a lock that is held for as long as one system call takes. What the system has no room
//! for waits in a queue; the node's thread writes it when the system says that there is room. While anything waits,
//! everything else is put behind it, so that frames never interleave and messages keep their order. Messages of several threads
//! at the same time leave together: see [`crate::line`].

mod ending;
mod several;

use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::Room;
use crate::codec::websocket::mask::{self, Keys};
use crate::codec::websocket::{self, Opcode, Side};
use crate::codec::{Framing, Header, Kind, MOST_HEADER, length};
use crate::event::Outcome;
use crate::frames::Frames;
use crate::limits::Limits;
use crate::line::Line;
use crate::queue::Queue;
use crate::transport::Link;

use self::ending::refuse;

/// A message of at most so many bytes is copied behind its header.
const SMALL: usize = 256;

/// What all connections of a node hold together, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) queued: AtomicUsize,
    pub(crate) unfinished: AtomicUsize,
    /// Memory for what threads leave to each other, while none does: see [`crate::line`].
    spare: Mutex<Vec<u8>>,
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Messages wait for the handshake to end.
    Opening,
    Open,
    /// What waits is written, and no more is taken; what the peer sends is still read.
    Finishing,
    /// What waits is written, and no more is taken.
    Closing,
    Closed,
    /// Another connection took the place of this one, which did not come about or was lost.
    Moved,
}

struct Outgoing {
    phase: Phase,
    /// What is to be written, frames and parts of frames.
    queue: Queue,
    /// Whole frames that wait for the handshake.
    early: Queue,
    /// Whole frames that were left to a thread that will have the lock: there are none unless one is in line.
    left: Vec<u8>,
    /// Whether a send was told that something waits, so that the end of it is told too.
    owes_drained: bool,
    /// No more is taken, though it has not come about yet: it will be closed, or finished, as soon as it has.
    ends: bool,
    /// Another will take its place if it is lost.
    returns: bool,
    /// How much of what was taken could not be written.
    unwritten: usize,
    /// Of a WebSocket's client.
    keys: Option<Keys>,
    /// Where epoll tells of room on request.
    room: Option<Asking>,
}

/// How epoll is asked to tell of room.
struct Asking {
    room: Room,
    asked: bool,
    /// It goes on to tell once it was asked.
    stays: bool,
}

impl Outgoing {
    /// What the next frame is masked with, if it is.
    fn next_key(&mut self) -> io::Result<Option<[u8; 4]>> {
        self.keys.as_mut().map(Keys::next).transpose()
    }
}

/// The sending half of a connection.
pub(crate) struct Connection {
    pub(crate) link: Box<dyn Link>,
    /// Whether it goes on when the peer sends no more.
    pub(crate) half_open: bool,
    framing: Framing,
    most_message: usize,
    most_queue: usize,
    most_queues: usize,
    holdings: Arc<Holdings>,
    /// The threads that are about to send.
    line: Line,
    outgoing: Mutex<Outgoing>,
}

/// What came of writing what waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Something still waits.
    Waiting,
    /// Nothing waits. `told` says that somebody waits to hear that.
    Empty { told: bool },
    /// Nothing waits, and nothing more will come.
    Finished,
}

impl Connection {
    pub(crate) fn new(
        link: Box<dyn Link>,
        framing: Framing,
        half_open: bool,
        limits: &Limits,
        holdings: Arc<Holdings>,
    ) -> Connection {
        let keys = (framing == Framing::WebSocket(Side::Client)).then(Keys::new);
        let outgoing = Outgoing {
            phase: Phase::Opening,
            queue: Queue::default(),
            early: Queue::default(),
            left: Vec::new(),
            owes_drained: false,
            ends: false,
            returns: false,
            unwritten: 0,
            keys,
            room: None,
        };
        Connection {
            link,
            half_open,
            framing,
            most_message: match framing {
                Framing::Raw => usize::MAX,
                Framing::Length => limits.message.min(u32::MAX as usize),
                Framing::WebSocket(_) => limits.message,
            },
            most_queue: limits.queue,
            most_queues: limits.queues,
            holdings,
            line: Line::new(),
            outgoing: Mutex::new(outgoing),
        }
    }

    /// Epoll tells of room where it is asked to, and only there; whether it has been, and whether it goes on then.
    pub(crate) fn asks_for(&self, room: Room, asked: bool, stays: bool) {
        self.lock().room = Some(Asking { room, asked, stays });
    }

    /// Has epoll tell of room, or not any more, where it does so on request.
    fn ask(&self, out: &mut Outgoing, wanted: bool) -> io::Result<()> {
        match &mut out.room {
            Some(Asking { room, asked, stays }) if *asked != wanted && (wanted || !*stays) => {
                *asked = wanted;
                room.ask(self.link.source(), wanted)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        // Nothing that runs under the lock leaves it half done if it panics.
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message; `None` where another connection has taken the place of this one.
    ///
    /// # Errors
    ///
    /// What the system said: the connection is to be closed.
    #[inline]
    pub(crate) fn send(&self, kind: Kind, payload: &[u8]) -> io::Result<Option<Outcome>> {
        if payload.len() > self.most_message {
            return Ok(Some(Outcome::TooLarge));
        }
        self.line.join();
        let mut out = self.lock();
        let others = self.line.leave();
        let sent = if others || !out.left.is_empty() {
            self.send_in_line(&mut out, kind, payload, others)
        } else {
            self.send_alone(&mut out, kind, payload)
        };
        self.or_broken(&mut out, sent)
    }

    #[inline]
    fn send_alone(&self, out: &mut Outgoing, kind: Kind, payload: &[u8]) -> io::Result<Option<Outcome>> {
        let outcome = match out.phase {
            Phase::Open if out.ends => Outcome::Closed,
            Phase::Open if out.queue.is_empty() && !self.masks() => {
                let header = self.header(kind, payload.len(), None);
                self.write_through(out, header, payload)?
            }
            Phase::Open => self.put_behind(out, kind, payload)?,
            Phase::Opening if !out.ends => self.put_behind(out, kind, payload)?,
            Phase::Opening | Phase::Finishing => Outcome::Closed,
            Phase::Closing | Phase::Closed => refuse(out),
            Phase::Moved => return Ok(None),
        };
        Ok(Some(outcome))
    }

    /// Whether what is sent is masked.
    fn masks(&self) -> bool {
        self.framing == Framing::WebSocket(Side::Client)
    }

    /// What collects messages that are sent by [`Connection::send_frames`].
    pub(crate) fn frames(&self) -> Frames {
        Frames::of(self.framing, self.most_message)
    }

    /// Sends whole frames, all or none of them; `None` as of [`Connection::send`].
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn send_frames(&self, frames: &[u8]) -> io::Result<Option<Outcome>> {
        let mut out = self.lock();
        let left = self.write_left(&mut out);
        self.or_broken(&mut out, left)?;
        match out.phase {
            Phase::Open if out.queue.is_empty() && !out.ends => {
                let outcome = self.write_through(&mut out, Header::NONE, frames);
                self.or_broken(&mut out, outcome).map(Some)
            }
            Phase::Open | Phase::Opening if out.ends => Ok(Some(Outcome::Closed)),
            Phase::Open | Phase::Opening => {
                if !self.has_room(&mut out, frames.len()) {
                    return Ok(Some(Outcome::Full));
                }
                let queue = if out.phase == Phase::Opening { &mut out.early } else { &mut out.queue };
                queue.push(frames);
                self.holdings.queued.fetch_add(frames.len(), Ordering::Relaxed);
                out.owes_drained = true;
                Ok(Some(Outcome::Queued))
            }
            Phase::Finishing => Ok(Some(Outcome::Closed)),
            Phase::Closing | Phase::Closed => Ok(Some(refuse(&mut out))),
            Phase::Moved => Ok(None),
        }
    }

    /// After an error nothing more is written: half a frame may have been.
    fn or_broken<T>(&self, out: &mut Outgoing, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.shut(out);
            // Where another takes its place, the sender is told of that one.
            out.owes_drained |= out.returns;
        }
        result
    }

    /// Whether so many bytes may be added to what waits. If not, the end of that is told.
    fn has_room(&self, out: &mut Outgoing, len: usize) -> bool {
        let waits = if out.phase == Phase::Opening { out.early.len() } else { out.queue.len() };
        let all = self.holdings.queued.load(Ordering::Relaxed);
        let over = |waits: usize, most: usize| waits > 0 && waits.saturating_add(len) > most;
        // Where nothing waits, the end of that cannot be told, and most of it may leave at once.
        let may_wait = waits > 0 || out.phase == Phase::Opening;
        let full = over(waits, self.most_queue) || (may_wait && over(all, self.most_queues));
        out.owes_drained |= full;
        !full
    }

    fn header(&self, kind: Kind, len: usize, key: Option<[u8; 4]>) -> Header {
        match self.framing {
            Framing::Raw => Header::NONE,
            Framing::Length => length::header(len as u32),
            Framing::WebSocket(_) => websocket::header(Opcode::from(kind), len, key),
        }
    }

    /// Writes a frame where nothing waits, and keeps what there is no room for.
    fn write_through(&self, out: &mut Outgoing, header: Header, payload: &[u8]) -> io::Result<Outcome> {
        let (mut head, mut rest) = (header.bytes(), payload);
        // To copy a little takes less than to tell the system of two places.
        let mut small;
        if !head.is_empty() && rest.len() <= SMALL {
            small = [0; MOST_HEADER + SMALL];
            let (before, behind) = small.split_at_mut(head.len());
            before.copy_from_slice(head);
            behind[..rest.len()].copy_from_slice(rest);
            (head, rest) = (&[], &small[..head.len() + rest.len()]);
        }
        while !(head.is_empty() && rest.is_empty()) {
            let written = if head.is_empty() {
                self.link.write(&[IoSlice::new(rest)])
            } else {
                self.link.write(&[IoSlice::new(head), IoSlice::new(rest)])
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let of_head = written.min(head.len());
                    head = &head[of_head..];
                    rest = &rest[written - of_head..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.push(out, head);
                    self.push(out, rest);
                    out.owes_drained = true;
                    self.ask(out, true)?;
                    return Ok(Outcome::Queued);
                }
                Err(error) => return Err(error),
            }
        }
        self.left(out)
    }

    /// All was written: what became of it, as the link may keep a part.
    fn left(&self, out: &mut Outgoing) -> io::Result<Outcome> {
        if self.flush_link()? {
            return Ok(Outcome::Sent);
        }
        out.owes_drained = true;
        Ok(Outcome::Queued)
    }

    /// Puts a message behind what waits. If nothing does, it is written.
    fn put_behind(&self, out: &mut Outgoing, kind: Kind, payload: &[u8]) -> io::Result<Outcome> {
        let opening = out.phase == Phase::Opening;
        if !self.has_room(out, payload.len()) {
            return Ok(Outcome::Full);
        }
        let waits = !out.queue.is_empty();
        let key = out.next_key()?;
        let header = self.header(kind, payload.len(), key);
        let queue = if opening { &mut out.early } else { &mut out.queue };
        queue.push(header.bytes());
        let body = queue.push(payload);
        if let Some(key) = key {
            mask::apply(body, key, 0);
        }
        self.holdings.queued.fetch_add(header.bytes().len() + payload.len(), Ordering::Relaxed);
        if !opening && !waits {
            self.drain(out)?;
            if out.queue.is_empty() {
                return self.left(out);
            }
        }
        out.owes_drained = true;
        Ok(Outcome::Queued)
    }

    /// Adds to what is to be written.
    fn push(&self, out: &mut Outgoing, bytes: &[u8]) {
        out.queue.push(bytes);
        self.holdings.queued.fetch_add(bytes.len(), Ordering::Relaxed);
    }

    /// Writes what the link keeps. Whether it keeps nothing any more.
    fn flush_link(&self) -> io::Result<bool> {
        loop {
            match self.link.flush() {
                Ok(()) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes what waits, until nothing does or there is no room.
    fn drain(&self, out: &mut Outgoing) -> io::Result<()> {
        while !out.queue.is_empty() {
            match self.link.write(&[IoSlice::new(out.queue.front())]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    out.queue.advance(written);
                    self.holdings.queued.fetch_sub(written, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.ask(out, true),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes what waits: the node's thread, when there may be room.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn flush(&self) -> io::Result<Flushed> {
        let mut out = self.lock();
        let drained = self.drain(&mut out).and_then(|()| {
            if out.queue.is_empty() && out.phase != Phase::Closed {
                self.ask(&mut out, false)?;
            }
            self.flush_link()
        });
        let kept = !self.or_broken(&mut out, drained)?;
        Ok(if kept || !out.queue.is_empty() {
            Flushed::Waiting
        } else if out.phase == Phase::Closing {
            Flushed::Finished
        } else {
            // Before the handshake is over, there is nobody to be told.
            let open = matches!(out.phase, Phase::Open | Phase::Finishing);
            let told = open && std::mem::take(&mut out.owes_drained);
            Flushed::Empty { told }
        })
    }

    /// What is written first, once the link is there.
    pub(crate) fn first(&self, bytes: &[u8]) {
        self.push(&mut self.lock(), bytes);
    }

    /// Adds bytes of the handshake, or an answer to a peer's frame, behind what waits, and writes what it can.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn reply(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        if out.phase == Phase::Closed {
            return Ok(());
        }
        self.push(&mut out, bytes);
        self.drain(&mut out)
    }

    /// Answers a WebSocket's ping, unless so much waits, here or at all connections, that peers do not read.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn pong(&self, payload: &[u8]) -> io::Result<()> {
        let mut out = self.lock();
        let full = self.holdings.queued.load(Ordering::Relaxed) > self.most_queues && !out.queue.is_empty();
        if out.phase != Phase::Open || out.queue.len() > self.most_queue || full {
            return Ok(());
        }
        self.control(&mut out, Opcode::Pong, payload)?;
        self.drain(&mut out)
    }

    fn control(&self, out: &mut Outgoing, opcode: Opcode, payload: &[u8]) -> io::Result<()> {
        let Framing::WebSocket(side) = self.framing else { return Ok(()) };
        let key = out.next_key()?;
        debug_assert_eq!(key.is_some(), side == Side::Client);
        let frame = websocket::control(opcode, payload, key);
        self.push(out, &frame);
        Ok(())
    }

    /// The handshake is over: what waited for it is written.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn open(&self) -> io::Result<Flushed> {
        {
            let mut out = self.lock();
            if out.phase == Phase::Opening {
                out.phase = Phase::Open;
                let early = std::mem::take(&mut out.early);
                out.queue.push(early.front());
            }
        }
        self.flush()
    }
}

#[cfg(test)]
mod tests;
