//! What is told next, and when it is waited for.

use std::io;
use std::mem;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Entry, Next, Node};
use crate::codec::Kind;
use crate::event::{Bytes, Endpoint, Event, Message};
#[cfg(doc)]
use crate::handle::Handle;
use crate::incoming::{Place, after};

impl<S> Node<S> {
    /// Tells what is there now, at least one event if one comes in time, and how many it were. For a loop of one's own: a
    /// timeout of zero never waits, `None` waits for as long as it takes, or until [`Handle::stop`]. However much peers send, it
    /// tells what one look at them found, and returns.
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    pub fn poll(&mut self, timeout: Option<Duration>, mut tell: impl FnMut(Event<'_, S>)) -> io::Result<usize> {
        self.poll_until(timeout, |event| {
            tell(event);
            ControlFlow::Continue(())
        })
    }

    /// As [`Node::poll`], until `tell` has had enough: it is told what is left the next time.
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
        mut tell: impl FnMut(Event<'_, S>) -> ControlFlow<()>,
    ) -> io::Result<usize> {
        let mut count = 0;
        if self.tell_run(&mut tell, &mut count).is_break() {
            return Ok(count);
        }
        let mut next = if count == 0 { self.advance(timeout)? } else { self.at_hand() };
        while let Some(found) = next {
            count += 1;
            if tell(self.told(found)).is_break() || self.tell_run(&mut tell, &mut count).is_break() {
                break;
            }
            next = self.at_hand();
        }
        Ok(count)
    }

    /// The next event, or none if none comes in time. `None` waits for as long as it takes, or until [`Handle::stop`].
    ///
    /// # Errors
    ///
    /// As [`Node::run`].
    // The message that is found first need not be moved to memory then, only to be read from there.
    #[inline(always)]
    pub fn next(&mut self, timeout: Option<Duration>) -> io::Result<Option<Event<'_, S>>> {
        if let Some(run) = &mut self.run
            && let Some(at) = run.next(&mut self.buffer)
        {
            let message = Message { bytes: Bytes::Lent(&self.buffer[at]), kind: Kind::Binary };
            return Ok(Some(Event::Message(run.from, message)));
        }
        self.next_of_all(timeout)
    }

    /// As [`Node::next`], of whatever it is.
    #[inline(never)]
    fn next_of_all(&mut self, timeout: Option<Duration>) -> io::Result<Option<Event<'_, S>>> {
        let next = self.advance(timeout)?;
        Ok(next.map(|next| self.told(next)))
    }

    /// Tells the messages that lie whole behind the last one, and counts them.
    #[inline]
    fn tell_run(
        &mut self,
        tell: &mut impl FnMut(Event<'_, S>) -> ControlFlow<()>,
        count: &mut usize,
    ) -> ControlFlow<()> {
        let Some(run) = &mut self.run else { return ControlFlow::Continue(()) };
        while let Some(at) = run.next(&mut self.buffer) {
            *count += 1;
            tell(Event::Message(run.from, Message { bytes: Bytes::Lent(&self.buffer[at]), kind: Kind::Binary }))?;
        }
        ControlFlow::Continue(())
    }

    pub(super) fn told(&mut self, next: Next<S>) -> Event<'_, S> {
        match next {
            Next::Event(event) => event,
            Next::Message(from, place, kind) => Event::Message(from, self.message(from, place, kind)),
        }
    }

    /// Lends a message from where it lies.
    fn message(&mut self, from: Endpoint, place: Place, kind: Kind) -> Message<'_> {
        let index = from.key.index as usize;
        let at: Range<usize> = match place {
            Place::Shared(at) => at,
            Place::Held | Place::Assembled => {
                self.told = Some((index, place.clone()));
                let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index) else {
                    unreachable!("its message has just been read")
                };
                let owner = match place {
                    Place::Held => incoming.held(),
                    _ => incoming.decoder.assembled(),
                };
                return Message { bytes: Bytes::Whole(owner), kind };
            }
        };
        Message { bytes: Bytes::Lent(&self.buffer[at]), kind }
    }

    /// Goes on until there is something to tell, or the time is over.
    pub(super) fn advance(&mut self, timeout: Option<Duration>) -> io::Result<Option<Next<S>>> {
        let mut until = None;
        let mut waited = false;
        loop {
            if let Some(next) = self.at_hand() {
                return Ok(Some(next));
            }
            if waited && timeout == Some(Duration::ZERO) || self.shared.stopped.load(Ordering::SeqCst) {
                return Ok(None);
            }
            self.clock = Instant::now();
            if mem::take(&mut self.came) {
                self.spins_from = self.clock;
            }
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

    /// What is to be told before another look at what has become ready.
    fn at_hand(&mut self) -> Option<Next<S>> {
        if let Some(mut run) = self.run.take() {
            if let Some(at) = run.next(&mut self.buffer) {
                let from = run.from;
                self.run = Some(run);
                return Some(Next::Message(from, Place::Shared(at), Kind::Binary));
            }
            if let Some((_, window)) = &mut self.current {
                window.go_on_at(run.start());
            }
        }
        if let Some((index, place)) = self.told.take()
            && let Some(Some(Entry::Stream(incoming))) = self.entries.get_mut(index)
        {
            incoming.release_told(&place);
        }
        loop {
            if let Some(event) = self.outbox.pop_front() {
                return Some(Next::Event(event));
            }
            if let Some((index, window)) = self.current.take() {
                if let Some(next) = self.read_on(index, window) {
                    return Some(next);
                }
            } else {
                let index = self.now.pop_front()?;
                self.begin(index);
            }
        }
    }
}
