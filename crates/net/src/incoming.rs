//! The receiving half of a connection. It belongs to the node's thread.
//!
//! All connections read into one shared buffer, and complete messages are delivered as ranges of
//! it. The start of an incomplete message stays there until another connection is read; then it is
//! copied to this connection's own buffer. A connection without an incomplete message has no
//! buffer.
//!
//! A long message gets memory of its own as it arrives. It is read there directly, delivered from
//! there, and can be moved out by [`Message::take`](crate::Message::take).

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::backend::WriteClosed;
use crate::codec::websocket::Close;
use crate::codec::{Decoder, Fault, Item, Kind};
use crate::connection::{Connection, Writes};
use crate::event::{Late, Reason};
use crate::limits::Limits;
use crate::reconnecting::ReconnectState;
use crate::shared::Origin;
use crate::slab::Key;

/// The length of the shared buffer, in bytes.
pub(crate) const SHARED: usize = 256 << 10;
/// A longer message is read into memory of its own.
const LONG: usize = SHARED / 2;
/// The initial size of that memory. It doubles as the message arrives.
const FIRST: usize = 64 << 10;

/// The bounds of what one read may return. It begins small, so that a connection whose messages take
/// long has little left when its time is over, and doubles with each turn that was not interrupted.
const MIN_READ: usize = 2 << 10;
const FIRST_READ: usize = 32 << 10;

/// What to do when a deadline passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Reconnect, or finish the end of the connection.
    Continue,
    /// Ask a silent WebSocket peer for an answer.
    Ping,
    /// The connection ends.
    Late(Late),
}

/// What is known about a quiet connection as of its last deadline. Only connections with an idle
/// limit or a heartbeat have it.
#[derive(Debug, Default)]
struct Quiet {
    last_write: Option<Instant>,
    ping: Option<SentPing>,
}

/// A ping that a silent peer has to answer.
#[derive(Debug, Clone, Copy)]
struct SentPing {
    /// When something was received last, as of the ping.
    silent_since: Instant,
    sent: Instant,
    /// It waits behind other data. As long as that is accepted, the peer is not late.
    queued: bool,
}

impl SentPing {
    fn note_writes(&mut self, writes: Writes) {
        if self.queued {
            self.sent = writes.last.map_or(self.sent, |last| last.max(self.sent));
            self.queued = writes.waits;
        }
    }
}

/// How many pings are answered one by one in a turn. Of further ones only the latest is answered,
/// as section 5.5.3 of RFC 6455 allows: each pong is a system call, and a buffer holds some 40,000
/// pings.
const PINGS: u32 = 64;

/// The receiving half of a connection.
pub(crate) struct Incoming {
    pub(crate) key: Key,
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    /// Set while the connection opens: who opened it. `linked`: the transport's link is connected.
    pub(crate) opening: Option<Origin>,
    pub(crate) linked: bool,
    /// The entry is scheduled to be read.
    pub(crate) ready: bool,
    /// The user paused reading. This has no effect while the connection opens or ends.
    pub(crate) paused: bool,
    /// epoll has reported that the peer ended its direction or that the link failed. Reads continue
    /// until one reports it too.
    pub(crate) read_to_end: bool,
    /// Set once epoll has reported that writes no longer reach the peer.
    pub(crate) write_closed: Option<WriteClosed>,
    /// The peer's end was reported as `Finished`, and sending continues.
    pub(crate) peer_finished: bool,
    pub(crate) sending: Sending,
    /// What still arrives is discarded.
    pub(crate) discards: bool,
    /// This connection's earliest scheduled deadline.
    pub(crate) armed: Option<Instant>,
    /// The deadline passed with unread data ready; extended once by 1 ms.
    pub(crate) deadline_extended: bool,
    /// Set if a close was requested while the connection opens: the payload of its closing frame.
    pub(crate) farewell: Option<Vec<u8>>,
    /// How and when it reconnects after a loss.
    pub(crate) reconnect: Option<Box<ReconnectState>>,
    /// An error of a send. The connection ends once everything received before it was delivered.
    pub(crate) failed: Option<io::Error>,
    /// The payload of the latest of many pings, answered at the end of the turn.
    unanswered: Option<Box<[u8]>>,
    /// Set while the connection is closing.
    pub(crate) ending: Option<Box<Ending>>,
    /// When the connection started to open or, once open, when it last received something.
    pub(crate) since: Instant,
    quiet: Option<Box<Quiet>>,
    /// When the incomplete message began.
    pub(crate) unfinished_since: Option<Instant>,
    /// The start of an incomplete message: the first `filled` bytes.
    buffered: Vec<u8>,
    filled: usize,
    /// How many bytes of it are still in the shared buffer.
    left: usize,
    /// How many bytes the decoder needs, including those that are buffered.
    need: usize,
    /// What this connection has added to `BufferTotals::unfinished`.
    counted: usize,
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

/// Adds a duration to a time. If the sum overflows, returns a time some 136 years later.
pub(crate) fn after(at: Instant, time: Duration) -> Instant {
    at.checked_add(time).unwrap_or_else(|| at + Duration::from_secs(1 << 32))
}

/// The orderly end of a connection: the queue is written, the sending direction ends, and reading
/// continues until the peer ends its direction too. Closing a socket with unread data would make
/// the kernel reset the connection, and the peer would lose what it has not read yet.
#[derive(Debug)]
pub(crate) struct Ending {
    /// `None` once it was reported.
    pub(crate) reason: Option<Reason>,
    pub(crate) until: Instant,
    /// Everything was written, and the sending direction has ended.
    pub(crate) finished: bool,
    /// The peer has ended its direction.
    pub(crate) ended: bool,
}

/// The bytes of the shared buffer that are being decoded, and the state of the current turn.
#[derive(Debug, Default)]
pub(crate) struct Window {
    start: usize,
    end: usize,
    /// How many bytes may still be read in this turn.
    budget: usize,
    /// How many bytes were there at its start, and were read since.
    taken: usize,
    /// How many pings were received in this turn.
    pings: u32,
    /// Whether the link may have more to read.
    more: bool,
    /// Whether the current message is read into the connection's own memory.
    long: bool,
}

impl Window {
    /// An empty window with this read budget.
    pub(crate) fn of(budget: usize) -> Window {
        Window { budget, ..Window::default() }
    }

    pub(crate) fn spend(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes);
        self.taken = self.taken.saturating_add(bytes);
    }

    /// The range behind the last message in the shared buffer.
    pub(crate) fn rest(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Continues behind a run of messages.
    pub(crate) fn go_on_at(&mut self, start: usize) {
        self.start = start;
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.budget == 0
    }
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
            linked: false,
            opening: Some(origin),
            ready: false,
            paused: false,
            read_to_end: false,
            write_closed: None,
            peer_finished: false,
            sending: Sending::On,
            discards: false,
            armed: None,
            deadline_extended: false,
            farewell: None,
            reconnect: None,
            failed: None,
            unanswered: None,
            ending: None,
            since: now,
            quiet: None,
            unfinished_since: None,
            buffered: Vec::new(),
            filled: 0,
            left: 0,
            need: 0,
            counted: 0,
            read_size: FIRST_READ as u32,
        }
    }

    /// Returns the next deadline, and what to do when it passes.
    pub(crate) fn due(&self, limits: &Limits) -> Option<(Instant, Deadline)> {
        if let Some(at) = self.next_reconnect_at() {
            return Some((at, Deadline::Continue));
        }
        if let Some(ending) = &self.ending {
            return Some((ending.until, Deadline::Continue));
        }
        if self.opening.is_some() {
            return Some((after(self.since, limits.handshake), Deadline::Late(Late::Handshake)));
        }
        if self.is_paused() {
            return None;
        }
        let message =
            self.unfinished_since.map(|since| (after(since, limits.message_timeout), Deadline::Late(Late::Message)));
        message.into_iter().chain(self.idle_deadline(limits)).chain(self.heartbeat(limits)).min_by_key(|(at, _)| *at)
    }

    /// When the connection is idle.
    fn idle_deadline(&self, limits: &Limits) -> Option<(Instant, Deadline)> {
        let idle = limits.idle?;
        let last_write = self.quiet.as_ref().and_then(|quiet| quiet.last_write);
        let active = last_write.map_or(self.since, |last| last.max(self.since));
        Some((after(active, idle), Deadline::Late(Late::Idle)))
    }

    /// When to send a ping, or when the answer is late.
    fn heartbeat(&self, limits: &Limits) -> Option<(Instant, Deadline)> {
        let time = limits.heartbeat.filter(|_| matches!(self.decoder, Decoder::WebSocket(_)))?;
        Some(match self.quiet.as_ref().and_then(|quiet| quiet.ping) {
            Some(ping) if ping.silent_since == self.since => (after(ping.sent, time), Deadline::Late(Late::Heartbeat)),
            _ => (after(self.since, time), Deadline::Ping),
        })
    }

    /// Takes into account what was written since the last deadline.
    pub(crate) fn note_writes(&mut self) {
        if self.opening.is_none()
            && let Some(writes) = self.connection.writes()
        {
            let quiet = self.quiet.get_or_insert_default();
            quiet.last_write = writes.last;
            if let Some(ping) = &mut quiet.ping {
                ping.note_writes(writes);
            }
        }
    }

    /// Sends a ping to a peer that has been silent.
    ///
    /// # Errors
    ///
    /// As [`Connection::ping`].
    pub(crate) fn ping(&mut self, now: Instant) -> io::Result<()> {
        let queued = !self.connection.ping()?;
        self.quiet.get_or_insert_default().ping = Some(SentPing { silent_since: self.since, sent: now, queued });
        Ok(())
    }

    /// Whether reading is suspended.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused && self.opening.is_none() && self.ending.is_none()
    }

    /// When it will reconnect, while it waits for that.
    pub(crate) fn next_reconnect_at(&self) -> Option<Instant> {
        self.reconnect.as_ref()?.next_attempt
    }

    /// Begins a turn. A buffered incomplete message is copied to the shared buffer, unless it is
    /// still there or is a long one.
    pub(crate) fn begin(&mut self, buffer: &mut [u8], left: Option<Range<usize>>, limits: &Limits) -> Window {
        let mut window = Window { budget: limits.read_budget, more: true, long: self.need > LONG, ..Window::default() };
        if let Some(left) = left {
            (window.start, window.end) = (left.start, left.end);
            self.left = 0;
        } else if !window.long && self.filled > 0 {
            buffer[..self.filled].copy_from_slice(&self.buffered[..self.filled]);
            window.end = self.filled;
            self.release();
        }
        window.taken = window.rest().len();
        self.read_size = (2 * self.read_size).min(SHARED as u32);
        window
    }

    /// Frees the memory of a delivered message.
    pub(crate) fn release_delivered(&mut self, place: &MessageLocation) {
        match place {
            MessageLocation::Shared(_) => {}
            MessageLocation::Buffered => self.release(),
            MessageLocation::Assembled => *self.decoder.assembled() = Vec::new(),
        }
    }

    /// Buffers the start of an incomplete message, because another connection is read next.
    pub(crate) fn buffer_partial(&mut self, left: &[u8]) {
        self.buffered = left.to_vec();
        self.filled = left.len();
        self.left = 0;
    }

    /// Frees the buffer of an incomplete message.
    fn release(&mut self) {
        self.buffered = Vec::new();
        self.filled = 0;
    }

    pub(crate) fn buffered(&mut self) -> &mut Vec<u8> {
        self.buffered.truncate(self.filled);
        &mut self.buffered
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

    /// Ends a turn early. What was read and not delivered is kept like an incomplete message. Returns
    /// `None` if that would take more than half of the memory for those: then the turn has to go on,
    /// because the peer has done nothing wrong.
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
        if self.discards {
            window.start = window.end;
            return None;
        }
        loop {
            let input =
                if window.long { &mut self.buffered[..self.filled] } else { &mut buffer[window.start..window.end] };
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
                    self.need = need;
                    if step.consumed == 0 || window.start >= window.end {
                        return None;
                    }
                }
                Item::Message { at, kind } => {
                    let location = if std::mem::take(&mut window.long) {
                        debug_assert_eq!(at, 0..self.filled);
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
        self.unfinished_since = None;
        self.need = 0;
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
        if !window.long && self.need > LONG {
            // The header was consumed, so these bytes belong to the message.
            let begun = &buffer[window.start..window.end];
            self.buffered = Vec::with_capacity(FIRST.max(begun.len()));
            self.buffered.extend_from_slice(begun);
            self.filled = begun.len();
            (window.start, window.end) = (0, 0);
            window.long = true;
        }
        let space = if window.long {
            if self.filled == self.buffered.len() {
                let len = self.need.min(self.buffered.len().max(FIRST / 2) * 2);
                self.buffered.resize(len, 0);
                self.count(limits)?;
            }
            let end = self.buffered.len().min(self.filled + window.budget);
            &mut self.buffered[self.filled..end]
        } else {
            if window.start == window.end {
                (window.start, window.end) = (0, 0);
            } else if window.start + self.need > buffer.len() || window.end == buffer.len() {
                buffer.copy_within(window.start..window.end, 0);
                (window.start, window.end) = (0, window.end - window.start);
            }
            let most = window.budget.min(self.read_size as usize);
            let end = buffer.len().min(window.end + most);
            &mut buffer[window.end..end]
        };
        let capacity = space.len();
        match self.connection.link.read(space) {
            Ok(0) => {
                let midway = window.long || window.start < window.end || self.decoder.midway();
                return Err(if midway { Reason::Truncated } else { Reason::Ended });
            }
            Ok(read) => {
                // The handshake has one deadline as a whole.
                if self.opening.is_none() {
                    self.since = now;
                }
                if window.long {
                    self.filled += read;
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
            self.left = left.len();
            if self.need > LONG {
                self.buffer_partial(&buffer[left]);
                window.start = window.end;
            }
        }
        if self.filled + self.left > 0 || self.decoder.midway() {
            self.unfinished_since.get_or_insert(now);
        } else {
            self.unfinished_since = None;
        }
        self.count(limits)
    }

    /// Updates the node's total of buffered incomplete messages. Fails for the connection that
    /// exceeds the limit.
    fn count(&mut self, limits: &Limits) -> Result<(), Reason> {
        let holds = self.buffered.len() + self.left + self.decoder.holds();
        let unfinished = &self.connection.totals().unfinished;
        let before = std::mem::replace(&mut self.counted, holds);
        if holds == before {
            return Ok(());
        }
        if holds < before {
            unfinished.fetch_sub(before - holds, Ordering::Relaxed);
            return Ok(());
        }
        let all = unfinished.fetch_add(holds - before, Ordering::Relaxed) + (holds - before);
        if all > limits.unfinished { Err(Reason::NoRoom) } else { Ok(()) }
    }

    /// Whether this turn is over as soon as the last message has been delivered.
    pub(crate) fn is_done_with(&self, window: &Window, limits: &Limits) -> bool {
        let nothing_left = window.start == window.end && !window.more && !window.long;
        let noted = self.armed.is_some() || (limits.idle.is_none() && limits.heartbeat.is_none());
        let said = self.failed.is_none() && self.unanswered.is_none();
        nothing_left && noted && said && self.counted == 0 && self.filled == 0
    }

    /// Discards what is buffered and whatever still arrives.
    pub(crate) fn discard(&mut self) {
        self.discards = true;
        (self.need, self.left) = (0, 0);
        self.release();
        self.decoder.clear();
        self.connection.totals().unfinished.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
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
        self.connection.totals().unfinished.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_not_late_while_data_before_the_ping_is_written() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut ping = SentPing { silent_since: at(0), sent: at(10), queued: true };
        let mut sent = |last, waits| {
            ping.note_writes(Writes { last: Some(at(last)), waits });
            ping.sent
        };
        assert_eq!(sent(5, true), at(10));
        assert_eq!(sent(15, true), at(15));
        // The ping has left the queue. Later writes say nothing about the peer.
        assert_eq!(sent(20, false), at(20));
        assert_eq!(sent(30, true), at(20));
    }
}
