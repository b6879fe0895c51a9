//! The setup of every check: two nodes, and the guarantee to be tested.

use std::fmt::Arguments;

use super::Subject;
use super::side::{self, Seen, Side, stepped};
use crate::scheme::Scheme;
use crate::{Address, Endpoint, Options, Outcome};

/// The size of a block when filling a queue, and after how many blocks the queue counts as
/// unbounded.
const BLOCK: usize = 1 << 20;
const MOST_BLOCKS: usize = 128;

/// One of the two nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Server,
    Client,
}

impl End {
    pub(super) fn of<'a>(self, server: &'a Side, client: &'a Side) -> &'a Side {
        match self {
            End::Server => server,
            End::Client => client,
        }
    }
}

/// Two nodes in one thread, for a check of one guarantee with one scheme.
pub(super) struct Scene<'a> {
    subject: &'a Subject,
    pub(super) scheme: String,
    promise: &'static str,
    pub(super) server: Side,
    pub(super) client: Side,
    /// The options of the listener and of the client.
    pub(super) options: (Options, Options),
}

/// Returns test data that differs from byte to byte and from seed to seed.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(7)) as u8).collect()
}

/// Describes where two byte strings start to differ.
fn differ(seen: &[u8], sent: &[u8]) -> String {
    match seen.iter().zip(sent).position(|(seen, sent)| seen != sent) {
        Some(at) => format!(", and they differ from byte {at} on"),
        None => String::new(),
    }
}

impl<'a> Scene<'a> {
    pub(super) fn new(subject: &'a Subject, scheme: String, promise: &'static str) -> Scene<'a> {
        let (server, client) = (subject.side(subject.limits()), subject.side(subject.limits()));
        Scene { subject, scheme, promise, server, client, options: subject.options.clone() }
    }

    pub(super) fn is_stream(&self) -> bool {
        Scheme::of(&self.scheme).1 == Scheme::Raw
    }

    pub(super) fn is_websocket(&self) -> bool {
        Scheme::of(&self.scheme).1 == Scheme::WebSocket
    }

    /// The reason reported for a connection that its peer has closed.
    pub(super) fn ended(&self) -> &'static str {
        if self.is_websocket() { "closed by the peer: 1000" } else { "ended by the peer" }
    }

    /// Fails, and reports what was seen instead.
    #[track_caller]
    pub(super) fn broken(&self, seen: Arguments<'_>) -> ! {
        panic!("{}:// breaks the guarantee that {}: {seen}", self.scheme, self.promise)
    }

    #[track_caller]
    pub(super) fn expects(&self, holds: bool, seen: Arguments<'_>) {
        if !holds {
            self.broken(seen);
        }
    }

    /// Expects this reason in the `Closed` event.
    #[track_caller]
    pub(super) fn expects_end(&self, of: End, endpoint: Endpoint, reason: &str) {
        let reported = self.side(of).closed(endpoint);
        self.expects(
            reported == Some(reason),
            format_args!("the reported reason was {reported:?}, expected {reason:?}"),
        );
    }

    /// Expects these messages, and no others.
    #[track_caller]
    pub(super) fn expects_messages(&self, at: End, from: Endpoint, sent: &[Vec<u8>]) {
        let seen = self.side(at).messages(from);
        for (i, (seen, sent)) in seen.iter().zip(sent).enumerate() {
            let (received, expected) = (seen.len(), sent.len());
            self.expects(
                *seen == sent,
                format_args!("message {i} came with {received} bytes of {expected}{}", differ(seen, sent)),
            );
        }
        let (received, expected) = (seen.len(), sent.len());
        self.expects(received == expected, format_args!("{received} messages came, and {expected} were sent"));
    }

    /// Expects these bytes, in any number of messages.
    #[track_caller]
    pub(super) fn expects_bytes(&self, at: End, from: Endpoint, sent: &[u8]) {
        let seen = self.side(at).messages(from).concat();
        let (received, expected) = (seen.len(), sent.len());
        self.expects(seen == sent, format_args!("{received} bytes came of {expected}{}", differ(&seen, sent)));
    }

    fn side(&self, end: End) -> &Side {
        end.of(&self.server, &self.client)
    }

    /// Steps both nodes until `holds` returns true.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Side, &Side) -> bool) {
        if let Err(never) = stepped(&mut self.server, &mut self.client, self.subject.patience, what, holds) {
            self.broken(format_args!("{never}"));
        }
    }

    /// Steps both nodes many times, to give them the chance to do something wrong.
    pub(super) fn turns(&mut self) {
        for _ in 0..20 {
            self.server.step();
            self.client.step();
        }
    }

    /// Starts a listener, and returns its endpoint and address.
    #[track_caller]
    pub(super) fn listen(&self) -> (Endpoint, Address) {
        let address = self.subject.address(&self.scheme);
        let listener = self.server.handle.listen_with(address, &self.options.0);
        let listener = listener.unwrap_or_else(|error| self.broken(format_args!("{error}")));
        let at = self.server.handle.local_address(listener);
        (listener, at.unwrap_or_else(|| self.broken(format_args!("the listener says no address"))))
    }

    /// Starts to connect.
    #[track_caller]
    pub(super) fn begin(&self, to: &Address) -> Endpoint {
        let endpoint = self.client.handle.connect_with(to, &self.options.1);
        endpoint.unwrap_or_else(|error| self.broken(format_args!("{error}")))
    }

    /// Opens a connection. Returns the accepted end and the connecting end.
    #[track_caller]
    pub(super) fn connect(&mut self) -> (Endpoint, Endpoint) {
        let (address, patience) = (self.subject.address(&self.scheme), self.subject.patience);
        let both = side::connect(&mut self.server, &mut self.client, patience, &address, &self.options);
        match both {
            Ok((accepted, endpoint, _)) => (accepted, endpoint),
            Err(never) => self.broken(format_args!("{never}")),
        }
    }

    /// Sends a message that has to be accepted.
    #[track_caller]
    pub(super) fn send(&self, from: End, to: Endpoint, message: &[u8]) {
        let outcome = self.side(from).handle.send(to, message);
        self.expects(outcome.is_accepted(), format_args!("a send returned {outcome:?}"));
    }

    /// Sends all messages, and steps both nodes while the queue is full.
    #[track_caller]
    pub(super) fn send_all(&mut self, from: End, to: Endpoint, messages: &[Vec<u8>]) {
        for message in messages {
            loop {
                let before = self.side(from).count(&Seen::Drained(to));
                match self.side(from).handle.send(to, message) {
                    Outcome::Sent | Outcome::Queued => break,
                    Outcome::Full => self.until("space after a send was refused", |server, client| {
                        from.of(server, client).count(&Seen::Drained(to)) > before
                    }),
                    other => self.broken(format_args!("a send returned {other:?}")),
                }
            }
        }
    }

    /// Sends until something is queued at this end, and returns everything sent.
    #[track_caller]
    pub(super) fn send_until_queued(&self, from: End, to: Endpoint) -> Vec<u8> {
        let mut sent = Vec::new();
        for i in 0..MOST_BLOCKS {
            let block = pattern(i, BLOCK);
            let outcome = self.side(from).handle.send(to, &block);
            sent.extend(block);
            match outcome {
                Outcome::Sent => {}
                Outcome::Queued => return sent,
                other => self.broken(format_args!("a send returned {other:?}, and nothing waits yet")),
            }
        }
        self.broken(format_args!("{} bytes were sent, nobody read them, and none waits", sent.len()))
    }
}
