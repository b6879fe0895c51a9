//! The next deadline of a connection: what it is for, and which time the node's heap has for it.

use std::time::{Duration, Instant};

use crate::event::Late;

/// What to do when a deadline passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// Reconnect, or finish the end of the connection.
    Continue,
    /// Ask a silent WebSocket peer for an answer.
    Ping,
    /// The connection ends.
    Late(Late),
}

/// Adds a duration to a time. If the sum overflows, returns a time some 136 years later.
pub(crate) fn after(at: Instant, time: Duration) -> Instant {
    at.checked_add(time).unwrap_or_else(|| at + Duration::from_secs(1 << 32))
}

/// The time in the node's heap at which this connection's deadlines are looked at next. The heap
/// may also have later times of the connection, which are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Armed {
    #[default]
    No,
    At(Instant),
    /// The deadline passed with unread data ready. It was extended once, to this time.
    Extended(Instant),
}

impl Armed {
    /// The time in the heap.
    pub(crate) fn at(self) -> Option<Instant> {
        match self {
            Armed::No => None,
            Armed::At(at) | Armed::Extended(at) => Some(at),
        }
    }

    /// Sets an earlier time. Returns whether it is earlier, so that it has to be put into the heap.
    pub(crate) fn bring_forward(&mut self, due: Instant) -> bool {
        let is_earlier = self.at().is_none_or(|at| due < at);
        if is_earlier {
            *self = match self {
                Armed::Extended(_) => Armed::Extended(due),
                Armed::No | Armed::At(_) => Armed::At(due),
            };
        }
        is_earlier
    }

    /// Whether the deadline was extended.
    pub(crate) fn is_extended(self) -> bool {
        matches!(self, Armed::Extended(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_only_brought_forward_and_stays_extended() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut armed = Armed::No;
        assert!(armed.bring_forward(at(5)));
        assert!(!armed.bring_forward(at(5)) && !armed.bring_forward(at(6)));
        assert_eq!(armed, Armed::At(at(5)));
        assert!(armed.bring_forward(at(4)));
        assert_eq!((armed.at(), armed.is_extended()), (Some(at(4)), false));
        armed = Armed::Extended(at(7));
        assert!(!armed.bring_forward(at(8)));
        assert!(armed.bring_forward(at(3)));
        assert_eq!((armed.at(), armed.is_extended()), (Some(at(3)), true));
    }

    #[test]
    fn a_time_that_overflows_is_far_in_the_future() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::from_secs(1)), now + Duration::from_secs(1));
        assert_eq!(after(now, Duration::MAX), now + Duration::from_secs(1 << 32));
    }
}
