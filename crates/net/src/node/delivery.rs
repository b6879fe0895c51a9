//! Delivering events: which one is next, and when to wait for one.

use std::io;
use std::mem;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::reader::Lent;
use super::{Entry, Next, Node};
use crate::codec::Kind;
use crate::event::{Bytes, Endpoint, Event, Message};
#[cfg(doc)]
use crate::handle::Handle;
use crate::incoming::{MessageLocation, after};

impl<S> Node<S> {
    /// Delivers the events that are there now and returns their number; waits for the first one if
    /// there is none. For custom loops.
    ///
    /// A timeout of zero never waits. `None` waits without limit, until an event or
    /// [`Handle::stop`]. The call delivers what one poll of the connections found and then returns,
    /// however much peers send.
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    pub fn poll(&mut self, timeout: Option<Duration>, mut on_event: impl FnMut(Event<'_, S>)) -> io::Result<usize> {
        self.poll_until(timeout, |event| {
            on_event(event);
            ControlFlow::Continue(())
        })
    }

    /// As [`Node::poll`], but `on_event` can stop early by returning `Break`. The next call
    /// delivers the remaining events.
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    ///
    /// ```
    /// # use estafette_net::{Event, Node};
    /// use std::ops::ControlFlow;
    ///
    /// let mut node = Node::<u32>::new()?;
    /// let handle = node.handle();
    /// (1..=3).for_each(|i| handle.signal(i));
    /// let until_two = |event: Event<'_, u32>| match event {
    ///     Event::Signal(2) => ControlFlow::Break(()),
    ///     _ => ControlFlow::Continue(()),
    /// };
    /// assert_eq!(node.poll_until(None, until_two)?, 2);
    /// assert_eq!(node.poll_until(None, until_two)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_until(
        &mut self,
        timeout: Option<Duration>,
        mut on_event: impl FnMut(Event<'_, S>) -> ControlFlow<()>,
    ) -> io::Result<usize> {
        let mut count = 0;
        if self.deliver_run(&mut on_event, &mut count).is_break() {
            return Ok(count);
        }
        let mut next = if count == 0 { self.advance(timeout)? } else { self.next_ready() };
        while let Some(found) = next {
            count += 1;
            if on_event(self.make_event(found)).is_break() || self.deliver_run(&mut on_event, &mut count).is_break() {
                break;
            }
            next = self.next_ready();
        }
        Ok(count)
    }

    /// Returns the next event, or `None` if none arrives before the timeout. A timeout of `None`
    /// waits without limit, until [`Handle::stop`]. Nothing is lost if the event is dropped early,
    /// except its own message.
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    // Inlined, so that a message at hand is returned in registers instead of through memory.
    #[inline(always)]
    pub fn next(&mut self, timeout: Option<Duration>) -> io::Result<Option<Event<'_, S>>> {
        if !self.must_close()
            && let Some(run) = &mut self.reader.run
            && let Some(at) = run.next(&mut self.reader.buffer)
        {
            let message = Message { bytes: Bytes::Lent(&self.reader.buffer[at]), kind: Kind::Binary };
            return Ok(Some(Event::Message(run.from, message)));
        }
        self.next_of_all(timeout)
    }

    /// The slow path of [`Node::next`]: anything but the next message of a run.
    #[inline(never)]
    fn next_of_all(&mut self, timeout: Option<Duration>) -> io::Result<Option<Event<'_, S>>> {
        let next = self.advance(timeout)?;
        Ok(next.map(|next| self.make_event(next)))
    }

    /// Delivers the complete messages behind the last one, and counts them.
    #[inline]
    fn deliver_run(
        &mut self,
        on_event: &mut impl FnMut(Event<'_, S>) -> ControlFlow<()>,
        count: &mut usize,
    ) -> ControlFlow<()> {
        loop {
            let Some(run) = &mut self.reader.run else { return ControlFlow::Continue(()) };
            let close_requests = &self.shared.close_requests;
            while close_requests.count() == self.closes_seen
                && let Some(at) = run.next(&mut self.reader.buffer)
            {
                *count += 1;
                on_event(Event::Message(
                    run.from,
                    Message { bytes: Bytes::Lent(&self.reader.buffer[at]), kind: Kind::Binary },
                ))?;
            }
            if !self.extend_run() {
                return ControlFlow::Continue(());
            }
        }
    }

    /// Lets a run go on after a look at the clock, unless the time of its connection is over.
    /// Returns whether it goes on. Otherwise each look would end the run, and the decoder would
    /// have to find the next message, which takes longer.
    #[inline(never)]
    fn extend_run(&mut self) -> bool {
        let Some(run) = self.reader.run.as_ref().filter(|run| run.is_used_up()) else { return false };
        let Some(allowed) = self.reader.slice.extend(run.delivered()) else { return false };
        self.count_run();
        if let Some(run) = &mut self.reader.run {
            run.extend(allowed);
        }
        true
    }

    pub(super) fn make_event(&mut self, next: Next<S>) -> Event<'_, S> {
        match next {
            Next::Event(event) => self.lend_event(event),
            Next::Message(from, place, kind) => Event::Message(from, self.message(from, place, kind)),
        }
    }

    /// Ends the run of complete messages, and counts its messages.
    fn finish_run(&mut self) {
        self.count_run();
        if let Some(run) = &self.reader.run {
            self.reader.slice.count(run.delivered());
        }
        self.reader.end_run();
    }

    /// Frees what existed for the last delivered event.
    #[inline(never)]
    fn end_loan(&mut self) {
        match mem::take(&mut self.reader.lent) {
            Lent::Nothing => {}
            Lent::Message(index, place) => {
                if let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index) {
                    incoming.release_delivered(&place);
                }
            }
            Lent::LastCounters(key) => self.shared.last_counters.forget(key),
        }
    }

    /// Completes an event with what exists while it is delivered. Not inlined, so that what
    /// delivers messages stays small.
    #[inline(never)]
    fn lend_event(&mut self, event: Event<'static, S>) -> Event<'_, S> {
        let event = self.outbox.lend(event);
        if let Some(endpoint) = event.ended() {
            self.reader.lent = Lent::LastCounters(endpoint.key);
        }
        event
    }

    /// Lends a message from where it lies.
    fn message(&mut self, from: Endpoint, place: MessageLocation, kind: Kind) -> Message<'_> {
        let index = from.key.index as usize;
        let at: Range<usize> = match place {
            MessageLocation::Shared(at) => at,
            MessageLocation::Buffered | MessageLocation::Assembled => {
                self.reader.lent = Lent::Message(index, place.clone());
                let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index) else {
                    unreachable!("its message has just been read")
                };
                let owner = match place {
                    MessageLocation::Buffered => incoming.partial.whole(),
                    _ => incoming.decoder.assembled(),
                };
                return Message { bytes: Bytes::Whole(owner), kind };
            }
        };
        Message { bytes: Bytes::Lent(&self.reader.buffer[at]), kind }
    }

    /// Runs turns until there is an event to deliver or the timeout passes.
    pub(super) fn advance(&mut self, timeout: Option<Duration>) -> io::Result<Option<Next<S>>> {
        let mut until = None;
        let mut waited = false;
        loop {
            if let Some(next) = self.next_ready() {
                return Ok(Some(next));
            }
            self.complete_shutdown();
            if waited && timeout == Some(Duration::ZERO) || self.shared.stopped.load(Ordering::SeqCst) {
                return Ok(None);
            }
            self.clock = Instant::now();
            self.polling.asks(self.clock);
            let left = match timeout {
                None => None,
                Some(timeout) => {
                    let until = *until.get_or_insert_with(|| after(self.clock, timeout));
                    if waited && self.clock >= until {
                        return Ok(None);
                    }
                    Some(until.saturating_duration_since(self.clock))
                }
            };
            self.turn(left)?;
            waited = true;
        }
    }

    /// Returns the next event that needs no further poll of the descriptors.
    pub(super) fn next_ready(&mut self) -> Option<Next<S>> {
        if self.must_close() {
            // A turn may have lasted for seconds, and commands begin periods of time.
            self.clock = Instant::now();
            self.commands();
        }
        while let Some(run) = &mut self.reader.run {
            if let Some(at) = run.next(&mut self.reader.buffer) {
                return Some(Next::Message(run.from, MessageLocation::Shared(at), Kind::Binary));
            }
            if !self.extend_run() {
                self.finish_run();
            }
        }
        if !matches!(self.reader.lent, Lent::Nothing) {
            self.end_loan();
        }
        loop {
            if let Some(event) = self.outbox.pop() {
                return Some(Next::Event(event));
            }
            if let Some(signal) = self.take_due_signal() {
                return Some(Next::Event(Event::Signal(signal)));
            }
            if let Some((index, window)) = self.reader.current.take() {
                if self.reader.slice.is_over() {
                    self.reader.current = Some((index, window));
                    self.end_slice_if_others_wait();
                    continue;
                }
                if let Some(next) = self.continue_read(index, window) {
                    return Some(next);
                }
            } else {
                let key = self.turns.pop()?;
                self.begin(key);
            }
        }
    }
}
