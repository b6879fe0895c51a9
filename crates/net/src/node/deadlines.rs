//! What has to have happened by a certain time.

use std::cmp::Reverse;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

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
            self.note(due, key);
        }
    }

    /// Notes that something has to have happened by then.
    pub(super) fn note(&mut self, at: Instant, key: Key) {
        self.deadlines.push(Reverse((at, key)));
        // Those of connections that are gone would stay until they are due.
        if self.deadlines.len() > 1024 + 4 * self.entries.len() {
            let entries = &self.entries;
            self.deadlines.retain(|Reverse((at, key))| match &entries.get(key.index as usize) {
                Some(Some(Entry::Stream(incoming))) => incoming.key == *key && incoming.armed == Some(*at),
                Some(Some(Entry::Listener { key: there, .. } | Entry::Datagrams { key: there, peer: Some(_), .. })) => {
                    there == key
                }
                _ => false,
            });
        }
    }

    /// The earliest deadline that still holds. Those before it, of connections that are gone or have come further since, are
    /// dropped or put off: they would wake the node for nothing.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(Reverse((at, key))) = self.deadlines.peek().copied() {
            match self.entries.get_mut(key.index as usize) {
                Some(Some(Entry::Listener { key: there, .. } | Entry::Datagrams { key: there, peer: Some(_), .. }))
                    if *there == key =>
                {
                    return Some(at);
                }
                Some(Some(Entry::Stream(incoming))) if incoming.key == key && incoming.armed == Some(at) => {
                    if incoming.due(&self.shared.limits).is_some_and(|(due, _)| due <= at) {
                        return Some(at);
                    }
                    self.deadlines.pop();
                    self.put_off(key);
                }
                _ => drop(self.deadlines.pop()),
            }
        }
        None
    }

    /// A connection's deadline is no more among those that are noted, and was none: the next one is.
    fn put_off(&mut self, key: Key) {
        let Some(incoming) = self.stream(key) else { return };
        (incoming.armed, incoming.spared) = (None, false);
        self.arm(key);
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
                Some(Some(Entry::Datagrams { key: there, peer: Some(_), .. })) if *there == key => {
                    self.forget(key, Reason::Late(Late::Handshake));
                }
                Some(Some(Entry::Stream(incoming))) if incoming.key == key && incoming.armed == Some(at) => {
                    incoming.armed = None;
                    match incoming.due(&self.shared.limits) {
                        // What came while the node was busy elsewhere is looked at first, once.
                        Some((due, Some(_))) if due <= self.clock && incoming.ready && !incoming.spared => {
                            incoming.spared = true;
                            let soon = self.clock + Duration::from_millis(1);
                            incoming.armed = Some(soon);
                            self.note(soon, key);
                        }
                        Some((due, late)) if due <= self.clock => self.too_late(key, late),
                        _ => self.put_off(key),
                    }
                }
                _ => {}
            }
        }
    }

    /// A deadline has passed.
    pub(super) fn too_late(&mut self, key: Key, late: Option<Late>) {
        let Some(incoming) = self.stream(key) else { return };
        let more = matches!(&incoming.opening, Some(How::Connecting(connecting)) if !connecting.others.is_empty());
        match late {
            None if incoming.tried_again_at().is_some() => self.try_again(key),
            None => self.give_up(key),
            Some(Late::Handshake) if more => self.not_connected(key, ErrorKind::TimedOut.into()),
            Some(Late::Handshake) => self.forget(key, Reason::Late(Late::Handshake)),
            Some(late) => self.end(key, Reason::Late(late), &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpStream;

    use super::*;
    use crate::event::Event;
    use crate::{Endpoint, Limits};

    const PATIENCE: Duration = Duration::from_secs(60);
    /// What no test takes.
    const LONG: Duration = Duration::from_secs(10_000);

    fn node(idle: Option<Duration>) -> Node<()> {
        Node::with_limits(Limits { handshake: LONG / 10, unfinished_for: LONG / 10, idle, ..Limits::default() })
            .unwrap()
    }

    /// Goes on until so many connections have come about.
    fn until_there(node: &mut Node<()>, mut count: usize) {
        while count > 0 {
            match node.next(Some(PATIENCE)).unwrap() {
                Some(Event::Connected(_) | Event::Accepted { .. }) => count -= 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Both ends of a connection of a node to itself. The listener comes first.
    fn to_itself(node: &mut Node<()>, scheme: &str) -> (Endpoint, Endpoint) {
        let handle = node.handle();
        let listener = handle.listen(format!("{scheme}://127.0.0.1:0")).unwrap();
        let endpoint = handle.connect(handle.local_address(listener).unwrap()).unwrap();
        until_there(node, 2);
        (listener, endpoint)
    }

    #[test]
    fn a_connection_that_came_about_is_not_waited_for() {
        for scheme in ["tcp", "tcp+msg", "ws"] {
            let mut node = node(None);
            to_itself(&mut node, scheme);
            assert_eq!(node.next_deadline(), None, "{scheme}");
            assert!(node.deadlines.is_empty(), "{scheme}");
        }
    }

    #[test]
    fn one_that_is_gone_is_not_waited_for() {
        let mut node = node(Some(LONG));
        let (listener, endpoint) = to_itself(&mut node, "ws");
        assert!(node.next_deadline().is_some());
        node.handle().close(listener);
        node.handle().close(endpoint);
        let mut closed = 0;
        while closed < 3 {
            closed += usize::from(matches!(node.next(Some(PATIENCE)).unwrap(), Some(Event::Closed { .. })));
        }
        assert_eq!(node.next_deadline(), None);
    }

    #[test]
    fn one_that_may_be_idle_for_so_long_is_waited_for_until_then() {
        let begun = Instant::now();
        let mut node = node(Some(LONG));
        to_itself(&mut node, "ws");
        assert!(node.next_deadline().is_some_and(|at| at >= begun + LONG));
    }

    #[test]
    fn a_message_is_waited_for_until_it_is_whole() {
        let mut node = node(None);
        let handle = node.handle();
        let listener = handle.listen("tcp+msg://127.0.0.1:0").unwrap();
        let port = handle.local_address(listener).unwrap().port().unwrap();
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        until_there(&mut node, 1);
        peer.write_all(b"\0\0\0\x05he").unwrap();
        let begun = Instant::now();
        while node.next_deadline().is_none() {
            assert!(node.next(Some(Duration::from_millis(1))).unwrap().is_none());
            assert!(begun.elapsed() < PATIENCE, "it is not waited for");
        }
        peer.write_all(b"llo").unwrap();
        match node.next(Some(PATIENCE)).unwrap() {
            Some(Event::Message(_, message)) => assert_eq!(*message, *b"hello"),
            other => panic!("{other:?}"),
        }
        assert!(node.next(Some(Duration::ZERO)).unwrap().is_none());
        assert_eq!(node.next_deadline(), None);
    }
}
