//! How far a connection is: it opens, is open, or ends.

use std::mem;
use std::time::Instant;

use crate::event::Reason;
use crate::new_endpoint::Origin;

/// How far a connection is.
pub(crate) enum Life {
    /// The transport's link is not connected.
    Connecting(Attempt),
    /// The link is connected, and the handshake of the WebSocket is not over.
    Handshaking(Attempt),
    Open(PeerDirection),
    Ending(Box<Ending>),
}

/// A connection that is not open yet.
pub(crate) struct Attempt {
    /// Who opened it.
    pub(crate) origin: Origin,
    /// Set if a close was requested meanwhile: the payload of its closing frame.
    pub(crate) farewell: Option<Vec<u8>>,
}

/// The peer's sending direction of an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerDirection {
    Open,
    /// Its end was reported as `Finished`, and sending continues.
    Finished,
}

/// The orderly end of a connection: the queue is written, the sending direction ends, and reading
/// continues until the peer ends its direction too. Closing a socket with unread data would make
/// the kernel reset the connection, and the peer would lose what it has not read yet.
pub(crate) struct Ending {
    /// `None` once it was reported.
    pub(crate) reason: Option<Reason>,
    pub(crate) until: Instant,
    /// Who opened it, if it was never open.
    never_open: Option<Origin>,
    pub(crate) arrivals: Arrivals,
    /// Everything was written, and the sending direction has ended.
    pub(crate) finished: bool,
    /// The peer has ended its direction.
    pub(crate) peer_ended: bool,
}

/// What happens to what arrives while a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// It is decoded, because the peer's closing frame is among it. Messages are not delivered.
    Decoded,
    Discarded,
}

impl Life {
    /// The life of a new connection.
    pub(super) fn new(origin: Origin) -> Life {
        Life::Connecting(Attempt { origin, farewell: None })
    }

    /// Whether the link, or the handshake, is not connected yet.
    #[inline]
    pub(crate) fn is_opening(&self) -> bool {
        matches!(self, Life::Connecting(_) | Life::Handshaking(_))
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Life::Open(_))
    }

    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self, Life::Ending(_))
    }

    /// Whether the transport's link is not connected yet.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self, Life::Connecting(_))
    }

    /// Whether what arrives is discarded.
    #[inline]
    pub(super) fn discards(&self) -> bool {
        matches!(self, Life::Ending(ending) if ending.arrivals == Arrivals::Discarded)
    }

    /// What is known while the connection opens.
    pub(crate) fn attempt(&mut self) -> Option<&mut Attempt> {
        match self {
            Life::Connecting(attempt) | Life::Handshaking(attempt) => Some(attempt),
            Life::Open(_) | Life::Ending(_) => None,
        }
    }

    pub(crate) fn ending(&mut self) -> Option<&mut Ending> {
        match self {
            Life::Ending(ending) => Some(ending),
            Life::Connecting(_) | Life::Handshaking(_) | Life::Open(_) => None,
        }
    }

    /// Who opened a connection that has never been open.
    pub(crate) fn never_open(&self) -> Option<&Origin> {
        match self {
            Life::Connecting(attempt) | Life::Handshaking(attempt) => Some(&attempt.origin),
            Life::Open(_) => None,
            Life::Ending(ending) => ending.never_open.as_ref(),
        }
    }

    /// Takes the attempt, and leaves an open connection behind.
    fn take_attempt(&mut self) -> Option<Attempt> {
        if !self.is_opening() {
            return None;
        }
        match mem::replace(self, Life::Open(PeerDirection::Open)) {
            Life::Connecting(attempt) | Life::Handshaking(attempt) => Some(attempt),
            Life::Open(_) | Life::Ending(_) => None,
        }
    }

    /// The transport's link is connected.
    pub(crate) fn link_connected(&mut self) {
        if self.is_connecting()
            && let Some(attempt) = self.take_attempt()
        {
            *self = Life::Handshaking(attempt);
        }
    }

    /// The connection is open. Returns what it was before, or `None` if it did not open.
    pub(crate) fn open(&mut self) -> Option<Attempt> {
        self.take_attempt()
    }

    /// The peer's direction has ended, and sending continues. Returns whether this was unknown.
    pub(crate) fn finish_peer(&mut self) -> bool {
        match self {
            Life::Open(direction) => mem::replace(direction, PeerDirection::Finished) == PeerDirection::Open,
            Life::Connecting(_) | Life::Handshaking(_) | Life::Ending(_) => false,
        }
    }

    /// Whether the connection is open, and the peer's end was reported.
    pub(crate) fn is_peer_finished(&self) -> bool {
        matches!(self, Life::Open(PeerDirection::Finished))
    }

    /// Starts the orderly end, which takes until then at most. `reason`: if it was not reported
    /// yet.
    pub(super) fn begin_ending(
        &mut self,
        reason: Option<Reason>,
        until: Instant,
        arrivals: Arrivals,
        peer_ended: bool,
    ) {
        let never_open = self.take_attempt().map(|attempt| attempt.origin);
        *self = Life::Ending(Box::new(Ending { reason, until, never_open, arrivals, finished: false, peer_ended }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Key;

    fn accepted() -> Life {
        Life::new(Origin::Accepted { listener: Key::NONE, peer: None })
    }

    #[test]
    fn a_connection_opens_once_and_its_peer_finishes_once() {
        let mut life = accepted();
        assert!(life.is_connecting() && life.is_opening() && !life.finish_peer());
        life.link_connected();
        assert!(!life.is_connecting() && life.is_opening() && life.never_open().is_some());
        if let Some(attempt) = life.attempt() {
            attempt.farewell = Some(vec![1]);
        }
        assert_eq!(life.open().and_then(|attempt| attempt.farewell), Some(vec![1]));
        assert!(life.is_open() && life.open().is_none() && life.never_open().is_none());
        life.link_connected();
        assert!(life.is_open() && !life.is_peer_finished());
        assert!(life.finish_peer() && life.is_peer_finished() && !life.finish_peer());
    }

    #[test]
    fn an_end_remembers_whether_the_connection_was_ever_open() {
        let now = Instant::now();
        for (opens, arrivals) in [(true, Arrivals::Decoded), (false, Arrivals::Discarded)] {
            let mut life = accepted();
            life.link_connected();
            if opens {
                assert!(life.open().is_some());
            }
            life.begin_ending(Some(Reason::Ended), now, arrivals, true);
            assert!(life.is_ending() && life.attempt().is_none() && life.open().is_none());
            assert_eq!(life.never_open().is_none(), opens);
            assert_eq!(life.discards(), arrivals == Arrivals::Discarded);
            assert!(life.ending().is_some_and(|ending| ending.peer_ended && !ending.finished));
        }
    }
}
