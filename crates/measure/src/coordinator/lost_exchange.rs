//! Finds the exchange of question and answer that no side goes on with, as a message of it was lost.

use std::time::{Duration, Instant};

use super::instance::Setup;
use crate::case::Role;
use crate::exchange::Snapshot;
use crate::window::Window;

/// A message that has not arrived after so long was lost, if everybody waits for one. Whatever comes later than a second after the
/// message before makes the instance fail as late; this is well beyond.
const LOST_AFTER: Duration = Duration::from_secs(2);
/// A long message takes its time to be received: so many bytes a second at the slowest.
const SLOWEST_BYTES_PER_SECOND: f64 = 50e6;
/// Looks in that time.
const LOOKS: u32 = 4;

/// Watches the children of an instance that has not ended when it should have.
pub(super) struct LostExchange {
    lost_after: Duration,
    next_look: Instant,
    /// What all children were doing, and since when.
    before: Option<(Vec<(Role, Snapshot)>, Instant)>,
}

impl LostExchange {
    /// Of an instance that has just been started, or has gone on.
    pub(super) fn new(setup: &Setup, started: Instant) -> LostExchange {
        let receiving = Duration::from_secs_f64(setup.case.payload.len() as f64 / SLOWEST_BYTES_PER_SECOND);
        let lost_after = LOST_AFTER.min(setup.timeout / 2) + receiving;
        // Not while it measures, where it is known how long.
        let window = match setup.window {
            Window::Time { .. } => Duration::from_nanos(setup.window.length_ns()),
            Window::Count { .. } => Duration::ZERO,
        };
        LostExchange { lost_after, next_look: started + window + lost_after / LOOKS, before: None }
    }

    /// When to look next.
    pub(super) fn next_look(&self) -> Instant {
        self.next_look
    }

    /// How many messages are lost for certain: everybody waits for one, and has done so for long. Takes what the children that
    /// have not reported are doing, where that is known of all of them.
    pub(super) fn look(&mut self, now: Option<Vec<(Role, Snapshot)>>) -> Option<u64> {
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

/// How many messages must have been lost, if nothing changes any more: one for each side that waits for an answer while the one that
/// could give it, where it is still there, waits for a question. 0 where somebody does something else.
fn lost(children: &[(Role, Snapshot)]) -> u64 {
    let all_wait = children.iter().all(|(role, snapshot)| match role {
        Role::Producer(_) => snapshot.waits_for_answer(),
        Role::Consumer(_) => snapshot.waits_for_question(),
        Role::All => snapshot.waits_for_answer() && snapshot.waits_for_question(),
        Role::Broker => true,
    });
    let asking = children.iter().filter(|(role, _)| matches!(role, Role::Producer(_) | Role::All)).count();
    if all_wait { asking as u64 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Snapshot;

    const ASKER: Role = Role::Producer(0);
    const ANSWERER: Role = Role::Consumer(0);

    #[test]
    fn a_message_is_lost_where_both_sides_wait_for_one() {
        let [idle, asked, answering, both] = [(4, 4), (5, 4), (4, 5), (5, 5)].map(Snapshot::new);
        assert_eq!(lost(&[(ASKER, asked), (ANSWERER, idle)]), 1);
        assert_eq!(lost(&[(ASKER, asked)]), 1, "the other has come to its end");
        assert_eq!(lost(&[(Role::All, asked)]), 1, "both in one process");
        assert_eq!(lost(&[(ASKER, asked), (Role::Producer(1), asked), (ANSWERER, idle)]), 2);
        assert_eq!(lost(&[(ASKER, idle), (ANSWERER, idle)]), 0, "it hangs as it sends a question");
        assert_eq!(lost(&[(ASKER, asked), (ANSWERER, answering)]), 0, "it hangs as it sends an answer");
        assert_eq!(lost(&[(Role::All, both)]), 0, "the same in one process");
        assert_eq!(lost(&[(ANSWERER, idle)]), 0, "nobody has asked");
    }

    #[test]
    fn what_still_changes_is_not_lost() {
        let setup = || LostExchange { lost_after: Duration::ZERO, next_look: Instant::now(), before: None };
        let step = |asking| Some(vec![(Role::All, Snapshot::new((asking, 4)))]);
        let mut watch = setup();
        assert_eq!([5, 7, 9].map(|asking| watch.look(step(asking))), [None; 3]);
        assert_eq!(watch.look(step(9)), Some(1));
        assert_eq!([None, None].map(|unknown| setup().look(unknown)), [None; 2]);
    }
}
