//! Two nodes in one thread, stepped in turn until a condition holds, so that no test waits for a
//! fixed time.

use std::fmt;
use std::time::{Duration, Instant};

use crate::{Address, Endpoint, Event, Handle, Kind, Limits, Node, Options};

/// How long anything may take before a test fails, by default.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How many of the last events an error shows.
const SHOWN: usize = 20;

/// An owned copy of an [`Event`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Seen {
    /// As [`Event::Connected`].
    Connected(Endpoint),
    /// As [`Event::Accepted`]: the connection and its listener.
    Accepted(Endpoint, Endpoint),
    /// As [`Event::AcceptFailed`]: the listener, the peer, and the reason.
    AcceptFailed(Endpoint, Option<Address>, String),
    /// As [`Event::Message`].
    Message(Endpoint, Kind, Vec<u8>),
    /// As [`Event::Drained`].
    Drained(Endpoint),
    /// As [`Event::Finished`].
    Finished(Endpoint),
    /// As [`Event::Lost`]: the reason, and how many bytes were not written.
    Lost(Endpoint, String, usize),
    /// As [`Event::Closed`]: with the reason.
    Closed(Endpoint, String),
    /// As [`Event::Signal`].
    Signal(u32),
}

/// A node, and all its events so far.
#[non_exhaustive]
pub struct Side {
    /// The node.
    pub node: Node<u32>,
    /// Its handle.
    pub handle: Handle<u32>,
    /// Its events, in order. A test may clear them.
    pub seen: Vec<Seen>,
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Side").field(&summary(&self.seen)).finish()
    }
}

impl Default for Side {
    fn default() -> Side {
        Side::new()
    }
}

impl Side {
    /// Creates a node with the default limits.
    pub fn new() -> Side {
        Side::with(Limits::default())
    }

    /// Creates a node with custom limits.
    pub fn with(limits: Limits) -> Side {
        Side::of(Node::with_limits(limits).expect("the system has no descriptors left for a node"))
    }

    /// Wraps a node that has reported nothing yet.
    pub(crate) fn of(node: Node<u32>) -> Side {
        Side { handle: node.handle(), node, seen: Vec::new() }
    }

    /// Polls the node for up to 1 ms and records its events.
    pub fn step(&mut self) {
        let seen = &mut self.seen;
        let polled = self.node.poll(Some(Duration::from_millis(1)), |event| {
            seen.push(match event {
                Event::Connected(endpoint) => Seen::Connected(endpoint),
                Event::Accepted { endpoint, listener } => Seen::Accepted(endpoint, listener),
                Event::AcceptFailed(failure) => {
                    Seen::AcceptFailed(failure.listener, failure.peer.clone(), failure.reason.to_string())
                }
                Event::Message(from, message) => Seen::Message(from, message.kind(), message.take()),
                Event::Drained(endpoint) => Seen::Drained(endpoint),
                Event::Finished(endpoint) => Seen::Finished(endpoint),
                Event::Lost { endpoint, reason, unwritten, .. } => Seen::Lost(endpoint, reason.to_string(), unwritten),
                Event::Closed { endpoint, reason } => Seen::Closed(endpoint, reason.to_string()),
                Event::Signal(signal) => Seen::Signal(signal),
            });
        });
        polled.expect("a node can wait, whatever its peers do");
    }

    /// Steps until `pick` finds something in an event, and returns that.
    #[track_caller]
    pub fn until<T>(&mut self, what: &str, pick: impl Fn(&Seen) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = self.seen.iter().find_map(&pick) {
                return found;
            }
            assert!(begun.elapsed() < PATIENCE, "never {what}: {self:?}");
            self.step();
        }
    }

    /// Steps until `holds` returns true for the events.
    #[track_caller]
    pub fn step_until(&mut self, what: &str, holds: impl Fn(&[Seen]) -> bool) {
        let begun = Instant::now();
        while !holds(&self.seen) {
            assert!(begun.elapsed() < PATIENCE, "never {what}: {self:?}");
            self.step();
        }
    }

    /// Steps until an endpoint is closed, and returns the reason.
    #[track_caller]
    pub fn until_closed(&mut self, endpoint: Endpoint) -> String {
        self.until("closed", |seen| match seen {
            Seen::Closed(which, reason) if *which == endpoint => Some(reason.clone()),
            _ => None,
        })
    }

    /// The messages of an endpoint, in order.
    pub fn messages(&self, of: Endpoint) -> Vec<&[u8]> {
        self.messages_of(of).collect()
    }

    /// The total length of the messages of an endpoint, in bytes.
    pub fn received(&self, of: Endpoint) -> usize {
        self.messages_of(of).map(<[u8]>::len).sum()
    }

    fn messages_of(&self, of: Endpoint) -> impl Iterator<Item = &[u8]> {
        self.seen.iter().filter_map(move |seen| match seen {
            Seen::Message(from, _, message) if *from == of => Some(&message[..]),
            _ => None,
        })
    }

    /// How many times this event was reported.
    pub fn count(&self, what: &Seen) -> usize {
        self.seen.iter().filter(|seen| *seen == what).count()
    }

    /// The connections that a listener accepted, in order.
    pub fn accepted(&self, by: Endpoint) -> Vec<Endpoint> {
        let accepted = self.seen.iter().filter_map(|seen| match seen {
            Seen::Accepted(endpoint, listener) if *listener == by => Some(*endpoint),
            _ => None,
        });
        accepted.collect()
    }

    /// The reason why an endpoint was closed, if it was.
    pub fn closed(&self, which: Endpoint) -> Option<&str> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Closed(endpoint, reason) if *endpoint == which => Some(&reason[..]),
            _ => None,
        })
    }
}

/// The last events, without the bytes of messages.
fn summary(seen: &[Seen]) -> Vec<String> {
    seen.iter()
        .skip(seen.len().saturating_sub(SHOWN))
        .map(|seen| match seen {
            Seen::Message(from, kind, message) => format!("Message({from:?}, {kind:?}, {} bytes)", message.len()),
            other => format!("{other:?}"),
        })
        .collect()
}

/// Steps both nodes until `holds` returns true.
#[track_caller]
pub fn until(a: &mut Side, b: &mut Side, what: &str, holds: impl Fn(&Side, &Side) -> bool) {
    if let Err(never) = stepped(a, b, PATIENCE, what, holds) {
        panic!("{never}");
    }
}

/// Connects `client` to a listener of `server` with these options. Returns the accepted end, the
/// connecting end, and the listener.
#[track_caller]
pub fn connected(
    server: &mut Side,
    client: &mut Side,
    address: &str,
    options: &(Options, Options),
) -> (Endpoint, Endpoint, Endpoint) {
    match connect(server, client, PATIENCE, address, options) {
        Ok(both) => both,
        Err(never) => panic!("{never}"),
    }
}

/// As [`until`], but returns an error with the events instead of a panic.
pub(super) fn stepped(
    a: &mut Side,
    b: &mut Side,
    patience: Duration,
    what: &str,
    holds: impl Fn(&Side, &Side) -> bool,
) -> Result<(), String> {
    let begun = Instant::now();
    while !holds(a, b) {
        if begun.elapsed() >= patience {
            return Err(format!("never {what}; the events were {a:?} and {b:?}"));
        }
        a.step();
        b.step();
    }
    Ok(())
}

/// As [`connected`], but returns an error instead of a panic.
pub(super) fn connect(
    server: &mut Side,
    client: &mut Side,
    patience: Duration,
    address: &str,
    (ours, theirs): &(Options, Options),
) -> Result<(Endpoint, Endpoint, Endpoint), String> {
    let listener = server.handle.listen_with(address, ours).map_err(|error| error.to_string())?;
    let at = server.handle.local_address(listener).ok_or("the listener has no address")?;
    let to = client.handle.connect_with(&at, theirs).map_err(|error| error.to_string())?;
    stepped(server, client, patience, "connected", |server, client| {
        !server.accepted(listener).is_empty() && client.seen.contains(&Seen::Connected(to))
    })?;
    Ok((server.accepted(listener)[0], to, listener))
}
