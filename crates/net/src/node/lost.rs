//! Connections that are made again when they are lost.

use super::Node;
use crate::event::{Endpoint, Event, Reason};
use crate::incoming::{Sending, after};
use crate::lookup::{name, resolve};
use crate::slab::Key;

impl<S> Node<S> {
    /// Has a connection that was lost, or did not come about, made again later, where that was asked for. Otherwise it is not
    /// touched, and the reason given back.
    pub(super) fn lose(&mut self, key: Key, reason: Reason) -> Result<(), Reason> {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return Err(reason) };
        if matches!(reason, Reason::Closed) || incoming.sending != Sending::On {
            return Err(reason);
        }
        let before = incoming.connection.clone();
        let Some(mut again) = incoming.again.take() else { return Err(reason) };
        let Some(delay) = again.next_delay() else { return Err(reason) };
        let Ok((begun, unwritten)) = self.shared.wait_instead((key, &before), &again.address, &again.options) else {
            return Err(reason);
        };
        again.due = Some(after(clock, delay));
        if let Some(incoming) = self.stream(key) {
            incoming.again = Some(again);
        }
        self.shared.registry.remove(before.link.source());
        before.link.finish().ok();
        self.last = self.last.filter(|(last, _)| *last != key.index as usize);
        self.look_after(key, *begun);
        self.outbox.push_back(Event::Lost { endpoint: Endpoint::new(key), reason, unwritten, again_in: delay });
        Ok(())
    }

    /// The delay is over.
    pub(super) fn try_again(&mut self, key: Key) {
        let clock = self.clock;
        let Some(incoming) = self.stream(key) else { return };
        incoming.since = clock;
        let connection = incoming.connection.clone();
        let Some(again) = &mut incoming.again else { return };
        again.due = None;
        let (address, options) = (again.address.clone(), again.options.clone());
        self.arm(key);
        let begun = match name(&address) {
            Some((host, port)) => self.shared.lookups.begin(key, &connection, host, port),
            None => resolve(&address).and_then(|to| self.connect_instead(key, &address, to, &options)),
        };
        if let Err(error) = begun {
            self.forget(key, Reason::NotConnected(error));
        }
    }
}
