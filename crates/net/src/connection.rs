//! The sending half of a connection. Any thread may use it.
//!
//! A message is written at once, under a lock held for one system call. What the kernel does not
//! accept goes to a queue, which the node's thread writes when the connection becomes writable.
//! While the queue is not empty, every new message goes behind it, so frames never interleave and
//! messages keep their order. Messages that several threads send at the same time are combined into
//! one write: see [`crate::line`].

mod before_open;
mod compressing;
mod control_frames;
mod ending;
mod outgoing;
mod several;
mod status;

use std::io::{self, ErrorKind, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

use self::outgoing::{OnDemandWritable, Outgoing, Phase};
use crate::acceptor::Acceptor;
use crate::backend::WritableSwitch;
use crate::buffer_totals::BufferTotals;
use crate::codec::websocket::mask::Keys;
use crate::codec::websocket::{self, Opcode, Side};
use crate::codec::{Agreement, Framing, Header, Kind, MAX_HEADER, length};
use crate::counters::Traffic;
use crate::event::Outcome;
use crate::frames::Frames;
use crate::limits::Limits;
use crate::line::Line;
use crate::transport::Link;

/// Messages up to this many bytes are copied behind their header, so that one buffer is written.
const SMALL: usize = 256;

/// The sending half of a connection.
pub(crate) struct Connection {
    pub(crate) link: Box<dyn Link>,
    /// Whether the connection continues when the peer sends no more.
    pub(crate) half_open: bool,
    pub(crate) accepted_by: Option<Arc<Acceptor>>,
    framing: Framing,
    max_message: usize,
    max_queue: usize,
    max_total_queued: usize,
    /// Whether an idle limit or a heartbeat applies. Otherwise a write does not read the clock.
    notes_writes: bool,
    totals: Arc<BufferTotals>,
    /// Written by the node's thread. In memory of its own, because other threads write what lies
    /// here.
    received: Box<Traffic>,
    /// The threads that wait for the lock to send.
    line: Line,
    outgoing: Mutex<Outgoing>,
}

/// What was written to a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writes {
    /// When the kernel accepted something last.
    pub(crate) last: Option<Instant>,
    /// Whether something is queued.
    pub(crate) waits: bool,
}

/// The result of writing the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// Something is still queued.
    Waiting,
    /// The queue is empty. `notify`: a sender waits for `Drained`.
    Empty { notify: bool },
    /// The queue is empty, and nothing more will be sent.
    Finished,
}

impl Connection {
    pub(crate) fn new(
        link: Box<dyn Link>,
        framing: Framing,
        half_open: bool,
        limits: &Limits,
        totals: Arc<BufferTotals>,
    ) -> Connection {
        let keys = (framing == Framing::WebSocket(Side::Client)).then(Keys::new);
        Connection {
            link,
            half_open,
            accepted_by: None,
            framing,
            max_message: match framing {
                Framing::Raw => usize::MAX,
                Framing::Length => limits.message.min(u32::MAX as usize),
                Framing::WebSocket(_) => limits.message,
            },
            max_queue: limits.queue,
            max_total_queued: limits.total_queued_bytes,
            notes_writes: limits.idle.is_some() || limits.heartbeat.is_some(),
            totals,
            received: Box::default(),
            line: Line::new(),
            outgoing: Mutex::new(Outgoing::new(keys)),
        }
    }

    /// Switches to writability notifications on request. `enabled`: they are on already.
    /// `permanent`: once on, they stay on.
    pub(crate) fn use_writable_switch(&self, switch: WritableSwitch, enabled: bool, permanent: bool) {
        self.lock().writable = Some(OnDemandWritable { switch, enabled, permanent });
    }

    /// Switches writability notifications on or off, where they are on request.
    fn set_writable_reports(&self, out: &mut Outgoing, wanted: bool) -> io::Result<()> {
        match &mut out.writable {
            Some(OnDemandWritable { switch, enabled, permanent }) if *enabled != wanted && (wanted || !*permanent) => {
                *enabled = wanted;
                switch.set(self.link.source(), wanted)
            }
            _ => Ok(()),
        }
    }

    /// Notes that the kernel has accepted something.
    #[inline]
    fn note_write(&self, out: &mut Outgoing) {
        if self.notes_writes {
            out.last_write = Some(Instant::now());
        }
    }

    /// What was written so far. `None` if there is neither an idle limit nor a heartbeat.
    pub(crate) fn writes(&self) -> Option<Writes> {
        if !self.notes_writes {
            return None;
        }
        let out = self.lock();
        Some(Writes { last: out.last_write, waits: !out.queue.is_empty() })
    }

    pub(crate) fn set_agreement(&self, agreed: Agreement) {
        let mut out = self.lock();
        out.subprotocol = agreed.subprotocol;
        out.compressor = agreed.deflate.and_then(|deflate| deflate.compressor()).map(Box::new);
    }

    pub(crate) fn subprotocol(&self) -> Option<String> {
        self.lock().subprotocol.as_deref().map(str::to_owned)
    }

    pub(crate) fn totals(&self) -> &BufferTotals {
        &self.totals
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        // No code that runs under this lock leaves the state half changed if it panics.
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state for a send. If another thread has the lock, this one waits in line.
    #[inline]
    fn lock_in_line(&self) -> MutexGuard<'_, Outgoing> {
        match self.outgoing.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.line.join();
                let out = self.lock();
                self.line.leave();
                out
            }
        }
    }

    /// Sends a message. Returns `None` if another connection has replaced this one.
    ///
    /// # Errors
    ///
    /// An error of the operating system; the caller has to end the connection.
    #[inline]
    pub(crate) fn send(&self, kind: Kind, payload: &[u8]) -> io::Result<Option<Outcome>> {
        if payload.len() > self.max_message {
            return Ok(Some(Outcome::TooLarge));
        }
        let mut out = self.lock_in_line();
        let others = self.line.len() > 0;
        let sent = if out.compressor.as_ref().is_some_and(|compressor| compressor.suits(payload.len())) {
            self.send_compressed(&mut out, kind, payload)
        } else if others || !out.delegated.is_empty() {
            self.send_in_line(&mut out, kind, payload, others)
        } else {
            self.send_alone(&mut out, kind, payload)
        };
        out.count(&sent, 1);
        self.abort_on_error(&mut out, sent)
    }

    #[inline]
    fn send_alone(&self, out: &mut Outgoing, kind: Kind, payload: &[u8]) -> io::Result<Option<Outcome>> {
        let outcome = match out.phase {
            Phase::Open | Phase::Opening if out.requested_end.is_some() => Outcome::Closed,
            Phase::Open if out.queue.is_empty() && !self.masks() => {
                let header = self.header(kind, payload.len(), None);
                self.write_through(out, header, payload)?
            }
            Phase::Open => self.put_behind(out, kind, payload)?,
            Phase::Opening => self.put_behind(out, kind, payload)?,
            Phase::Finishing => Outcome::Closed,
            Phase::Closing | Phase::Closed => out.refuse(),
            Phase::Replaced => return Ok(None),
        };
        Ok(Some(outcome))
    }

    /// Whether outgoing frames are masked.
    fn masks(&self) -> bool {
        self.framing == Framing::WebSocket(Side::Client)
    }

    /// Creates a buffer of frames for [`Connection::send_frames`].
    pub(crate) fn frames(&self) -> Frames {
        Frames::of(self.framing, self.max_message)
    }

    /// Sends whole frames, which are so many messages: all or none of them. Returns `None` as
    /// [`Connection::send`] does.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn send_frames(&self, frames: &[u8], messages: usize) -> io::Result<Option<Outcome>> {
        let mut out = self.lock();
        let left = self.write_delegated(&mut out);
        self.abort_on_error(&mut out, left)?;
        let sent = self.send_frames_alone(&mut out, frames);
        out.count(&sent, messages);
        self.abort_on_error(&mut out, sent)
    }

    fn send_frames_alone(&self, out: &mut Outgoing, frames: &[u8]) -> io::Result<Option<Outcome>> {
        Ok(Some(match out.phase {
            Phase::Open | Phase::Opening if out.requested_end.is_some() => Outcome::Closed,
            Phase::Open if out.queue.is_empty() => self.write_through(out, Header::NONE, frames)?,
            Phase::Open | Phase::Opening => {
                if !self.has_room(out, frames.len()) {
                    return Ok(Some(Outcome::Full));
                }
                let queue = if out.phase == Phase::Opening { &mut out.early } else { &mut out.queue };
                queue.push(frames, &self.totals.spares);
                self.count_added(out);
                out.owes_drained = true;
                Outcome::Queued
            }
            Phase::Finishing => Outcome::Closed,
            Phase::Closing | Phase::Closed => out.refuse(),
            Phase::Replaced => return Ok(None),
        }))
    }

    /// Whether anything is queued. If so, `Drained` will be reported.
    pub(crate) fn has_queued(&self) -> bool {
        let mut out = self.lock();
        let is_empty = out.queue.is_empty() && out.early.is_empty();
        // The node finds an error too, and ends the connection.
        let has_queued = !(is_empty && matches!(self.flush_link(), Ok(true)));
        out.owes_drained |= has_queued;
        has_queued
    }

    /// After an error nothing more is written, because half a frame may have been.
    fn abort_on_error<T>(&self, out: &mut Outgoing, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() {
            self.shut(out);
            // Where a successor replaces this connection, the sender gets `Drained` from it.
            out.owes_drained |= out.will_reconnect;
        }
        result
    }

    /// Whether `len` more bytes may be queued. If not, `Drained` will be reported.
    fn has_room(&self, out: &mut Outgoing, len: usize) -> bool {
        let waits = if out.phase == Phase::Opening { out.early.len() } else { out.queue.len() };
        let all = self.totals.queued.load(Ordering::Relaxed);
        // The last message may exceed the limit of the queue: one that is longer than the limit would
        // otherwise be refused as long as anything is queued.
        let queue_full = waits > 0 && waits >= self.max_queue;
        let total_full = all > 0 && all.saturating_add(len) > self.max_total_queued;
        // With an empty queue no `Drained` could follow a refusal, and most of the message may
        // leave at once. So it is accepted.
        let may_wait = waits > 0 || out.phase == Phase::Opening;
        let full = queue_full || (may_wait && total_full);
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

    /// Writes a frame while the queue is empty, and queues what the kernel does not accept.
    fn write_through(&self, out: &mut Outgoing, header: Header, payload: &[u8]) -> io::Result<Outcome> {
        let (mut head, mut rest) = (header.bytes(), payload);
        // Copying a short message costs less than a write of two buffers.
        let mut small;
        if !head.is_empty() && rest.len() <= SMALL {
            small = [0; MAX_HEADER + SMALL];
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
                    out.counts.bytes += written as u64;
                    self.note_write(out);
                    let of_head = written.min(head.len());
                    head = &head[of_head..];
                    rest = &rest[written - of_head..];
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.push(out, head);
                    self.push(out, rest);
                    out.owes_drained = true;
                    self.set_writable_reports(out, true)?;
                    return Ok(Outcome::Queued);
                }
                Err(error) => return Err(error),
            }
        }
        self.after_write(out)
    }

    /// The outcome after everything was written: the link may still buffer a part.
    fn after_write(&self, out: &mut Outgoing) -> io::Result<Outcome> {
        if self.flush_link()? {
            return Ok(Outcome::Sent);
        }
        out.owes_drained = true;
        Ok(Outcome::Queued)
    }

    /// Queues a message, and writes it at once if the queue was empty.
    fn put_behind(&self, out: &mut Outgoing, kind: Kind, payload: &[u8]) -> io::Result<Outcome> {
        let opening = out.phase == Phase::Opening;
        if !self.has_room(out, payload.len()) {
            return Ok(Outcome::Full);
        }
        let waits = !out.queue.is_empty();
        let key = out.next_key()?;
        let header = self.header(kind, payload.len(), key);
        let queue = if opening { &mut out.early } else { &mut out.queue };
        let spares = &self.totals.spares;
        match key {
            Some(key) => {
                queue.push(header.bytes(), spares);
                queue.push_masked(payload, key, spares);
            }
            None => queue.push_frame(header.bytes(), payload, spares),
        }
        self.count_added(out);
        if !opening && !waits {
            self.drain(out)?;
            if out.queue.is_empty() {
                return self.after_write(out);
            }
        }
        out.owes_drained = true;
        Ok(Outcome::Queued)
    }

    /// Appends to the queue.
    fn push(&self, out: &mut Outgoing, bytes: &[u8]) {
        out.queue.push(bytes, &self.totals.spares);
        self.count_added(out);
    }

    /// Counts what is queued here in the node's total, after something was added: up to an eighth
    /// more than that. So not every send writes to memory that all connections share.
    #[inline]
    fn count_added(&self, out: &mut Outgoing) {
        let queued = out.queued();
        if queued > out.counted {
            self.set_counted(out, queued + queued / 8);
        }
    }

    /// Counts what is queued here in the node's total, after something was removed.
    fn count_removed(&self, out: &mut Outgoing) {
        let queued = out.queued();
        if queued != out.counted {
            self.set_counted(out, queued);
        }
    }

    fn set_counted(&self, out: &mut Outgoing, counted: usize) {
        // Wraps around if it is less than before.
        self.totals.queued.fetch_add(counted.wrapping_sub(out.counted), Ordering::Relaxed);
        out.counted = counted;
    }

    /// Writes what the link buffers. Returns whether its buffer is empty now.
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

    /// Writes from the queue until it is empty or the connection is not writable.
    fn drain(&self, out: &mut Outgoing) -> io::Result<()> {
        while !out.queue.is_empty() {
            let (slices, count) = out.queue.slices();
            match self.link.write(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.note_write(out);
                    out.queue.advance(written, &self.totals.spares);
                    out.counts.bytes += written as u64;
                    self.count_removed(out);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.set_writable_reports(out, true),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the queue; called by the node's thread when the connection may be writable.
    ///
    /// # Errors
    ///
    /// As [`Connection::send`].
    pub(crate) fn flush(&self) -> io::Result<Flushed> {
        let mut out = self.lock();
        let drained = self.drain(&mut out).and_then(|()| {
            if out.queue.is_empty() && out.phase != Phase::Closed {
                self.set_writable_reports(&mut out, false)?;
            }
            self.flush_link()
        });
        let kept = !self.abort_on_error(&mut out, drained)?;
        Ok(if kept || !out.queue.is_empty() {
            Flushed::Waiting
        } else if out.phase == Phase::Closing {
            Flushed::Finished
        } else {
            // Before the handshake is over, nobody waits for `Drained`.
            let open = matches!(out.phase, Phase::Open | Phase::Finishing);
            let notify = open && std::mem::take(&mut out.owes_drained);
            #[cfg(feature = "tracing")]
            if notify {
                out.full_noted = false;
            }
            Flushed::Empty { notify }
        })
    }
}

#[cfg(test)]
mod tests;
