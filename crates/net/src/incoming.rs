//! The receiving half of a connection, which belongs to the node's thread.
//!
//! Bytes are read into a buffer that all connections share, and messages are told where they lie there. What is left of a
//! message whose end has not come stays there until another connection is read, and is kept at its own then; a connection that
//! waits for nothing keeps nothing. A long message gets memory of its own as it arrives, is read to where it will be told, and can be taken from there.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::codec::{Decoder, Fault, Item, Kind};
use crate::connection::Connection;
use crate::event::{Late, Reason};
use crate::limits::Limits;
use crate::reconnect::Again;
use crate::shared::How;
use crate::slab::Key;

/// The length of the shared buffer.
pub(crate) const SHARED: usize = 256 << 10;
/// A message that needs more than this is read into memory of its own.
const LONG: usize = SHARED / 2;
/// How much of that memory there is to begin with: it doubles as the message arrives.
const FIRST: usize = 64 << 10;

/// So many pings are answered in a turn one by one. Of those that follow the latest is, as section 5.5.3 of RFC 6455 allows: each answer
/// is a system call, and a buffer holds some forty thousand pings.
const PINGS: u32 = 64;

/// The receiving half of a connection.
pub(crate) struct Incoming {
    pub(crate) key: Key,
    pub(crate) connection: Arc<Connection>,
    pub(crate) decoder: Decoder,
    /// While it comes about: how, and, for a connecting one, whether the link is there.
    pub(crate) opening: Option<How>,
    pub(crate) linked: bool,
    /// It is among those that are to be read.
    pub(crate) ready: bool,
    /// Nothing is read for now, once it has come about and until it ends.
    pub(crate) paused: bool,
    /// The peer has ended its side, or the link has failed: reads go on until they tell.
    pub(crate) hung_up: bool,
    /// Nothing that is written arrives any more, and whether the system calls that an error.
    pub(crate) cut: Option<bool>,
    /// The peer's end was told, and sending goes on.
    pub(crate) peer_finished: bool,
    pub(crate) sending: Sending,
    /// What still comes is of no interest.
    pub(crate) discards: bool,
    /// The earliest of its deadlines that the node has noted.
    pub(crate) armed: Option<Instant>,
    /// Its deadline has passed, and something had come by then that was looked at first.
    pub(crate) spared: bool,
    /// It is to be closed, with this farewell, as soon as it has come about.
    pub(crate) farewell: Option<Vec<u8>>,
    /// How it is made again when it is lost, and when.
    pub(crate) again: Option<Box<Again>>,
    /// What the system said to a sender: it ends when everything that came before has been told.
    pub(crate) failed: Option<io::Error>,
    /// The latest of many pings, which is answered at the end of the turn.
    unanswered: Option<Box<[u8]>>,
    /// It is being closed.
    pub(crate) ending: Option<Box<Ending>>,
    /// When it began to come about, or, once it is there, when something came last.
    pub(crate) since: Instant,
    /// When the message that is not whole yet began.
    pub(crate) unfinished_since: Option<Instant>,
    /// What came of a message that is not whole: the first `filled` bytes.
    held: Vec<u8>,
    filled: usize,
    /// How much of it lies in the shared buffer still.
    left: usize,
    /// How many bytes the decoder waits for, those that are held included.
    need: usize,
    /// What this connection adds to `Holdings::unfinished`.
    counted: usize,
}

/// Whether anything is still sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    On,
    /// What waits is written, and then the peer is told that no more comes.
    Finishing,
    /// The peer was told.
    Finished,
}

/// A time after another; of one that cannot be told, some that nobody will see.
pub(crate) fn after(at: Instant, time: Duration) -> Instant {
    at.checked_add(time).unwrap_or_else(|| at + Duration::from_secs(1 << 32))
}

/// The end of a connection: what waits is written, the peer is told that no more comes, and what it still sends is read until
/// it ends its side too. A socket that is closed with something unread would take back what the peer has not read yet.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) reason: Reason,
    pub(crate) until: Instant,
    /// Everything was written, and the peer told.
    pub(crate) finished: bool,
    /// The peer has ended its side.
    pub(crate) ended: bool,
}

/// The bytes of the shared buffer that are being looked at.
#[derive(Debug, Default)]
pub(crate) struct Window {
    start: usize,
    end: usize,
    /// How many bytes may still be read in this turn.
    budget: usize,
    /// How many pings came in it, and were answered.
    pings: u32,
    /// Whether the link may have more.
    more: bool,
    /// Whether the message under way is read into the connection's own memory.
    long: bool,
}

impl Window {
    /// Nothing to look at, and so many bytes to be read.
    pub(crate) fn of(budget: usize) -> Window {
        Window { budget, ..Window::default() }
    }

    pub(crate) fn spend(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes);
    }

    /// What lies behind the last message in the shared buffer.
    pub(crate) fn rest(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Goes on where a run of messages ended.
    pub(crate) fn go_on_at(&mut self, start: usize) {
        self.start = start;
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.budget == 0
    }
}

/// Where a message lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the shared buffer.
    Shared(Range<usize>),
    /// In the connection's own memory, all of it.
    Held,
    /// In the decoder, all of it.
    Assembled,
}

/// What came of reading on.
pub(crate) enum Progress {
    Message(Place, Kind),
    /// The handshake is over.
    Open,
    /// Nothing more is there now.
    Idle,
    /// Others have their turn, and this one has one more later.
    Yield,
    /// It is over. What the peer is told first.
    End(Reason, Vec<u8>),
}

impl Incoming {
    pub(crate) fn new(key: Key, connection: Arc<Connection>, decoder: Decoder, how: How, now: Instant) -> Incoming {
        Incoming {
            key,
            connection,
            decoder,
            linked: false,
            opening: Some(how),
            ready: false,
            paused: false,
            hung_up: false,
            cut: None,
            peer_finished: false,
            sending: Sending::On,
            discards: false,
            armed: None,
            spared: false,
            farewell: None,
            again: None,
            failed: None,
            unanswered: None,
            ending: None,
            since: now,
            unfinished_since: None,
            held: Vec::new(),
            filled: 0,
            left: 0,
            need: 0,
            counted: 0,
        }
    }

    /// When something has to have happened, and what it is late for otherwise.
    pub(crate) fn due(&self, limits: &Limits) -> Option<(Instant, Option<Late>)> {
        if let Some(at) = self.tried_again_at() {
            return Some((at, None));
        }
        if let Some(ending) = &self.ending {
            return Some((ending.until, None));
        }
        if self.opening.is_some() {
            return Some((after(self.since, limits.handshake), Some(Late::Handshake)));
        }
        if self.is_paused() {
            return None;
        }
        let message = self.unfinished_since.map(|since| (after(since, limits.unfinished_for), Some(Late::Message)));
        let idle = limits.idle.map(|idle| (after(self.since, idle), Some(Late::Idle)));
        message.into_iter().chain(idle).min_by_key(|(at, _)| *at)
    }

    /// Whether nothing is to be read now.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused && self.opening.is_none() && self.ending.is_none()
    }

    /// While it waits to be made again: when it will be.
    pub(crate) fn tried_again_at(&self) -> Option<Instant> {
        self.again.as_ref()?.due
    }

    /// Begins a turn: what is held of a short message comes first in the buffer, unless it lies there already.
    pub(crate) fn begin(&mut self, buffer: &mut [u8], left: Option<Range<usize>>, limits: &Limits) -> Window {
        let mut window = Window { budget: limits.turn, more: true, long: self.need > LONG, ..Window::default() };
        if let Some(left) = left {
            (window.start, window.end) = (left.start, left.end);
            self.left = 0;
        } else if !window.long && self.filled > 0 {
            buffer[..self.filled].copy_from_slice(&self.held[..self.filled]);
            window.end = self.filled;
            self.release();
        }
        window
    }

    /// Lets go of a message that was told.
    pub(crate) fn release_told(&mut self, place: &Place) {
        match place {
            Place::Shared(_) => {}
            Place::Held => self.release(),
            Place::Assembled => *self.decoder.assembled() = Vec::new(),
        }
    }

    /// Keeps what was left in the shared buffer, where another connection is read next.
    pub(crate) fn hold(&mut self, left: &[u8]) {
        self.held = left.to_vec();
        self.filled = left.len();
        self.left = 0;
    }

    /// Lets go of what is held.
    fn release(&mut self) {
        self.held = Vec::new();
        self.filled = 0;
    }

    pub(crate) fn held(&mut self) -> &mut Vec<u8> {
        self.held.truncate(self.filled);
        &mut self.held
    }

    /// Goes on until there is something to tell, or nothing more to read.
    pub(crate) fn advance(
        &mut self,
        buffer: &mut [u8],
        window: &mut Window,
        limits: &Limits,
        now: Instant,
    ) -> Progress {
        let progress = self.go_on(buffer, window, limits, now);
        let goes_on = matches!(progress, Progress::Message(..) | Progress::Open);
        if !goes_on
            && let Some(payload) = self.unanswered.take()
            && let Err(error) = self.connection.pong(&payload)
        {
            self.failed.get_or_insert(error);
        }
        progress
    }

    /// The same, but for the answer to the last of many pings.
    fn go_on(&mut self, buffer: &mut [u8], window: &mut Window, limits: &Limits, now: Instant) -> Progress {
        loop {
            let there = if window.long { &mut self.held[..self.filled] } else { &mut buffer[window.start..window.end] };
            if self.discards {
                window.start = window.end;
            } else if !there.is_empty() {
                let step = match self.decoder.decode(there) {
                    Ok(step) => step,
                    Err(Fault { what, reply }) => return Progress::End(Reason::Violation(what), reply),
                };
                let base = window.start;
                if !window.long {
                    window.start += step.consumed;
                }
                match step.item {
                    Item::Partial { need } => {
                        self.need = need;
                        if step.consumed > 0 && window.start < window.end {
                            continue;
                        }
                    }
                    Item::Message { at, kind } => {
                        self.unfinished_since = None;
                        self.need = 0;
                        if std::mem::take(&mut window.long) {
                            debug_assert_eq!(at, 0..self.filled);
                            return Progress::Message(Place::Held, kind);
                        }
                        return Progress::Message(Place::Shared(base + at.start..base + at.end), kind);
                    }
                    Item::Assembled { kind } => {
                        self.unfinished_since = None;
                        self.need = 0;
                        return Progress::Message(Place::Assembled, kind);
                    }
                    Item::Open { reply } => {
                        return match self.connection.reply(&reply) {
                            Ok(()) => Progress::Open,
                            Err(error) => Progress::End(Reason::Io(error), Vec::new()),
                        };
                    }
                    Item::Ping { at } => {
                        let payload = &buffer[base + at.start..base + at.end];
                        window.pings += 1;
                        if window.pings > PINGS {
                            self.unanswered = Some(payload.into());
                        } else if let Err(error) = self.connection.pong(payload) {
                            return Progress::End(Reason::Io(error), Vec::new());
                        }
                        continue;
                    }
                    Item::Pong => continue,
                    Item::Close(close) => {
                        // The peer is told its own code: section 5.5.1 of RFC 6455.
                        let echo = crate::codec::websocket::Close { code: close.code, reason: String::new() }.payload();
                        return Progress::End(Reason::ClosedByPeer(close), echo);
                    }
                }
            }
            // All that is there was looked at: more has to be read.
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

    /// Reads once, into the shared buffer or, for a long message, to where it will be told.
    fn read(&mut self, buffer: &mut [u8], window: &mut Window, limits: &Limits, now: Instant) -> Result<(), Reason> {
        if !window.long && self.need > LONG {
            // Its header was consumed, so that what is left is the message's own.
            let begun = &buffer[window.start..window.end];
            self.held = Vec::with_capacity(FIRST.max(begun.len()));
            self.held.extend_from_slice(begun);
            self.filled = begun.len();
            (window.start, window.end) = (0, 0);
            window.long = true;
        }
        let space = if window.long {
            if self.filled == self.held.len() {
                let len = self.need.min(self.held.len().max(FIRST / 2) * 2);
                self.held.resize(len, 0);
                self.count(limits)?;
            }
            let end = self.held.len().min(self.filled + window.budget);
            &mut self.held[self.filled..end]
        } else {
            if window.start == window.end {
                (window.start, window.end) = (0, 0);
            } else if window.start + self.need > buffer.len() || window.end == buffer.len() {
                buffer.copy_within(window.start..window.end, 0);
                (window.start, window.end) = (0, window.end - window.start);
            }
            &mut buffer[window.end..]
        };
        let room = space.len();
        match self.connection.link.read(space) {
            Ok(0) => {
                let midway = window.long || window.start < window.end || self.decoder.midway();
                return Err(if midway { Reason::Truncated } else { Reason::Ended });
            }
            Ok(read) => {
                // A handshake has one time for all of it.
                if self.opening.is_none() {
                    self.since = now;
                }
                if window.long {
                    self.filled += read;
                } else {
                    window.end += read;
                }
                window.spend(read);
                window.more = read == room || self.hung_up || !self.connection.link.short_read_is_last();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => window.more = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Reason::Io(error)),
        }
        Ok(())
    }

    /// Ends a turn: what is left of a message is kept, of a short one for now where it lies.
    fn keep(&mut self, buffer: &[u8], window: &mut Window, limits: &Limits, now: Instant) -> Result<(), Reason> {
        if !window.long {
            let left = window.rest();
            self.left = left.len();
            if self.need > LONG {
                self.hold(&buffer[left]);
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

    /// Keeps the node's account of what is unfinished. Who asks for more than there is has to go, and nobody else.
    fn count(&mut self, limits: &Limits) -> Result<(), Reason> {
        let holds = self.held.len() + self.left + self.decoder.holds();
        let unfinished = &self.connection.holdings().unfinished;
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

    /// Whether nothing is left to be done in this turn, once the message that was found last has been told.
    pub(crate) fn is_done_with(&self, window: &Window, limits: &Limits) -> bool {
        let nothing_left = window.start == window.end && !window.more && !window.long;
        let noted = self.armed.is_some() || limits.idle.is_none();
        let said = self.failed.is_none() && self.unanswered.is_none();
        nothing_left && noted && said && self.counted == 0 && self.filled == 0
    }

    /// Takes no interest in what still comes, and lets go of what is there.
    pub(crate) fn discard(&mut self) {
        self.discards = true;
        (self.need, self.left) = (0, 0);
        self.release();
        self.decoder.clear();
        self.connection.holdings().unfinished.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.connection.holdings().unfinished.fetch_sub(self.counted, Ordering::Relaxed);
    }
}
