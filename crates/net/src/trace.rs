//! Events for `tracing`, with the feature of that name; without it these functions do nothing.
//!
//! They say what happens to endpoints, and never anything for each message. What a peer or the
//! program has sent is not said: no payload, no header, no path or query of a URL, no reason of a
//! closing frame, only its code.

#[cfg(feature = "tracing")]
pub(crate) use self::events::{accepted, backing_off, closed, connected, connecting, failed, full, listening, lost};
#[cfg(not(feature = "tracing"))]
pub(crate) use self::nothing::{accepted, backing_off, closed, connected, connecting, failed, full, listening, lost};

#[cfg(feature = "tracing")]
mod events {
    use std::time::Duration;

    use tracing::field::debug;
    use tracing::{Level, debug, enabled, info, warn};

    use crate::codec::Violation;
    use crate::connection::Connection;
    use crate::event::{Endpoint, Reason};
    use crate::{Address, Place};

    /// What all events have as their target, so that a filter names the crate.
    const TARGET: &str = "estafette_net";

    pub(crate) fn listening(endpoint: Endpoint, address: impl FnOnce() -> Address) {
        if enabled!(target: TARGET, Level::INFO) {
            info!(target: TARGET, ?endpoint, address = place(&address()), "listening");
        }
    }

    pub(crate) fn connecting(endpoint: Endpoint, address: &Address) {
        debug!(target: TARGET, ?endpoint, address = place(address), "connecting");
    }

    pub(crate) fn connected(endpoint: Endpoint) {
        debug!(target: TARGET, ?endpoint, "connected");
    }

    pub(crate) fn accepted(endpoint: Endpoint, listener: Endpoint, connection: &Connection) {
        if enabled!(target: TARGET, Level::DEBUG) {
            let peer = connection.link.peer().map(|peer| place(&peer));
            debug!(target: TARGET, ?endpoint, ?listener, peer, "accepted");
        }
    }

    /// A connection ended before it was open.
    pub(crate) fn failed(endpoint: Endpoint, connection: &Connection, reason: &Reason) {
        if enabled!(target: TARGET, Level::INFO) {
            let peer = connection.link.peer().map(|peer| place(&peer));
            let listener = connection.accepted_by.as_ref().and_then(|acceptor| acceptor.endpoint()).map(debug);
            info!(target: TARGET, ?endpoint, listener, peer, reason = said(reason), "not opened");
        }
    }

    pub(crate) fn closed(endpoint: Endpoint, reason: &Reason) {
        debug!(target: TARGET, ?endpoint, reason = said(reason), "closed");
    }

    pub(crate) fn lost(endpoint: Endpoint, reason: &Reason, again_in: Duration) {
        info!(target: TARGET, ?endpoint, reason = said(reason), ?again_in, "lost, and reconnects");
    }

    pub(crate) fn backing_off(listener: Endpoint) {
        warn!(target: TARGET, ?listener, "accepts later: a limit is reached, or the system is out of resources");
    }

    /// A send was refused. Said once until the queue has drained.
    #[cold]
    pub(crate) fn full(endpoint: Endpoint, connection: &Connection) {
        if enabled!(target: TARGET, Level::WARN) && connection.notes_full() {
            warn!(target: TARGET, ?endpoint, "refuses sends: its queue is full");
        }
    }

    /// The address without the path and the query of a URL, which may contain secrets.
    fn place(address: &Address) -> String {
        match address.place() {
            Place::Host(..) => format!("{}://{}", address.scheme(), address.authority()),
            _ => address.to_string(),
        }
    }

    /// The reason without what a peer has sent.
    fn said(reason: &Reason) -> String {
        match reason {
            Reason::ClosedByPeer(close) => match close.code {
                Some(code) => format!("closed by the peer: {code}"),
                None => "closed by the peer: no code".to_owned(),
            },
            Reason::Violation(Violation::Handshake(error)) => match error.status {
                Some(status) => format!("WebSocket handshake: status {status}"),
                None => "WebSocket handshake: not HTTP".to_owned(),
            },
            Reason::Violation(Violation::Other(_)) => "a violation of a rule of the transport".to_owned(),
            reason => reason.to_string(),
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod nothing {
    use std::time::Duration;

    use crate::Address;
    use crate::connection::Connection;
    use crate::event::{Endpoint, Reason};

    pub(crate) fn listening(_: Endpoint, _: impl FnOnce() -> Address) {}
    pub(crate) fn connecting(_: Endpoint, _: &Address) {}
    pub(crate) fn connected(_: Endpoint) {}
    pub(crate) fn accepted(_: Endpoint, _: Endpoint, _: &Connection) {}
    pub(crate) fn failed(_: Endpoint, _: &Connection, _: &Reason) {}
    pub(crate) fn closed(_: Endpoint, _: &Reason) {}
    pub(crate) fn lost(_: Endpoint, _: &Reason, _: Duration) {}
    pub(crate) fn backing_off(_: Endpoint) {}
    pub(crate) fn full(_: Endpoint, _: &Connection) {}
}
