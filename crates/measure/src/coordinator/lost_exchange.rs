//! Finds round trips that cannot go on because a message was lost.

use std::time::{Duration, Instant};

use super::setup::Setup;
use crate::case::Role;
use crate::exchange::Snapshot;
use crate::window::Window;

/// If every party has waited for a message this long, one was lost. A message that is merely late
/// makes the instance fail after one second, so this time is well above that. It does not depend on
/// the time-out: in a shorter time, a busy machine may not have run the party that has the message.
/// An instance with a shorter time-out fails as one that did not finish in time.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// The slowest rate at which a long message is received.
const SLOWEST_BYTES_PER_SECOND: f64 = 50e6;
/// How many times the steps of the children are read in that time.
const LOOKS: u32 = 4;

/// Watches the children of an instance that has not ended when it should have.
pub(super) struct LostExchange {
    lost_after: Duration,
    next_look: Instant,
    /// The steps of all children, and since when they have been the same.
    before: Option<(Vec<(Role, Snapshot)>, Instant)>,
}

impl LostExchange {
    /// Starts with an instance that has just begun its window.
    pub(super) fn new(setup: &Setup, started: Instant) -> LostExchange {
        let receiving = Duration::from_secs_f64(setup.case.payload.len() as f64 / SLOWEST_BYTES_PER_SECOND);
        let lost_after = LOST_AFTER + receiving;
        // No reading disturbs the window, if its length is known.
        let window = match setup.window {
            Window::Time { .. } => Duration::from_nanos(setup.window.length_ns()),
            Window::Count { .. } => Duration::ZERO,
        };
        LostExchange { lost_after, next_look: started + window + lost_after / LOOKS, before: None }
    }

    /// When the steps of the children are to be read next.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// The number of messages that are certainly lost, once all parties have waited long enough.
    /// `now` has the steps of the children that have not reported; `None` if one is unknown.
    pub(super) fn update(&mut self, now: Option<Vec<(Role, Snapshot)>>) -> Option<u64> {
        self.next_look = Instant::now() + self.lost_after / LOOKS;
        let now = now?;
        let lost = lost(&now);
        match &self.before {
            Some((before, since)) if *before == now && lost > 0 => (since.elapsed() >= self.lost_after).then_some(lost),
            _ => {
                self.before = Some((now, Instant::now()));
                None
            }
        }
    }
}

/// How many messages must have been lost if nothing changes: one for each requester that waits for
/// a reply while the replier, if it still runs, waits for a request. 0 if a party does something
/// else.
fn lost(children: &[(Role, Snapshot)]) -> u64 {
    let all_wait = children.iter().all(|(role, snapshot)| match role {
        Role::Producer(_) => snapshot.waits_for_reply(),
        Role::Consumer(_) => snapshot.waits_for_request(),
        Role::All => snapshot.waits_for_reply() && snapshot.waits_for_request(),
        Role::Broker => true,
    });
    let requesters = children.iter().filter(|(role, _)| matches!(role, Role::Producer(_) | Role::All)).count();
    if all_wait { requesters as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Snapshot;

    const REQUESTER: Role = Role::Producer(0);
    const REPLIER: Role = Role::Consumer(0);

    #[test]
    fn a_message_is_lost_if_both_sides_wait_for_one() {
        let [idle, waiting, replying, both] = [(4, 4), (5, 4), (4, 5), (5, 5)].map(Snapshot::new);
        assert_eq!(lost(&[(REQUESTER, waiting), (REPLIER, idle)]), 1);
        assert_eq!(lost(&[(REQUESTER, waiting)]), 1, "the replier has ended");
        assert_eq!(lost(&[(Role::All, waiting)]), 1, "both in one process");
        assert_eq!(lost(&[(REQUESTER, waiting), (Role::Producer(1), waiting), (REPLIER, idle)]), 2);
        assert_eq!(lost(&[(REQUESTER, idle), (REPLIER, idle)]), 0, "it hangs in sending a request");
        assert_eq!(lost(&[(REQUESTER, waiting), (REPLIER, replying)]), 0, "it hangs in sending a reply");
        assert_eq!(lost(&[(Role::All, both)]), 0, "the same in one process");
        assert_eq!(lost(&[(REPLIER, idle)]), 0, "there is no requester");
    }

    #[test]
    fn nothing_is_lost_while_steps_change() {
        let setup = || LostExchange { lost_after: Duration::ZERO, next_look: Instant::now(), before: None };
        let step = |requesters| Some(vec![(Role::All, Snapshot::new((requesters, 4)))]);
        let mut watch = setup();
        assert_eq!([5, 7, 9].map(|requesters| watch.update(step(requesters))), [None; 3]);
        assert_eq!(watch.update(step(9)), Some(1));
        assert_eq!([None, None].map(|unknown| setup().update(unknown)), [None; 2]);
    }
}
