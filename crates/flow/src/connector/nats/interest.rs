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
        if failure.is_none() && known.look(consumer.cached_info(), started_at.elapsed() > ALL) {
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
    /// Since when enough replicas have answered.
    enough_since: Option<Instant>,
}

impl Known {
    /// Takes what the server says of a consumer. Returns whether the replicas know it: all, or with
    /// `most_suffice` most of them.
    fn look(&mut self, info: &Info, most_suffice: bool) -> bool {
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
        let is_enough = answered == replicas.len() || (most_suffice && 2 * (answered + 1) > replicas.len() + 1);
        is_enough && self.enough_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED
    }
}

fn is_new(info: &Info) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created_ns = info.created.unix_timestamp_nanos();
    u128::try_from(created_ns).is_ok_and(|created_ns| now.as_nanos() < created_ns + NEW.as_nanos())
}
