//! What every check begins with: two nodes, and the promise it is about.

use std::fmt::Arguments;

use super::Subject;
use super::side::{self, Seen, Side, stepped};
use crate::scheme::Scheme;
use crate::{Address, Endpoint, Options, Outcome};

/// How much is sent at a time to find out how much there is room for, and how often before there is no end to it.
const BLOCK: usize = 1 << 20;
const MOST_BLOCKS: usize = 128;

/// Which of the two.
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

/// Two nodes of one thread, for a check of one promise at addresses of one scheme.
pub(super) struct Scene<'a> {
    subject: &'a Subject,
    pub(super) scheme: String,
    promise: &'static str,
    pub(super) server: Side,
    pub(super) client: Side,
    /// Those of the listener and of the client.
    pub(super) options: (Options, Options),
}

/// Bytes that differ from place to place and from message to message.
pub fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(7)) as u8).collect()
}

/// Where two that should be alike begin to differ.
fn differ(seen: &[u8], sent: &[u8]) -> String {
    match seen.iter().zip(sent).position(|(seen, sent)| seen != sent) {
        Some(at) => format!(", and from byte {at} on they are others"),
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

    /// What is told of a connection that its peer has closed.
    pub(super) fn ended(&self) -> &'static str {
        if self.is_websocket() { "closed by the peer: 1000" } else { "ended by the peer" }
    }

    /// Fails: this was seen instead.
    #[track_caller]
    pub(super) fn broken(&self, seen: Arguments<'_>) -> ! {
        panic!("{}:// breaks the promise that {}: {seen}", self.scheme, self.promise)
    }

    #[track_caller]
    pub(super) fn expects(&self, holds: bool, seen: Arguments<'_>) {
        if !holds {
            self.broken(seen);
        }
    }

    /// That this was told as the reason of an end.
    #[track_caller]
    pub(super) fn expects_end(&self, of: End, endpoint: Endpoint, reason: &str) {
        let told = self.side(of).closed(endpoint);
        self.expects(told == Some(reason), format_args!("the end was told as {told:?}, and not as {reason:?}"));
    }

    /// That these messages came, and no others.
    #[track_caller]
    pub(super) fn expects_messages(&self, at: End, from: Endpoint, sent: &[Vec<u8>]) {
        let seen = self.side(at).messages(from);
        for (i, (seen, sent)) in seen.iter().zip(sent).enumerate() {
            let (here, there) = (seen.len(), sent.len());
            self.expects(
                *seen == sent,
                format_args!("message {i} came with {here} bytes of {there}{}", differ(seen, sent)),
            );
        }
        let (here, there) = (seen.len(), sent.len());
        self.expects(here == there, format_args!("{here} messages came, and {there} were sent"));
    }

    /// That these bytes came, in whatever messages.
    #[track_caller]
    pub(super) fn expects_bytes(&self, at: End, from: Endpoint, sent: &[u8]) {
        let seen = self.side(at).messages(from).concat();
        let (here, there) = (seen.len(), sent.len());
        self.expects(seen == sent, format_args!("{here} bytes came of {there}{}", differ(&seen, sent)));
    }

    fn side(&self, end: End) -> &Side {
        end.of(&self.server, &self.client)
    }

    /// Steps both until something holds.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, holds: impl Fn(&Side, &Side) -> bool) {
        if let Err(never) = stepped(&mut self.server, &mut self.client, self.subject.patience, what, holds) {
            self.broken(format_args!("{never}"));
        }
    }

    /// Gives both many occasions to do what they should not.
    pub(super) fn turns(&mut self) {
        for _ in 0..20 {
            self.server.step();
            self.client.step();
        }
    }

    /// A listener, and where it is.
    #[track_caller]
    pub(super) fn listen(&self) -> (Endpoint, Address) {
        let address = self.subject.address(&self.scheme);
        let listener = self.server.handle.listen_with(address, &self.options.0);
        let listener = listener.unwrap_or_else(|error| self.broken(format_args!("{error}")));
        let at = self.server.handle.local_address(listener);
        (listener, at.unwrap_or_else(|| self.broken(format_args!("the listener says no address"))))
    }

    /// Begins to connect.
    #[track_caller]
    pub(super) fn begin(&self, to: &Address) -> Endpoint {
        let endpoint = self.client.handle.connect_with(to, &self.options.1);
        endpoint.unwrap_or_else(|error| self.broken(format_args!("{error}")))
    }

    /// A connection: the end that was accepted, and that of who connected.
    #[track_caller]
    pub(super) fn connect(&mut self) -> (Endpoint, Endpoint) {
        let (address, patience) = (self.subject.address(&self.scheme), self.subject.patience);
        let both = side::connect(&mut self.server, &mut self.client, patience, &address, &self.options);
        match both {
            Ok((accepted, endpoint, _)) => (accepted, endpoint),
            Err(never) => self.broken(format_args!("{never}")),
        }
    }

    /// Sends what is taken whenever it comes.
    #[track_caller]
    pub(super) fn send(&self, from: End, to: Endpoint, message: &[u8]) {
        let outcome = self.side(from).handle.send(to, message);
        self.expects(outcome.taken(), format_args!("a send returned {outcome:?}"));
    }

    /// Sends everything, stepping both sides where there is no room.
    #[track_caller]
    pub(super) fn send_all(&mut self, from: End, to: Endpoint, messages: &[Vec<u8>]) {
        for message in messages {
            loop {
                let before = self.side(from).count(&Seen::Drained(to));
                match self.side(from).handle.send(to, message) {
                    Outcome::Sent | Outcome::Queued => break,
                    Outcome::Full => self.until("room after a send was refused", |server, client| {
                        from.of(server, client).count(&Seen::Drained(to)) > before
                    }),
                    other => self.broken(format_args!("a send returned {other:?}")),
                }
            }
        }
    }

    /// Sends until something waits at this end, and returns all of it.
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
