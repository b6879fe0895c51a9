//! The receiving half of a connection. It belongs to the node's thread.
//!
//! All connections read into one shared buffer, and complete messages are delivered as ranges of
//! it. The start of an incomplete message stays there until another connection is read; then it is
//! copied to this connection's own buffer. A connection without an incomplete message has no
//! buffer.
//!
//! A long message gets memory of its own as it arrives. It is read there directly, delivered from
//! there, and can be moved out by [`Message::take`](crate::Message::take).

mod activity;
mod deadline;
mod life;
mod window;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use self::activity::Activity;
pub(crate) use self::deadline::{Armed, Deadline, after};
pub(crate) use self::life::{Arrivals, Attempt, Life};
pub(crate) use self::window::Window;
use crate::backend::WriteClosed;
use crate::codec::websocket::Close;
use crate::codec::{Decoder, Fault, Item, Kind};
use crate::connection::Connection;
use crate::event::{Late, Reason};
use crate::limits::Limits;
use crate::new_endpoint::Origin;
use crate::partial_message::{LONG, PartialMessage};
use crate::read_state::ReadState;
use crate::reconnecting::ReconnectState;
use crate::slab::Key;

/// The length of the shared buffer, in bytes.
pub(crate) const SHARED: usize = 256 << 10;
const _: () = assert!(LONG < SHARED, "a message that is not long fits into the shared buffer with its header");

/// The bounds of what one read may return. It begins small, so that a connection whose messages
/// take long has little left when its time is over, and doubles with each turn that was not
/// interrupted.
const MIN_READ: usize = 2 << 10;
const FIRST_READ: usize = 32 << 10;

/// How many pings are answered one by one in a turn. Of further ones only the latest is answered,
/// as section 5.5.3 of RFC 6455 allows: each pong is a system call, and a buffer holds some 40,000
/// pings.
const PINGS: u32 = 64;

/// The receiving half of a connection.
pub(crate) struct Incoming {
    pub(crate) key: Key,
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    pub(crate) life: Life,
    /// Whether it is queued to be read, and whether the user paused reading:
    /// [`Incoming::is_paused`].
    pub(crate) reading: ReadState,
    /// epoll has reported that the peer ended its direction or that the link failed. Reads continue
    /// until one reports it too.
    pub(crate) read_to_end: bool,
    /// Set once epoll has reported that writes no longer reach the peer.
    pub(crate) write_closed: Option<WriteClosed>,
    pub(crate) sending: Sending,
    pub(crate) armed: Armed,
    /// How and when it reconnects after a loss.
    pub(crate) reconnect: Option<Box<ReconnectState>>,
    /// An error of a send. The connection ends once everything received before it was delivered.
    pub(crate) failed: Option<io::Error>,
    /// The payload of the latest of many pings, answered at the end of the turn.
    unanswered: Option<Box<[u8]>>,
    pub(crate) activity: Activity,
    /// The start of an incomplete message.
    pub(crate) partial: PartialMessage,
    /// How many bytes one read may return.
    read_size: u32,
}

/// The state of the sending direction, as far as the user asked to finish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    On,
    /// The queue is written, then the direction ends.
    Finishing,
    /// The peer has been notified of the end.
    Finished,
}

/// Where a message lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MessageLocation {
    /// In the shared buffer.
    Shared(Range<usize>),
    /// In the connection's own buffer, all of it.
    Buffered,
    /// In the decoder, all of it.
    Assembled,
}

/// The result of a decoding step.
pub(crate) enum Progress {
    Message(MessageLocation, Kind),
    /// The handshake is over.
    Open,
    /// There is nothing to read now.
    Idle,
    /// The turn's budget is spent: the connection is read again in the next turn.
    Yield,
    /// The connection ends. The bytes are sent to the peer first.
    End(Reason, Vec<u8>),
}

impl Incoming {
    pub(crate) fn new(
        key: Key,
        connection: Arc<Connection>,
        decoder: Decoder,
        origin: Origin,
        now: Instant,
    ) -> Incoming {
        Incoming {
            key,
            connection,
            decoder,
            life: Life::new(origin),
            reading: ReadState::Waiting,
            read_to_end: false,
            write_closed: None,
            sending: Sending::On,
            armed: Armed::No,
            reconnect: None,
            failed: None,
            unanswered: None,
            activity: Activity::new(now),
            partial: PartialMessage::default(),
            read_size: FIRST_READ as u32,
        }
    }

    /// Returns the next deadline, and what to do when it passes.
    pub(crate) fn due(&self, limits: &Limits) -> Option<(Instant, Deadline)> {
        if let Some(at) = self.next_reconnect_at() {
            return Some((at, Deadline::Continue));
        }
        match &self.life {
            Life::Ending(ending) => Some((ending.until, Deadline::Continue)),
            Life::Connecting(_) | Life::Handshaking(_) => {
                Some((after(self.activity.since(), limits.handshake), Deadline::Late(Late::Handshake)))
            }
            Life::Open(_) if self.reading.is_paused() => None,
            Life::Open(_) => self.due_while_open(limits),
        }
    }

    /// The next deadline of an open connection that is read.
    fn due_while_open(&self, limits: &Limits) -> Option<(Instant, Deadline)> {
        let message =
            self.partial.since.map(|since| (after(since, limits.message_timeout), Deadline::Late(Late::Message)));
        let idle = limits.idle.map(|idle| (self.activity.idle_deadline(idle), Deadline::Late(Late::Idle)));
        let has_heartbeat = matches!(self.decoder, Decoder::WebSocket(_));
        let heartbeat = limits.heartbeat.filter(|_| has_heartbeat).map(|time| self.activity.heartbeat(time));
        message.into_iter().chain(idle).chain(heartbeat).min_by_key(|(at, _)| *at)
    }

    /// Takes into account what was written since the last deadline.
    pub(crate) fn note_writes(&mut self) {
        if !self.life.is_opening()
            && let Some(writes) = self.connection.writes()
        {
            self.activity.note_writes(writes);
        }
    }

    /// Sends a ping to a peer that has been silent.
    ///
    /// # Errors
    ///
    /// As [`Connection::ping`].
    pub(crate) fn ping(&mut self, now: Instant) -> io::Result<()> {
        let queued = !self.connection.ping()?;
        self.activity.note_ping(now, queued);
        Ok(())
    }

    /// Whether reading is suspended. A pause has no effect while the connection opens or ends.
    pub(crate) fn is_paused(&self) -> bool {
        self.reading.is_paused() && self.life.is_open()
    }

    /// Pauses or resumes reading. Time spent paused does not count towards a deadline.
    pub(crate) fn set_paused(&mut self, pauses: bool, now: Instant) {
        if self.is_paused() && !pauses {
            self.activity.begin_at(now);
            self.partial.since = self.partial.since.map(|_| now);
        }
        self.reading.set_paused(pauses);
    }

    /// When it will reconnect, while it waits for that.
    pub(crate) fn next_reconnect_at(&self) -> Option<Instant> {
        self.reconnect.as_ref()?.next_attempt
    }

    /// Begins a turn. A buffered incomplete message is copied to the shared buffer, unless it is
    /// still there or is a long one.
    pub(crate) fn begin(&mut self, buffer: &mut [u8], left: Option<Range<usize>>, limits: &Limits) -> Window {
        let mut window =
            Window { budget: limits.read_budget, more: true, long: self.partial.is_long(), ..Window::default() };
        if let Some(left) = left {
            (window.start, window.end) = (left.start, left.end);
            self.partial.set_left(0);
        } else if !window.long {
            let bytes = self.partial.bytes();
            buffer[..bytes.len()].copy_from_slice(bytes);
            window.end = bytes.len();
            self.partial.release();
        }
        window.taken = window.rest().len();
        self.read_size = (2 * self.read_size).min(SHARED as u32);
        window
    }

    /// Frees the memory of a delivered message, or keeps it for another one.
    pub(crate) fn release_delivered(&mut self, place: &MessageLocation) {
        match place {
            MessageLocation::Shared(_) => {}
            MessageLocation::Buffered => self.partial.release_delivered(&self.connection.totals().spare_memory),
            MessageLocation::Assembled => *self.decoder.assembled() = Vec::new(),
        }
    }

    /// Decodes and reads until there is something to deliver, or nothing more to read. At the end
    /// of a turn answers the last of many pings.
    pub(crate) fn advance(
        &mut self,
        buffer: &mut [u8],
        window: &mut Window,
        limits: &Limits,
        now: Instant,
    ) -> Progress {
        let progress = self.decode_and_read(buffer, window, limits, now);
        if !matches!(progress, Progress::Message(..) | Progress::Open) {
            self.answer_last_ping();
        }
        progress
    }

    /// Answers the last of many pings, at the end of a turn.
    fn answer_last_ping(&mut self) {
        if let Some(payload) = self.unanswered.take()
            && let Err(error) = self.connection.pong(&payload)
        {
            self.failed.get_or_insert(error);
        }
    }

    /// Ends a turn early. What was read and not delivered is kept like an incomplete message.
    /// Returns `None` if that would take more than half of the memory for those: then the turn has
    /// to go on, because the peer has done nothing wrong.
    pub(crate) fn interrupt(
        &mut self,
        buffer: &[u8],
        window: &mut Window,
        limits: &Limits,
        now: Instant,
    ) -> Option<Progress> {
        let rest = window.rest().len();
        let unfinished = self.connection.totals().unfinished.load(Ordering::Relaxed);
        if rest > 0 && unfinished.saturating_add(rest) > limits.unfinished / 2 {
            return None;
        }
        if rest > 0 {
            // As much as was delivered: the next turn doubles it.
            let delivered = window.taken - rest;
            self.read_size = (delivered / 2).clamp(MIN_READ, SHARED) as u32;
        }
        self.answer_last_ping();
        Some(match self.keep(buffer, window, limits, now) {
            Ok(()) => Progress::Yield,
            Err(reason) => Progress::End(reason, Vec::new()),
        })
    }

    /// As [`Incoming::advance`], without that last pong.
    fn decode_and_read(&mut self, buffer: &mut [u8], window: &mut Window, limits: &Limits, now: Instant) -> Progress {
        loop {
            if let Some(progress) = self.decode(buffer, window) {
                return progress;
            }
            // Everything in the window was decoded: read more.
            if !window.more || window.budget == 0 {
                let more = window.more;
                return match self.keep(buffer, window, limits, now) {
                    Ok(()) if more => Progress::Yield,
                    Ok(()) => Progress::Idle,
                    Err(reason) => Progress::End(reason, Vec::new()),
                };
            }
            if let Err(reason) = self.read(buffer, window, limits, now) {
                return Progress::End(reason, Vec::new());
            }
        }
    }

    /// Decodes what was read until there is something to deliver. Returns `None` if more has to be
    /// read first.
    #[inline]
    fn decode(&mut self, buffer: &mut [u8], window: &mut Window) -> Option<Progress> {
        if self.life.discards() {
            window.start = window.end;
            return None;
        }
        loop {
            let input = if window.long { self.partial.bytes() } else { &mut buffer[window.start..window.end] };
            if input.is_empty() {
                return None;
            }
            let step = match self.decoder.decode(input) {
                Ok(step) => step,
                Err(Fault { what, reply }) => return Some(Progress::End(Reason::Violation(what), reply)),
            };
            let base = window.start;
            if !window.long {
                window.start += step.consumed;
            }
            match step.item {
                Item::Partial { need } => {
                    self.partial.set_need(need);
                    if step.consumed == 0 || window.start >= window.end {
                        return None;
                    }
                }
                Item::Message { at, kind } => {
                    let location = if std::mem::take(&mut window.long) {
                        debug_assert_eq!(at, 0..self.partial.bytes().len());
                        MessageLocation::Buffered
                    } else {
                        MessageLocation::Shared(base + at.start..base + at.end)
                    };
                    return Some(self.complete(location, kind));
                }
                Item::Assembled { kind } => return Some(self.complete(MessageLocation::Assembled, kind)),
                Item::Open { reply, agreed } => {
                    self.connection.set_agreement(agreed);
                    return Some(self.reply_to_handshake(&reply));
                }
                Item::Ping { at } => {
                    if let Err(error) = self.answer_ping(&buffer[base + at.start..base + at.end], window) {
                        return Some(Progress::End(Reason::Io(error), Vec::new()));
                    }
                }
                Item::Pong => {}
                Item::Close(close) => return Some(closed_by_peer(close)),
            }
        }
    }

    /// Notes that a message is complete, and returns it.
    #[inline]
    fn complete(&mut self, location: MessageLocation, kind: Kind) -> Progress {
        self.partial.complete();
        Progress::Message(location, kind)
    }

    /// Sends our part of the handshake, which is over then.
    fn reply_to_handshake(&self, reply: &[u8]) -> Progress {
        match self.connection.reply(reply) {
            Ok(()) => Progress::Open,
            Err(error) => Progress::End(Reason::Io(error), Vec::new()),
        }
    }

    /// Answers a ping. After [`PINGS`] of them in a turn, only keeps the payload for the end of the
    /// turn.
    fn answer_ping(&mut self, payload: &[u8], window: &mut Window) -> io::Result<()> {
        window.pings += 1;
        if window.pings > PINGS {
            self.unanswered = Some(payload.into());
            return Ok(());
        }
        self.connection.pong(payload)
    }

    /// Reads once, into the shared buffer or, for a long message, into its own memory.
    fn read(&mut self, buffer: &mut [u8], window: &mut Window, limits: &Limits, now: Instant) -> Result<(), Reason> {
        if !window.long && self.partial.is_long() {
            // The header was consumed, so these bytes belong to the message.
            let begun = &buffer[window.start..window.end];
            self.partial.begin_long(begun, &self.connection.totals().spare_memory);
            (window.start, window.end) = (0, 0);
            window.long = true;
        }
        let space = if window.long {
            if self.partial.grow(&self.connection.totals().spare_memory) {
                self.count(limits)?;
            }
            self.partial.space(window.budget)
        } else {
            if window.start == window.end {
                (window.start, window.end) = (0, 0);
            } else if window.start + self.partial.need() > buffer.len() || window.end == buffer.len() {
                buffer.copy_within(window.start..window.end, 0);
                (window.start, window.end) = (0, window.end - window.start);
            }
            let max_read = window.budget.min(self.read_size as usize);
            let end = buffer.len().min(window.end + max_read);
            &mut buffer[window.end..end]
        };
        let capacity = space.len();
        match self.connection.link.read(space) {
            Ok(0) => {
                let midway = window.long || window.start < window.end || self.decoder.midway();
                if !midway {
                    // A half-open connection may live long.
                    self.partial.uncount(self.connection.totals());
                }
                return Err(if midway { Reason::Truncated } else { Reason::Ended });
            }
            Ok(read) => {
                // A transport of the user's may be wrong.
                let read = read.min(capacity);
                // The handshake has one deadline as a whole.
                if !self.life.is_opening() {
                    self.activity.begin_at(now);
                }
                if window.long {
                    self.partial.fill(read);
                } else {
                    window.end += read;
                }
                self.connection.received().bytes.add(read as u64);
                window.spend(read);
                window.more = read == capacity || self.read_to_end || !self.connection.link.short_read_is_last();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => window.more = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Reason::Io(error)),
        }
        Ok(())
    }

    /// Ends a turn: keeps the rest of an incomplete message. A short one stays in the shared buffer
    /// for now.
    fn keep(&mut self, buffer: &[u8], window: &mut Window, limits: &Limits, now: Instant) -> Result<(), Reason> {
        if !window.long {
            let left = window.rest();
            if self.partial.is_long() {
                self.partial.begin_long(&buffer[left], &self.connection.totals().spare_memory);
                window.start = window.end;
            } else {
                self.partial.set_left(left.len());
            }
        }
        if self.partial.is_empty() && !self.decoder.midway() {
            self.partial.since = None;
        } else {
            self.partial.since.get_or_insert(now);
        }
        self.count(limits)
    }

    /// Updates the node's total of incomplete messages. Fails for the connection that exceeds the
    /// limit.
    fn count(&mut self, limits: &Limits) -> Result<(), Reason> {
        self.partial.count(self.decoder.holds(), self.connection.totals(), limits)
    }

    /// Whether this turn is over as soon as the last message has been delivered.
    pub(crate) fn is_done_with(&self, window: &Window, limits: &Limits) -> bool {
        let nothing_left = window.start == window.end && !window.more && !window.long;
        let has_deadline = self.armed.at().is_some() || (limits.idle.is_none() && limits.heartbeat.is_none());
        let replied = self.failed.is_none() && self.unanswered.is_none();
        nothing_left && has_deadline && replied && self.partial.is_released()
    }

    /// Starts the orderly end of the connection, which takes until then at most. `reason`: if it
    /// was not reported yet.
    pub(crate) fn begin_ending(
        &mut self,
        reason: Option<Reason>,
        until: Instant,
        arrivals: Arrivals,
        peer_ended: bool,
    ) {
        self.life.begin_ending(reason, until, arrivals, peer_ended);
        if arrivals == Arrivals::Discarded {
            self.discard_buffered();
        }
    }

    /// Discards what is buffered and whatever still arrives at a connection that ends.
    pub(crate) fn discard(&mut self) {
        if let Some(ending) = self.life.ending() {
            ending.arrivals = Arrivals::Discarded;
            self.discard_buffered();
        }
    }

    fn discard_buffered(&mut self) {
        self.partial.discard(self.connection.totals());
        self.decoder.clear();
    }
}

/// Returns the end of a connection whose peer sent a closing frame.
fn closed_by_peer(close: Close) -> Progress {
    // The echo carries the peer's own code: section 5.5.1 of RFC 6455.
    let echo = Close { code: close.code, reason: String::new() }.payload();
    Progress::End(Reason::ClosedByPeer(close), echo)
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.partial.uncount(self.connection.totals());
    }
}
