//! Waits until the replicas of a stream know its new consumers, before messages are published.
//!
//! A stream with the retention `interest` keeps a message for the consumers that it has. Each
//! replica decides that by the consumers that it knows itself, and drops a message that none of
//! them wants. The server acknowledges such a message all the same, so it would be lost.
//!
//! A server that has not made a new consumer yet says already that it exists, but not who leads it.
//! No request shows which replicas have made it. A replica that answers the consumer's leader makes
//! it within milliseconds, so a second after all have answered, all know it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::consumer::{Info, PullConsumer};
use async_nats::jetstream::stream::Stream;
use futures_util::future::try_join_all;

use super::link::Link;
use super::setup::{SetupError, unanswered};

/// A consumer is new for so long, by the clocks of this host and of the server.
const NEW: Duration = Duration::from_secs(60);
/// How long to wait after all replicas have answered the leader of a new consumer.
const SETTLED: Duration = Duration::from_secs(1);
/// How long to wait for all replicas: one may be down.
const ALL: Duration = Duration::from_secs(10);
/// How long to wait for a leader and most replicas.
const MOST: Duration = Duration::from_secs(15);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until the replicas of a stream know its consumers. Takes a second or more if one is new
/// and the stream has replicas.
///
/// # Errors
///
/// If most replicas do not know one for some seconds, or the connection is lost.
pub(super) async fn until_known(link: &Link, stream: &Stream, consumers: Vec<PullConsumer>) -> Result<(), SetupError> {
    if stream.cached_info().config.num_replicas <= 1 {
        return Ok(());
    }
    try_join_all(consumers.into_iter().map(|consumer| until_one_is_known(link, consumer))).await.map(drop)
}

async fn until_one_is_known(link: &Link, mut consumer: PullConsumer) -> Result<(), SetupError> {
    let started_at = Instant::now();
    let mut known = Known::default();
    let mut failure = None;
    loop {
        if failure.is_none() && known.look(consumer.cached_info(), started_at.elapsed()) {
            return Ok(());
        }
        if started_at.elapsed() > MOST || !link.is_up() {
            let Info { name, stream_name, .. } = consumer.cached_info();
            return Err(failure.unwrap_or_else(|| {
                SetupError::Unreachable(format!(
                    "too few servers of the cluster know the new consumer `{name}` of the stream `{stream_name}`"
                ))
            }));
        }
        tokio::time::sleep(LOOK).await;
        // A server that is about to make it may say that there is none.
        failure = consumer.info().await.err().map(|error| unanswered(link, &error));
    }
}

/// What has been seen of the replicas of a consumer.
#[derive(Default)]
struct Known {
    /// The replicas that have answered the leader.
    answered: BTreeSet<String>,
    /// How long the wait had taken when enough replicas had answered.
    enough_after: Option<Duration>,
}

impl Known {
    /// Takes what the server says of a consumer after waiting for `waited`. Returns whether the
    /// replicas know it: all of them, or most of them after [`ALL`].
    fn look(&mut self, info: &Info, waited: Duration) -> bool {
        let cluster = info.cluster.as_ref();
        let Some(cluster) = cluster.filter(|it| it.leader.as_ref().is_some_and(|name| !name.is_empty())) else {
            *self = Known::default();
            return false;
        };
        if !is_new(info) {
            return true;
        }
        let replicas = &cluster.replicas;
        self.answered.extend(replicas.iter().filter(|it| it.current).map(|it| it.name.clone()));
        let answered = replicas.iter().filter(|it| self.answered.contains(&it.name)).count();
        // The leader, which is not in the list, is one of the servers too.
        let is_enough = answered == replicas.len() || (waited > ALL && 2 * (answered + 1) > replicas.len() + 1);
        is_enough && waited >= *self.enough_after.get_or_insert(waited) + SETTLED
    }
}

fn is_new(info: &Info) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created_ns = info.created.unix_timestamp_nanos();
    u128::try_from(created_ns).is_ok_and(|created_ns| now.as_nanos() < created_ns + NEW.as_nanos())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2100-01-01T00:00:00Z";
    const LONG_AGO: &str = "2020-01-01T00:00:00Z";

    /// What a server says of a consumer that was made at a time. The replicas beside the leader
    /// have answered it or not.
    fn info(created: &str, leader: &str, replicas: &[(&str, bool)]) -> Info {
        let replicas: Vec<_> =
            replicas.iter().map(|(name, current)| json!({"name": name, "current": current, "active": 0})).collect();
        let sequences = json!({"consumer_seq": 0, "stream_seq": 0});
        serde_json::from_value(json!({
            "stream_name": "stream", "name": "consumer", "created": created,
            "config": {"deliver_policy": "all", "ack_policy": "explicit", "replay_policy": "instant"},
            "delivered": sequences, "ack_floor": sequences,
            "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0, "num_pending": 0,
            "cluster": {"leader": leader, "replicas": replicas},
        }))
        .unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_new_consumer_is_known_a_second_after_all_have_answered_its_leader() {
        let mut known = Known::default();
        assert!(!known.look(&info(NOW, "", &[]), ms(0)), "it has not been made");
        assert!(!known.look(&info(NOW, "a", &[("b", true), ("c", false)]), ms(100)));
        // A replica that has answered once has made it, even if it is behind later.
        let all = info(NOW, "a", &[("b", false), ("c", true)]);
        assert!(!known.look(&all, ms(2_000)) && !known.look(&all, ms(2_999)));
        assert!(known.look(&all, ms(3_000)));
    }

    #[test]
    fn one_of_three_may_be_down_after_ten_seconds() {
        let one_is_down = info(NOW, "a", &[("b", true), ("c", false)]);
        let mut known = Known::default();
        assert!(!known.look(&one_is_down, ms(0)) && !known.look(&one_is_down, ms(10_000)));
        assert!(!known.look(&one_is_down, ms(10_001)) && known.look(&one_is_down, ms(11_001)));
        // The leader alone is not most of three.
        let two_are_down = info(NOW, "a", &[("b", false), ("c", false)]);
        let mut known = Known::default();
        assert!(!known.look(&two_are_down, ms(10_001)) && !known.look(&two_are_down, ms(14_000)));
    }

    #[test]
    fn without_a_leader_the_wait_begins_anew() {
        let all = info(NOW, "a", &[("b", true), ("c", true)]);
        let mut known = Known::default();
        assert!(!known.look(&all, ms(0)) && !known.look(&info(NOW, "", &[("b", true)]), ms(900)));
        assert!(!known.look(&all, ms(1_000)) && known.look(&all, ms(2_000)));
    }

    #[test]
    fn a_consumer_that_is_not_new_is_known_once_it_has_a_leader() {
        let mut known = Known::default();
        assert!(!known.look(&info(LONG_AGO, "", &[("b", false)]), ms(0)));
        assert!(known.look(&info(LONG_AGO, "a", &[("b", false)]), ms(0)));
    }
}
