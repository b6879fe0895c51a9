//! Reconnecting connections that were lost.

use std::sync::Arc;

use super::Node;
use super::counting::is_failure;
use crate::event::{Endpoint, Event, Reason};
use crate::incoming::{Sending, after};
use crate::lookup::{LookupOwner, name, resolve};
use crate::slab::Key;
use crate::trace;

impl<S> Node<S> {
    /// Schedules a reconnect after a connection was lost or could not connect, if
    /// [`Options::reconnect`](crate::Options::reconnect) asks for one. Otherwise changes nothing
    /// and returns the reason.
    pub(super) fn schedule_reconnect(&mut self, key: Key, reason: Reason) -> Result<(), Reason> {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return Err(reason) };
        if matches!(reason, Reason::Closed) || incoming.sending != Sending::On {
            return Err(reason);
        }
        let before = incoming.connection.clone();
        let failed = is_failure(incoming, &reason);
        let Some(mut reconnect) = incoming.reconnect.take() else { return Err(reason) };
        let Some(delay) = reconnect.next_delay() else { return Err(reason) };
        let Ok((begun, unwritten)) =
            self.shared.begin_placeholder((key, &before), &reconnect.address, &reconnect.options)
        else {
            return Err(reason);
        };
        if failed {
            self.shared.openings.failed.add(1);
        }
        reconnect.next_attempt = Some(after(clock, delay));
        if let Some(incoming) = self.stream(key) {
            incoming.reconnect = Some(reconnect);
        }
        self.shared.registry.remove(before.link.source());
        before.link.finish().ok();
        self.polling.forget(key.index as usize);
        self.add_connection(key, *begun);
        trace::lost(Endpoint::new(key), &reason, delay);
        self.outbox.push(Event::Lost { endpoint: Endpoint::new(key), reason, unwritten, again_in: delay });
        Ok(())
    }

    /// Reconnects: the delay has passed.
    pub(super) fn reconnect_now(&mut self, key: Key) {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return };
        incoming.activity.begin_at(clock);
        let connection = incoming.connection.clone();
        let Some(reconnect) = &mut incoming.reconnect else { return };
        reconnect.next_attempt = None;
        let (address, options) = (reconnect.address.clone(), reconnect.options.clone());
        trace::connecting(Endpoint::new(key), &address);
        self.arm(key);
        let dialled = options.dialled(&address);
        let begun = match name(dialled) {
            Some(name) => self.shared.lookups.begin(key, LookupOwner::Stream(Arc::downgrade(&connection)), name),
            None => resolve(dialled).and_then(|to| self.connect_replacement(key, &address, to, &options)),
        };
        if let Err(error) = begun {
            self.close_or_reconnect(key, Reason::NotConnected(error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::*;
    use crate::command::Command;
    use crate::{Options, Outcome, Reconnect};

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_late_send_error_of_a_lost_connection_does_not_affect_its_successor() {
        let mut node = Node::<()>::new().unwrap();
        let handle = node.handle();
        handle.listen("inproc://an-error-that-comes-late").unwrap();
        let options = Options::default().reconnect(Reconnect::default().initial_delay(Duration::from_millis(1)));
        let endpoint = handle.connect_with("inproc://an-error-that-comes-late", &options).unwrap();
        let first = handle.shared.connection(endpoint.key).unwrap();
        let (mut connected, mut accepted) = (0, 0);
        while connected < 2 || accepted < 2 {
            match node.next(Some(PATIENCE)).unwrap().unwrap() {
                Event::Connected(_) => connected += 1,
                Event::Accepted { endpoint, .. } => {
                    accepted += 1;
                    if accepted == 1 {
                        handle.close(endpoint);
                    }
                }
                Event::Lost { reason, .. } => assert!(matches!(reason, Reason::Ended)),
                _ => {}
            }
        }
        handle.shared.command(Command::SendFailed(endpoint.key, first, io::ErrorKind::BrokenPipe.into()));
        // That command is handled before this signal is delivered.
        handle.signal_after(Duration::from_millis(1), ());
        while let event = node.next(Some(PATIENCE)).unwrap().unwrap()
            && !matches!(event, Event::Signal(()))
        {
            assert!(!matches!(event, Event::Lost { .. }), "{event:?}");
        }
        assert!(handle.send(endpoint, b"still here").is_accepted());
    }

    #[test]
    fn bytes_of_a_lost_connection_no_longer_count_as_queued() {
        let (server, mut node) = (Node::<()>::new().unwrap(), Node::<()>::new().unwrap());
        server.handle().listen("inproc://what-was-lost").unwrap();
        let handle = node.handle();
        // The delay is random between 0 and this bound. The chance that it ends during this test is
        // one in a million.
        let hours = Duration::from_secs(1_000_000);
        let options = Options::default().reconnect(Reconnect::default().initial_delay(hours).max_delay(hours));
        let endpoint = handle.connect_with("inproc://what-was-lost", &options).unwrap();
        let queued = || handle.shared.totals.queued.load(Ordering::SeqCst);
        assert!(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Connected(_))));
        assert_eq!(handle.send(endpoint, &[7; 1_000_000]), Outcome::Queued);
        let waits = queued();
        drop(server);
        match node.next(Some(PATIENCE)).unwrap() {
            // Up to an eighth more is counted.
            Some(Event::Lost { unwritten, .. }) => assert!((unwritten..=unwritten + unwritten / 8).contains(&waits)),
            other => panic!("{other:?}"),
        }
        assert_eq!(queued(), 0);
        assert_eq!(handle.send(endpoint, b"early"), Outcome::Queued);
        assert_eq!(queued(), 5);
        handle.close(endpoint);
        assert!(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Closed { reason: Reason::Unwritten(5), .. })));
        assert_eq!((queued(), handle.shared.count()), (0, 0));
    }
}
