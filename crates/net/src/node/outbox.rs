//! The events that wait to be delivered.

use std::collections::VecDeque;

use crate::event::{AcceptFailure, Event};
use crate::signals::Timer;

/// The events that wait to be delivered. Messages are not among them: they are delivered as they
/// are read, when nothing waits here.
pub(super) struct Outbox<S> {
    events: VecDeque<Event<'static, S>>,
    /// Delayed signals whose time has come. They are delivered behind `events`, unless they are
    /// cancelled before.
    due_signals: VecDeque<Timer>,
    /// For each `AcceptFailed` among the events what is to be reported, in the same order.
    failures: VecDeque<AcceptFailure>,
    /// The failure that was delivered last. Its event borrows it.
    delivered_failure: Option<Box<AcceptFailure>>,
}

impl<S> Outbox<S> {
    pub(super) fn new() -> Outbox<S> {
        Outbox {
            events: VecDeque::new(),
            due_signals: VecDeque::new(),
            failures: VecDeque::new(),
            delivered_failure: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.due_signals.is_empty()
    }

    pub(super) fn push(&mut self, event: Event<'static, S>) {
        self.events.push_back(event);
    }

    /// Adds an event ahead of all others.
    pub(super) fn push_first(&mut self, event: Event<'static, S>) {
        self.events.push_front(event);
    }

    /// Adds `AcceptFailed`.
    pub(super) fn push_failure(&mut self, failure: AcceptFailure) {
        self.failures.push_back(failure);
        self.events.push_back(Event::AcceptFailed(AcceptFailure::PLACEHOLDER));
    }

    /// Adds delayed signals whose time has come.
    pub(super) fn push_due(&mut self, timers: impl Iterator<Item = Timer>) {
        self.due_signals.extend(timers);
    }

    /// Takes the next event. [`Outbox::lend`] completes it.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Event<'static, S>> {
        self.events.pop_front()
    }

    /// Takes the next delayed signal that is due.
    #[inline]
    pub(super) fn pop_due(&mut self) -> Option<Timer> {
        self.due_signals.pop_front()
    }

    /// Completes an event that was just taken, with what it borrows.
    pub(super) fn lend(&mut self, event: Event<'static, S>) -> Event<'_, S> {
        let Event::AcceptFailed(placeholder) = event else { return event };
        self.delivered_failure = self.failures.pop_front().map(Box::new);
        Event::AcceptFailed(self.delivered_failure.as_deref().unwrap_or(placeholder))
    }

    /// The events that wait, the next one first.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Event<'static, S>> {
        self.events.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Endpoint, Reason};
    use crate::slab::Slab;

    #[test]
    fn each_failure_is_delivered_with_its_own_event() {
        let mut slab = Slab::new();
        let endpoints: Vec<_> = (0..3).map(|_| Endpoint::new(slab.insert_with(|_| ()))).collect();
        let mut outbox = Outbox::<u8>::new();
        for endpoint in &endpoints[..2] {
            let listener = endpoints[2];
            outbox.push_failure(AcceptFailure { endpoint: *endpoint, listener, peer: None, reason: Reason::Ended });
            outbox.push(Event::Drained(listener));
        }
        outbox.push_first(Event::Signal(7));
        let mut delivered = Vec::new();
        while let Some(event) = outbox.pop() {
            match outbox.lend(event) {
                Event::AcceptFailed(failure) => delivered.push(failure.endpoint),
                Event::Drained(endpoint) => delivered.push(endpoint),
                Event::Signal(signal) => assert_eq!((signal, delivered.len()), (7, 0)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(delivered, [endpoints[0], endpoints[2], endpoints[1], endpoints[2]]);
        assert!(outbox.is_empty());
    }
}
