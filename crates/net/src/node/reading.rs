//! Reading what became ready, one message at a time.

use std::io::ErrorKind;
use std::time::Instant;

use super::entry::{Accepting, DatagramEntry, Entry};
use super::{Next, Node};
use crate::codec::{Kind, Rule};
use crate::event::{Endpoint, Reason};
use crate::incoming::{MessageLocation, Progress, Window};
use crate::run::Run;
use crate::slab::Key;
use crate::transport::Received;

impl<S> Node<S> {
    /// Starts to read an entry, or to accept at it. Does nothing if it was removed.
    pub(super) fn begin(&mut self, key: Key) {
        let index = key.index as usize;
        if !matches!(self.entries.get(index), Some(Some(entry)) if entry.key() == key) {
            return;
        }
        self.reader.slice.begin();
        if self.reader.partial.as_ref().is_none_or(|(of, _)| *of != index) {
            self.move_partial();
        }
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) => {
                incoming.reading.begin_turn();
                // A link is read once it is connected: until then it reads what is for itself.
                if incoming.is_paused() || incoming.life.is_connecting() {
                    return;
                }
                let left = self.reader.partial.take().map(|(_, left)| left);
                let window = incoming.begin(&mut self.reader.buffer, left, &self.shared.limits);
                self.reader.current = Some((index, window));
            }
            Some(Some(Entry::Datagrams(datagrams))) => {
                datagrams.reading.begin_turn();
                if datagrams.reading.is_paused() {
                    return;
                }
                self.reader.current = Some((index, Window::of(self.shared.limits.read_budget)));
            }
            Some(Some(Entry::Listener(listener))) => {
                listener.reading.begin_turn();
                if listener.accepting != Accepting::BackingOff && !listener.reading.is_paused() {
                    self.accept(index);
                }
            }
            _ => {}
        }
    }

    /// Moves an incomplete message from the shared buffer to its connection's own buffer.
    fn move_partial(&mut self) {
        if let Some((index, left)) = self.reader.partial.take()
            && let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index)
        {
            incoming.partial.keep(&self.reader.buffer[left]);
        }
    }

    /// Called when the time slice of the current connection or datagram socket is over: ends its
    /// turn, or begins another slice if nothing else is waiting. Handles commands and polls epoll
    /// to know, so the current connection may be gone afterwards.
    #[inline(never)]
    pub(super) fn end_slice_if_others_wait(&mut self) {
        let Some(index) = self.reader.current.as_ref().map(|(index, _)| *index) else { return };
        let now = Instant::now();
        self.clock = now;
        let wait = self.others_wait(index, now);
        // The commands and the readiness of others may have ended this connection.
        let Some((index, window)) = self.reader.current.take() else { return };
        let window = if wait { self.end_slice(index, window) } else { Some(window) };
        self.reader.current = window.map(|window| (index, window));
        self.reader.slice.renew(now);
    }

    /// Whether anything else than this entry has work for the node. Polls epoll without waiting.
    fn others_wait(&mut self, index: usize, now: Instant) -> bool {
        if self.turns.has_other_than(index) || self.next_deadline().is_some_and(|due| due <= now) {
            return true;
        }
        // The turn ends if epoll fails, and the next one reports it.
        if self.shared.has_work(now) || self.poll_now().is_err() {
            return true;
        }
        self.handle_readiness();
        self.turns.has_other_than(index) || !self.outbox.is_empty()
    }

    /// Ends the turn of a connection or a datagram socket. What was read and not delivered stays
    /// for its next turn. Returns the window if the turn has to go on.
    fn end_slice(&mut self, index: usize, mut window: Window) -> Option<Window> {
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) => {
                let Some(progress) =
                    incoming.interrupt(&self.reader.buffer, &mut window, &self.shared.limits, self.clock)
                else {
                    return Some(window);
                };
                let next = self.progress(index, window, progress);
                debug_assert!(next.is_none(), "the turn delivered nothing more");
                None
            }
            // The next attempt to receive finds the budget spent.
            Some(Some(Entry::Datagrams(_))) => {
                window.spend(usize::MAX);
                Some(window)
            }
            _ => None,
        }
    }

    /// Continues a read that paused to deliver a message.
    pub(super) fn continue_read(&mut self, index: usize, mut window: Window) -> Option<Next<S>> {
        match self.entries.get_mut(index) {
            Some(Some(Entry::Stream(incoming))) => {
                let progress = incoming.advance(&mut self.reader.buffer, &mut window, &self.shared.limits, self.clock);
                self.progress(index, window, progress)
            }
            Some(Some(Entry::Datagrams(_))) => self.receive(index, window),
            _ => None,
        }
    }

    pub(super) fn progress(&mut self, index: usize, window: Window, progress: Progress) -> Option<Next<S>> {
        let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index) else { return None };
        let key = incoming.key;
        if incoming.activity.since() == self.clock {
            self.polling.received(index, self.clock);
        }
        if matches!(progress, Progress::Idle | Progress::Yield) {
            let left = window.rest();
            self.reader.partial = (!left.is_empty()).then_some((index, left));
        }
        match progress {
            Progress::Message(place, kind) => {
                // A long message is worth several short ones: to inflate 16 MiB takes longer than a slice.
                let len = if place == MessageLocation::Assembled { incoming.decoder.assembled().len() } else { 0 };
                self.reader.slice.count(1 + (len >> 14) as u32);
                if matches!(place, MessageLocation::Shared(_)) && !incoming.life.is_ending() {
                    let rule = incoming.decoder.rule();
                    self.reader.run =
                        rule.map(|rule| Run::new(Endpoint::new(key), rule, window.rest(), self.reader.slice.left()));
                }
                if incoming.life.is_ending() {
                    // The connection is closing: discard the message.
                    self.reader.current = Some((index, window));
                    incoming.release_delivered(&place);
                    return None;
                }
                incoming.connection.received().messages.add(1);
                let done =
                    matches!(place, MessageLocation::Shared(_)) && incoming.is_done_with(&window, &self.shared.limits);
                self.reader.current = (!done).then_some((index, window));
                return Some(Next::Message(Endpoint::new(key), place, kind));
            }
            Progress::Open => {
                self.reader.current = Some((index, window));
                self.open(key);
            }
            Progress::Idle => match incoming.failed.take() {
                Some(error) => self.close_or_reconnect(key, Reason::Io(error)),
                None => self.arm(key),
            },
            Progress::Yield => {
                self.turns.queue_later(&mut incoming.reading, key);
                self.arm(key);
            }
            Progress::End(Reason::Ended, _) if self.stays_half_open(key) => {}
            Progress::End(reason, reply) => self.end_after_read(key, reason, &reply),
        }
        None
    }

    /// Ends a connection because of what was read. If an earlier send failed, its error is the
    /// reason instead of an end or an error of the read.
    fn end_after_read(&mut self, key: Key, reason: Reason, reply: &[u8]) {
        let failed = self.stream(key).and_then(|incoming| incoming.failed.take());
        match (reason, failed) {
            (Reason::Ended | Reason::Truncated | Reason::Io(_), Some(error)) => {
                self.close_or_reconnect(key, Reason::Io(error))
            }
            (reason, Some(_)) => self.close_or_reconnect(key, reason),
            (reason, None) => self.end(key, reason, reply),
        }
        // There may be more to read, which epoll does not report again.
        if let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(key.index as usize)
            && incoming.key == key
            && incoming.life.ending().is_some_and(|ending| !ending.peer_ended)
        {
            self.turns.queue_later(&mut incoming.reading, key);
        }
    }

    /// Receives one datagram, or a run of several of one sender.
    pub(super) fn receive(&mut self, index: usize, mut window: Window) -> Option<Next<S>> {
        let Some(Some(Entry::Datagrams(DatagramEntry { key, socket, reading, .. }))) = self.entries.get_mut(index)
        else {
            return None;
        };
        if window.is_spent() {
            self.turns.queue_later(reading, *key);
            return None;
        }
        match socket.datagrams.receive(&mut self.reader.buffer) {
            Ok(Received { len, each, from }) => {
                // A custom transport may report more than the buffer holds.
                let len = len.min(self.reader.buffer.len());
                socket.tally.received.messages.add(1);
                socket.tally.received.bytes.add(len as u64);
                window.spend(len.max(64));
                self.reader.slice.count(1);
                self.polling.received(index, self.clock);
                self.reader.current = Some((index, window));
                let endpoint = Endpoint { key: *key, remote: from };
                let each = if each == 0 { len } else { each };
                let first = each.min(len);
                self.reader.run =
                    (first < len).then(|| Run::new(endpoint, Rule::Equal { length: each }, first..len, u32::MAX));
                Some(Next::Message(endpoint, MessageLocation::Shared(0..first), Kind::Binary))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            // An error of an earlier send. Receiving it clears it, so the next call may find a
            // datagram.
            Err(_) => {
                window.spend(4096);
                self.reader.current = Some((index, window));
                None
            }
        }
    }
}
