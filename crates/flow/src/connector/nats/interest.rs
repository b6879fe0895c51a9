//! Waits until the servers of a cluster know a new consumer.
//!
//! A stream with the retention `interest` keeps a message for the consumers that it has. Each
//! replica decides that by the consumers that it knows itself, and drops a message that none of
//! them wants. The server acknowledges such a message all the same, so it would be lost.
//!
//! A server that has not made a new consumer yet says already that it exists, but not who leads it.
//! Which replicas have made it cannot be asked. Those that answer its leader are about to, or have.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::consumer::{Info, PullConsumer};
use async_nats::jetstream::stream::Stream;

use super::link::Link;
use super::setup::{SetupError, unanswered};

/// A consumer is new for so long, by the clocks of this host and of the server.
const NEW: Duration = Duration::from_secs(60);
/// For how long all replicas must have answered the leader of a new consumer.
const SETTLED: Duration = Duration::from_secs(1);
/// How long to wait for that.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Waits until the replicas of a stream know a consumer. Takes a second or more if the consumer is
/// new and has replicas.
///
/// # Errors
///
/// If they do not for some seconds, or the server does not answer.
pub(super) async fn until_known(link: &Link, stream: &Stream, consumer: &mut PullConsumer) -> Result<(), SetupError> {
    let is_cluster = stream.cached_info().cluster.as_ref().is_some_and(|cluster| is_given(cluster.name.as_ref()));
    if !is_cluster {
        return Ok(());
    }
    let is_replicated = stream.cached_info().config.num_replicas > 1;
    let started_at = Instant::now();
    let mut settles_since = None;
    while !is_known(consumer.cached_info(), &mut settles_since) {
        if !is_replicated && started_at.elapsed() > SETTLED {
            // A server with the name of a cluster that keeps its streams alone names no leader.
            return Ok(());
        }
        if started_at.elapsed() > TIMEOUT {
            let Info { name, stream_name, .. } = consumer.cached_info();
            return Err(SetupError::Unreachable(format!(
                "not all servers of the cluster know the new consumer `{name}` of the stream `{stream_name}`"
            )));
        }
        tokio::time::sleep(LOOK).await;
        consumer.info().await.map_err(|error| unanswered(link, &error))?;
    }
    Ok(())
}

fn is_known(info: &Info, settles_since: &mut Option<Instant>) -> bool {
    match info.cluster.as_ref().filter(|cluster| is_given(cluster.leader.as_ref())) {
        Some(cluster) if cluster.replicas.is_empty() || !is_new(info) => true,
        // A server that is down learns of the consumer before it gets the messages.
        Some(cluster) if cluster.replicas.iter().all(|replica| replica.current || replica.offline) => {
            settles_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED
        }
        _ => {
            *settles_since = None;
            false
        }
    }
}

fn is_given(name: Option<&String>) -> bool {
    name.is_some_and(|name| !name.is_empty())
}

fn is_new(info: &Info) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created_ns = info.created.unix_timestamp_nanos();
    u128::try_from(created_ns).is_ok_and(|created_ns| now.as_nanos() < created_ns + NEW.as_nanos())
}
