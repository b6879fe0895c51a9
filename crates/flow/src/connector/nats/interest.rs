//! Waits until the replicas of a stream know its new consumers, before messages are published.
//!
//! A stream with the retention `interest` keeps a message for the consumers that it has. Each
//! replica decides that by the consumers that it knows itself, and drops a message that none of
//! them wants. The server acknowledges such a message all the same, so it would be lost.
//!
//! A server answers requests about a new consumer before it has created it. Such an answer names no
//! leader. No request shows which replicas have created it. A replica that answers the leader of
//! the consumer creates it some milliseconds later. So one second after all replicas have answered,
//! all know it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::consumer::{Info, PullConsumer};
use async_nats::jetstream::context::{ConsumerInfoError, ConsumerInfoErrorKind};
use async_nats::jetstream::stream::{PeerInfo, RetentionPolicy, Stream};
use futures_util::future::try_join_all;

use super::errors::reason;
use super::link::Link;
use super::setup::{SetupError, unanswered};

/// A consumer is new until this time after its creation. The clock of this host is compared with
/// that of the server.
const NEW: Duration = Duration::from_secs(60);
/// How long to wait after all replicas have answered the leader of a new consumer.
const SETTLED: Duration = Duration::from_secs(1);
/// After this time most of the replicas are enough: one may be down.
const ALL: Duration = Duration::from_secs(10);
/// After this time the wait fails, unless enough replicas have answered.
const MOST: Duration = Duration::from_secs(15);
/// A wait of this time is logged.
const LONG: Duration = Duration::from_secs(2);
/// How long to wait for one answer.
const ANSWER: Duration = Duration::from_secs(1);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until the replicas of a stream know its consumers. Takes a second or more if one is new
/// and the stream has replicas.
///
/// # Errors
///
/// If most replicas do not know one for some seconds, or the connection is lost.
pub(super) async fn until_known(link: &Link, stream: &Stream, consumers: Vec<PullConsumer>) -> Result<(), SetupError> {
    let config = &stream.cached_info().config;
    // A single replica names a leader only once it has created the consumer, and answers itself.
    if config.num_replicas <= 1 || config.retention != RetentionPolicy::Interest {
        return Ok(());
    }
    try_join_all(consumers.into_iter().map(|consumer| until_one_is_known(link, consumer))).await.map(drop)
}

async fn until_one_is_known(link: &Link, mut consumer: PullConsumer) -> Result<(), SetupError> {
    let Info { name, stream_name, .. } = consumer.cached_info();
    let what = format!("the new consumer `{name}` of the stream `{stream_name}`");
    let started_at = Instant::now();
    let mut known = Known::default();
    let mut failure = None;
    let mut is_logged = false;
    loop {
        let waited = started_at.elapsed();
        if failure.is_none() && known.look(consumer.cached_info(), waited) {
            return Ok(());
        }
        let limit = if known.enough_after.is_some() { MOST + 2 * SETTLED } else { MOST };
        if waited > limit || !link.is_up() {
            return Err(failure
                .unwrap_or_else(|| SetupError::Unreachable(format!("too few servers of the cluster know {what}"))));
        }
        if waited > LONG && !is_logged {
            tracing::info!("waiting until the servers of the cluster know {what}");
            is_logged = true;
        }
        tokio::time::sleep(LOOK).await;
        failure = match tokio::time::timeout(ANSWER, consumer.info()).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(failed(link, &what, &error)),
            Err(_) => Some(SetupError::Unreachable(format!("the NATS server says nothing of {what}"))),
        };
        if let Some(refused @ SetupError::Refused(_)) = failure {
            return Err(refused);
        }
    }
}

/// Why a server says nothing of a consumer.
fn failed(link: &Link, what: &str, error: &ConsumerInfoError) -> SetupError {
    match error.kind() {
        // A server may answer "not found" just before it creates the consumer.
        ConsumerInfoErrorKind::NotFound | ConsumerInfoErrorKind::StreamNotFound | ConsumerInfoErrorKind::Offline => {
            SetupError::Unreachable(format!("{what}: {}", reason(error)))
        }
        ConsumerInfoErrorKind::JetStream(refusal) => {
            SetupError::refusal(refusal.error_code(), format!("the server refuses {what}: {}", reason(&refusal)))
        }
        _ => unanswered(link, error),
    }
}

/// What has been seen of the replicas of a consumer.
#[derive(Default)]
struct Known {
    /// The replicas that have answered a leader.
    answered: BTreeSet<String>,
    /// The time of the wait at which enough replicas had answered. `None` if there are too few.
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
        self.answered.extend(replicas.iter().filter(|it| has_answered(it)).map(|it| it.name.clone()));
        let answered = replicas.iter().filter(|it| self.answered.contains(&it.name)).count();
        // The leader, which is not in the list, is one of the servers too.
        let is_enough = answered == replicas.len() || (waited > ALL && 2 * (answered + 1) > replicas.len() + 1);
        if !is_enough {
            self.enough_after = None;
            return false;
        }
        waited >= *self.enough_after.get_or_insert(waited) + SETTLED
    }
}

/// Whether a replica has answered the leader. A leader that was just elected says of all replicas
/// that they are current, but of those that never answered that they were last seen 0 ns ago.
fn has_answered(replica: &PeerInfo) -> bool {
    replica.current && !replica.active.is_zero()
}

fn is_new(info: &Info) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created_ns = info.created.unix_timestamp_nanos();
    u128::try_from(created_ns).is_ok_and(|created_ns| now.as_nanos() < created_ns + NEW.as_nanos())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: &str = "2100-01-01T00:00:00Z";
    const LONG_AGO: &str = "2020-01-01T00:00:00Z";

    /// A replica that has answered the leader or not.
    fn replica((name, has_answered): (&str, bool)) -> Value {
        json!({"name": name, "current": has_answered, "active": 1_000_000})
    }

    /// What a server says of a consumer that was created at a time.
    fn info(created: &str, leader: &str, replicas: &[(&str, bool)]) -> Info {
        let replicas: Vec<_> = replicas.iter().copied().map(replica).collect();
        info_with(created, &json!({"leader": leader, "replicas": replicas}))
    }

    fn info_with(created: &str, cluster: &Value) -> Info {
        let sequences = json!({"consumer_seq": 0, "stream_seq": 0});
        serde_json::from_value(json!({
            "stream_name": "stream", "name": "consumer", "created": created,
            "config": {"deliver_policy": "all", "ack_policy": "explicit", "replay_policy": "instant"},
            "delivered": sequences, "ack_floor": sequences,
            "num_ack_pending": 0, "num_redelivered": 0, "num_waiting": 0, "num_pending": 0,
            "cluster": cluster,
        }))
        .unwrap()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_new_consumer_is_known_a_second_after_all_have_answered_its_leader() {
        let mut known = Known::default();
        assert!(!known.look(&info(NOW, "", &[]), ms(0)), "it has not been created");
        assert!(!known.look(&info(NOW, "a", &[("b", true), ("c", false)]), ms(100)));
        // A replica that has answered once has created it, even if it is behind later.
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

    #[test]
    fn a_replica_that_was_never_seen_has_not_answered() {
        // A leader that was just elected says so.
        let never_seen = json!({"name": "c", "current": true, "active": 0});
        let new = info_with(NOW, &json!({"leader": "a", "replicas": [replica(("b", true)), never_seen]}));
        let mut known = Known::default();
        assert!(!known.look(&new, ms(0)) && !known.look(&new, ms(5_000)));
    }

    #[test]
    fn the_second_begins_anew_after_too_few_have_answered() {
        let mut known = Known::default();
        assert!(!known.look(&info(NOW, "a", &[("b", true), ("c", false)]), ms(10_100)));
        // Another one leads, and none has answered it.
        assert!(!known.look(&info(NOW, "b", &[("a", false), ("c", false)]), ms(10_500)));
        let one = info(NOW, "b", &[("a", false), ("c", true)]);
        assert!(!known.look(&one, ms(11_300)) && !known.look(&one, ms(12_299)));
        assert!(known.look(&one, ms(12_300)));
    }

    #[test]
    fn an_answer_without_a_leader_says_nothing() {
        let answered = json!([replica(("b", true))]);
        let without =
            [json!(null), json!({}), json!({"replicas": answered}), json!({"leader": "", "replicas": answered})];
        for cluster in without {
            for created in [NOW, LONG_AGO] {
                let info = info_with(created, &cluster);
                let mut known = Known::default();
                assert!(!known.look(&info, ms(0)) && !known.look(&info, ms(14_000)), "{created} {cluster}");
            }
        }
    }

    #[test]
    fn three_of_five_are_most_and_one_of_two_is_not() {
        let replicas = |c| [("b", true), ("c", c), ("d", false), ("e", false)];
        let mut known = Known::default();
        let two = info(NOW, "a", &replicas(false));
        assert!(!known.look(&two, ms(10_001)) && !known.look(&two, ms(11_001)));
        let three = info(NOW, "a", &replicas(true));
        assert!(!known.look(&three, ms(11_100)) && known.look(&three, ms(12_100)));
        let one = info(NOW, "a", &[("b", false)]);
        let mut known = Known::default();
        assert!(!known.look(&one, ms(10_001)) && !known.look(&one, ms(14_999)));
    }
}
