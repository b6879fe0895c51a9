//! When a connection was active last: what the idle limit and the heartbeat are measured from.

use std::time::{Duration, Instant};

use super::deadline::{Deadline, after};
use crate::connection::Writes;
use crate::event::Late;

/// When a connection was active last.
#[derive(Debug)]
pub(crate) struct Activity {
    /// When the connection started to open or, once open, when it last received something.
    since: Instant,
    quiet: Option<Box<Quiet>>,
}

/// What is known about a quiet connection as of its last deadline. Only connections with an idle
/// limit or a heartbeat have it.
#[derive(Debug, Default)]
struct Quiet {
    last_write: Option<Instant>,
    ping: Option<SentPing>,
}

/// A ping that a silent peer has to answer.
#[derive(Debug, Clone, Copy)]
struct SentPing {
    /// When something was received last, as of the ping.
    silent_since: Instant,
    sent: Instant,
    /// It waits behind other data. As long as that is accepted, the peer is not late.
    queued: bool,
}

impl Activity {
    /// The activity of a connection that starts to open now.
    pub(crate) fn new(now: Instant) -> Activity {
        Activity { since: now, quiet: None }
    }

    /// When the connection started to open or, once open, when it last received something.
    #[inline]
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Something was received, or the silence before does not count.
    #[inline]
    pub(crate) fn begin_at(&mut self, now: Instant) {
        self.since = now;
    }

    /// Takes into account what was written since the last deadline.
    pub(super) fn note_writes(&mut self, writes: Writes) {
        let quiet = self.quiet.get_or_insert_default();
        quiet.last_write = writes.last;
        if let Some(ping) = &mut quiet.ping {
            ping.note_writes(writes);
        }
    }

    /// A ping was sent. `queued`: it waits behind other data.
    pub(super) fn note_ping(&mut self, now: Instant, queued: bool) {
        self.quiet.get_or_insert_default().ping = Some(SentPing { silent_since: self.since, sent: now, queued });
    }

    /// When the connection will have been idle for this long.
    pub(super) fn idle_deadline(&self, idle: Duration) -> Instant {
        let last_write = self.quiet.as_ref().and_then(|quiet| quiet.last_write);
        after(last_write.map_or(self.since, |last| last.max(self.since)), idle)
    }

    /// When to send a ping, or when the answer is late.
    pub(super) fn heartbeat(&self, time: Duration) -> (Instant, Deadline) {
        match self.quiet.as_ref().and_then(|quiet| quiet.ping) {
            Some(ping) if ping.silent_since == self.since => (after(ping.sent, time), Deadline::Late(Late::Heartbeat)),
            _ => (after(self.since, time), Deadline::Ping),
        }
    }
}

impl SentPing {
    fn note_writes(&mut self, writes: Writes) {
        if self.queued {
            self.sent = writes.last.map_or(self.sent, |last| last.max(self.sent));
            self.queued = writes.waits;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(60);

    #[test]
    fn reads_and_writes_postpone_the_idle_deadline() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut activity = Activity::new(begun);
        assert_eq!(activity.idle_deadline(TIME), begun + TIME);
        activity.note_writes(Writes { last: Some(at(5)), waits: false });
        assert_eq!(activity.idle_deadline(TIME), at(5) + TIME);
        activity.begin_at(at(7));
        assert_eq!(activity.idle_deadline(TIME), at(7) + TIME);
        activity.note_writes(Writes { last: None, waits: true });
        assert_eq!(activity.idle_deadline(TIME), at(7) + TIME);
    }

    #[test]
    fn a_ping_is_due_until_something_arrives_after_it() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut activity = Activity::new(begun);
        assert_eq!(activity.heartbeat(TIME), (begun + TIME, Deadline::Ping));
        activity.note_ping(at(60), false);
        assert_eq!(activity.heartbeat(TIME), (at(60) + TIME, Deadline::Late(Late::Heartbeat)));
        activity.begin_at(at(61));
        assert_eq!(activity.heartbeat(TIME), (at(61) + TIME, Deadline::Ping));
    }

    #[test]
    fn a_peer_is_not_late_while_data_before_the_ping_is_written() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut ping = SentPing { silent_since: at(0), sent: at(10), queued: true };
        let mut sent = |last, waits| {
            ping.note_writes(Writes { last: Some(at(last)), waits });
            ping.sent
        };
        assert_eq!(sent(5, true), at(10));
        assert_eq!(sent(15, true), at(15));
        // The ping has left the queue. Later writes say nothing about the peer.
        assert_eq!(sent(20, false), at(20));
        assert_eq!(sent(30, true), at(20));
    }
}
