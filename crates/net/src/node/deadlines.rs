//! What has to have happened by a certain time.

use std::cmp::Reverse;
use std::io::ErrorKind;
use std::time::Duration;

use super::{Entry, Node};
use crate::event::{Late, Reason};
use crate::shared::How;
use crate::slab::Key;

impl<S> Node<S> {
    /// Notes a connection's next deadline, unless an earlier one is noted, which will look for the next.
    pub(super) fn arm(&mut self, key: Key) {
        let incoming = match self.entries.get_mut(key.index as usize) {
            Some(Some(Entry::Stream(incoming))) if incoming.key == key => incoming,
            _ => return,
        };
        let Some((due, _)) = incoming.due(&self.shared.limits) else { return };
        if incoming.armed.is_none_or(|armed| due < armed) {
            incoming.armed = Some(due);
            self.deadlines.push(Reverse((due, key)));
        }
        // Those of connections that are gone would stay until they are due.
        if self.deadlines.len() > 1024 + 4 * self.entries.len() {
            let entries = &self.entries;
            self.deadlines.retain(|Reverse((at, key))| match &entries.get(key.index as usize) {
                Some(Some(Entry::Stream(incoming))) => incoming.key == *key && incoming.armed == Some(*at),
                Some(Some(Entry::Listener { key: there, .. })) => there == key,
                _ => false,
            });
        }
    }

    /// Does what is due.
    pub(super) fn deadlines(&mut self) {
        while let Some(Reverse((at, key))) = self.deadlines.peek().copied()
            && at <= self.clock
        {
            self.deadlines.pop();
            let index = key.index as usize;
            match self.entries.get_mut(index) {
                Some(Some(Entry::Listener { key: there, resting, .. })) if *there == key => {
                    *resting = false;
                    self.will_read(index);
                }
                Some(Some(Entry::Stream(incoming))) if incoming.key == key && incoming.armed == Some(at) => {
                    incoming.armed = None;
                    match incoming.due(&self.shared.limits) {
                        // What came while the node was busy elsewhere is looked at first, once.
                        Some((due, Some(_))) if due <= self.clock && incoming.ready && !incoming.spared => {
                            incoming.spared = true;
                            let soon = self.clock + Duration::from_millis(1);
                            incoming.armed = Some(soon);
                            self.deadlines.push(Reverse((soon, key)));
                        }
                        Some((due, late)) if due <= self.clock => self.too_late(key, late),
                        _ => {
                            incoming.spared = false;
                            self.arm(key);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// A deadline has passed.
    pub(super) fn too_late(&mut self, key: Key, late: Option<Late>) {
        let Some(incoming) = self.stream(key) else { return };
        let more = matches!(&incoming.opening, Some(How::Connecting { others, .. }) if !others.is_empty());
        match late {
            None if incoming.tried_again_at().is_some() => self.try_again(key),
            None => self.give_up(key),
            Some(Late::Handshake) if more => self.not_connected(key, ErrorKind::TimedOut.into()),
            Some(Late::Handshake) => self.forget(key, Reason::Late(Late::Handshake)),
            Some(late) => self.end(key, Reason::Late(late), &[]),
        }
    }
}
