//! Streams and consumers: used if they exist, created with the limits of the pipeline's file if
//! not, and never deleted. One exception: a consumer that would skip messages is made anew.

use std::error::Error;
use std::time::{Duration, Instant};

use anyhow::bail;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, FromConsumer, PullConsumer, pull};
use async_nats::jetstream::context::{CreateStreamErrorKind, GetStreamErrorKind, RequestError, RequestErrorKind};
use async_nats::jetstream::stream::{
    self, Config, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType, Stream,
};
use async_nats::jetstream::{self, ErrorCode};

use super::errors::reason;
use super::interest::until_known;
use super::link::Link;
use super::timing::delay;
use super::version;
use crate::config::{Nats, NatsTopic};

/// The most messages of a queue that all hosts together have taken and not acknowledged.
const MAX_ACK_PENDING: i64 = 16_384;
/// How long a stream may be behind its consumers without a fault.
const BEHIND: Duration = Duration::from_millis(500);
/// After how long the server deletes a consumer that nobody uses, and that keeps messages while
/// another is made anew.
const KEEPER: Duration = Duration::from_secs(60);
/// How long the server recognises a message that is published again. Its own default.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// What JetStream says while a cluster has no leader, or the servers of a stream or a consumer are
/// down.
const FORMING: [ErrorCode; 6] = [
    ErrorCode::CLUSTER_INCOMPLETE,
    ErrorCode::CLUSTER_NOT_ACTIVE,
    ErrorCode::CLUSTER_NOT_AVAILABLE,
    ErrorCode::CLUSTER_NOT_LEADER,
    ErrorCode::STREAM_OFFLINE,
    ErrorCode::CONSUMER_OFFLINE,
];
/// What JetStream says if too few servers of a cluster can keep a stream: for now, or for good.
const NO_PLACE: [ErrorCode; 2] = [ErrorCode::CLUSTER_NO_PEERS, ErrorCode::INSUFFICIENT_RESOURCES];
/// How long a host that starts waits for such servers.
const PLACEMENT: Duration = Duration::from_secs(10);

/// Why a stream or a consumer cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    /// The server did not answer.
    #[error("{0}")]
    Unreachable(String),
    /// Too few servers of the cluster can keep the stream: one is not up yet, or the leader does
    /// not know it yet.
    #[error("{0}")]
    NoPlace(String),
    /// The server refused, or has something else under that name.
    #[error("{0}")]
    Refused(String),
}

impl SetupError {
    /// The error with this code of JetStream. A cluster that is still forming counts as a server
    /// that does not answer.
    pub(super) fn refusal(code: ErrorCode, text: String) -> SetupError {
        if FORMING.contains(&code) {
            SetupError::Unreachable(text)
        } else if NO_PLACE.contains(&code) {
            SetupError::NoPlace(text)
        } else {
            SetupError::Refused(text)
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            SetupError::Unreachable(text) | SetupError::NoPlace(text) | SetupError::Refused(text) => text,
        }
    }
}

const NO_JETSTREAM: &str = "the NATS server has no JetStream, which `delivery: at-least-once` needs; enable it in the \
                            server (`jetstream {}`, or the option `-js`), or for the account";

/// As [`prepare`], when a host starts. A server that cannot be reached is asked later.
///
/// # Errors
///
/// If the server refuses it, or a cluster has too few servers for it for some seconds.
pub(super) async fn prepare_at_start(link: &Link, nats: &Nats, topic: &NatsTopic) -> anyhow::Result<()> {
    let started_at = Instant::now();
    for attempt in 0.. {
        if !link.is_up() {
            break;
        }
        match prepare(link, nats, topic).await {
            Ok(_) => break,
            Err(SetupError::Unreachable(reason)) => {
                tracing::warn!(topic = topic.topic, "{reason}; the server is asked again later");
                break;
            }
            Err(SetupError::NoPlace(reason)) if started_at.elapsed() < PLACEMENT => {
                if attempt == 0 {
                    tracing::warn!(topic = topic.topic, "{reason}; waiting for more servers of the cluster");
                }
                tokio::time::sleep(delay(attempt)).await;
            }
            Err(SetupError::NoPlace(reason) | SetupError::Refused(reason)) => {
                bail!("the topic `{}` cannot cross hosts: {reason}", topic.topic)
            }
        }
    }
    Ok(())
}

/// As [`prepare`], before messages are published: the replicas of the stream must know its
/// consumers.
pub(super) async fn prepare_to_publish(link: &Link, nats: &Nats, topic: &NatsTopic) -> Result<(), SetupError> {
    let (stream, consumers) = prepare(link, nats, topic).await?;
    until_known(link, &stream, consumers).await
}

/// Creates the stream of a topic and the consumers of all its queues, unless they exist. The
/// consumers of other hosts too: the stream keeps a message for the consumers it has. Consumers
/// that would skip messages are made anew.
pub(super) async fn prepare(
    link: &Link,
    nats: &Nats,
    topic: &NatsTopic,
) -> Result<(Stream, Vec<PullConsumer>), SetupError> {
    let _ = link.take_refused();
    check_version(link)?;
    let mut stream = find_stream(link, nats, topic).await?;
    let mut consumers = Vec::new();
    for queue in &topic.queues {
        let consumer = consumer(link, &stream, nats, topic, queue).await?;
        if is_ahead(link, consumer.cached_info(), &mut stream).await? {
            renew(link, &stream, topic, queue, consumer.cached_info()).await?;
        }
        consumers.push(consumer);
    }
    Ok((stream, consumers))
}

fn check_version(link: &Link) -> Result<(), SetupError> {
    version::too_old(&link.client.server_info().version).map_or(Ok(()), |text| Err(SetupError::Refused(text)))
}

async fn find_stream(link: &Link, nats: &Nats, topic: &NatsTopic) -> Result<Stream, SetupError> {
    let stream = match link.jetstream.get_stream(&topic.stream).await {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                create_stream(link, nats, topic).await?
            }
            GetStreamErrorKind::JetStream(refusal) => return Err(refused(&topic.stream, &refusal)),
            _ => return Err(unanswered(link, &error)),
        },
    };
    check_stream(&stream.cached_info().config, topic)?;
    Ok(stream)
}

/// What a topic lacks on the server, one line each. Creates nothing.
pub(super) async fn missing(link: &Link, nats: &Nats, topic: &NatsTopic) -> Vec<String> {
    let _ = link.take_refused();
    if let Err(error) = check_version(link) {
        return vec![error.text().to_owned()];
    }
    let name = &topic.stream;
    let stream = match link.jetstream.get_stream(name).await {
        Ok(stream) => stream,
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                return vec![format!("the stream `{name}` does not exist yet; the first host that runs creates it")];
            }
            GetStreamErrorKind::JetStream(refusal) => return vec![refused(name, &refusal).text().to_owned()],
            _ => return vec![unanswered(link, &error).text().to_owned()],
        },
    };
    if let Err(error) = check_stream(&stream.cached_info().config, topic) {
        return vec![error.text().to_owned()];
    }
    let mut missing = Vec::new();
    for queue in &topic.queues {
        if stream.consumer_info(queue).await.is_err() {
            let refused = link.take_refused().map(|refused| format!(" (the server refuses: {refused})"));
            let refused = refused.unwrap_or_default();
            missing.push(format!(
                "the stream `{name}` has no consumer `{queue}` yet; the first host that runs creates it{refused}"
            ));
        }
    }
    let has_limit = stream.cached_info().config.max_bytes;
    if u64::try_from(has_limit).is_ok_and(|limit| limit != nats.stream.max_bytes) {
        missing.push(format!("the stream `{name}` keeps {has_limit} bytes, and not as `nats.stream.max_bytes` says"));
    }
    missing
}

async fn create_stream(link: &Link, nats: &Nats, topic: &NatsTopic) -> Result<Stream, SetupError> {
    let max_age = nats.stream.max_age.unwrap_or_default();
    let config = Config {
        name: topic.stream.clone(),
        subjects: vec![topic.subject.clone()],
        max_bytes: i64::try_from(nats.stream.max_bytes).unwrap_or(i64::MAX),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_age,
        // A full stream refuses messages, so that the sender waits. Messages that all queues have
        // acknowledged are removed.
        discard: DiscardPolicy::New,
        retention: RetentionPolicy::Interest,
        storage: StorageType::File,
        num_replicas: nats.stream.replicas,
        duplicate_window: if max_age.is_zero() { DUPLICATE_WINDOW } else { DUPLICATE_WINDOW.min(max_age) },
        description: Some(String::from("A topic of an Estafette pipeline.")),
        ..Config::default()
    };
    link.jetstream.create_stream(config).await.map_err(|error| match error.kind() {
        CreateStreamErrorKind::JetStream(refusal) => refused(&topic.stream, &refusal),
        CreateStreamErrorKind::JetStreamUnavailable => SetupError::Refused(NO_JETSTREAM.into()),
        _ => unanswered(link, &error),
    })
}

/// Whether an existing stream can be the topic's.
fn check_stream(config: &stream::Config, topic: &NatsTopic) -> Result<(), SetupError> {
    if config.subjects.iter().any(|pattern| matches(pattern, &topic.subject)) {
        return Ok(());
    }
    let (stream, subject) = (&topic.stream, &topic.subject);
    Err(SetupError::Refused(format!(
        "the stream `{stream}` exists and does not store the subject `{subject}`; take another `nats.prefix`, or add \
         the subject to the stream"
    )))
}

/// Whether a pattern of subjects covers a subject.
fn matches(pattern: &str, subject: &str) -> bool {
    let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
    loop {
        match (pattern.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(wanted), Some(word)) if wanted == "*" || wanted == word => {}
            _ => return false,
        }
    }
}

/// The consumer of a queue.
pub(super) async fn consumer(
    link: &Link,
    stream: &Stream,
    nats: &Nats,
    topic: &NatsTopic,
    queue: &str,
) -> Result<PullConsumer, SetupError> {
    let config = pull::Config {
        durable_name: Some(queue.to_owned()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ack_wait: nats.ack_wait,
        filter_subject: topic.subject.clone(),
        max_ack_pending: MAX_ACK_PENDING,
        ..pull::Config::default()
    };
    let consumer = stream.get_or_create_consumer(queue, config).await.map_err(|error| {
        let text = format!("the consumer `{queue}` of the stream `{}`: {}", topic.stream, reason(&error));
        match (error.kind(), request(&error)) {
            // The stream was found just before. The server that answers does not know it yet.
            (ConsumerErrorKind::JetStream(refusal), _) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                SetupError::Unreachable(text)
            }
            (ConsumerErrorKind::JetStream(refusal), _) => SetupError::refusal(refusal.error_code(), text),
            (ConsumerErrorKind::TimedOut, _) | (_, Some(_)) => unanswered(link, &error),
            (_, None) => SetupError::Refused(text),
        }
    })?;
    if consumer.cached_info().config.ack_policy != AckPolicy::Explicit {
        return Err(SetupError::Refused(format!(
            "the consumer `{queue}` of the stream `{}` exists and does not want explicit acknowledgements; remove it, or \
             take another `nats.prefix`",
            topic.stream
        )));
    }
    Ok(consumer)
}

/// The consumer of a queue, with its stream.
pub(super) async fn consumer_of(
    link: &Link,
    nats: &Nats,
    topic: &NatsTopic,
    queue: &str,
) -> Result<PullConsumer, SetupError> {
    prepare(link, nats, topic).await?;
    let stream = find_stream(link, nats, topic).await?;
    consumer(link, &stream, nats, topic, queue).await
}

/// Whether a consumer is ahead of the last message of its stream. A server that was killed may have
/// forgotten how far an empty stream was. It numbers the next messages from 1, and the consumer
/// would skip them.
///
/// Asks twice: in a cluster, the stream may be behind for a moment when another server begins to
/// lead it.
async fn is_ahead(link: &Link, consumer: &jetstream::consumer::Info, stream: &mut Stream) -> Result<bool, SetupError> {
    let furthest = consumer.ack_floor.stream_sequence.max(consumer.delivered.stream_sequence);
    for pause in [None, Some(BEHIND)] {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        // Asked after the consumer, which may have made progress since the stream was found.
        let last = stream.info().await.map_err(|error| unanswered(link, &error))?.state.last_sequence;
        if furthest <= last {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes such a consumer anew, with its settings.
async fn renew(
    link: &Link,
    stream: &Stream,
    topic: &NatsTopic,
    queue: &str,
    old: &jetstream::consumer::Info,
) -> Result<(), SetupError> {
    tracing::warn!(
        stream = topic.stream,
        consumer = queue,
        "the NATS server has forgotten how far the stream was, so its consumer is made anew; messages may arrive twice"
    );
    replace(link, stream, topic, queue, old).await.map_err(|error| {
        let text = format!("the consumer `{queue}` of the stream `{}` is not made anew: {error:#}", topic.stream);
        match (link.take_refused(), error.downcast_ref()) {
            (Some(refused), _) => SetupError::Refused(format!("{text}; the server refuses: {refused}")),
            (None, Some(SetupError::Refused(_))) => SetupError::Refused(text),
            (None, _) => SetupError::Unreachable(text),
        }
    })
}

/// Replaces a consumer by one that gets all messages of the stream. In between, another one keeps
/// them there.
async fn replace(
    link: &Link,
    stream: &Stream,
    topic: &NatsTopic,
    queue: &str,
    old: &jetstream::consumer::Info,
) -> anyhow::Result<()> {
    let settings =
        pull::Config::try_from_consumer_config(old.config.clone()).map_err(|error| anyhow::anyhow!(error))?;
    let keeper = pull::Config {
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        filter_subject: topic.subject.clone(),
        inactive_threshold: KEEPER,
        ..pull::Config::default()
    };
    let keeper = stream.create_consumer(keeper).await?;
    until_known(link, stream, vec![keeper.clone()]).await?;
    // Another host may have made it anew meanwhile.
    if stream.consumer_info(queue).await?.created == old.created {
        stream.delete_consumer(queue).await?;
    }
    let settings = pull::Config { deliver_policy: DeliverPolicy::All, ..settings };
    let renewed = stream.get_or_create_consumer(queue, settings).await?;
    until_known(link, stream, vec![renewed]).await?;
    // Otherwise the server deletes it later.
    let _ = stream.delete_consumer(&keeper.cached_info().name).await;
    Ok(())
}

fn refused(stream: &str, refusal: &jetstream::Error) -> SetupError {
    let code = refusal.error_code();
    if matches!(code, ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT) {
        return SetupError::Refused(NO_JETSTREAM.into());
    }
    SetupError::refusal(code, format!("the server refuses the stream `{stream}`: {}", reason(refusal)))
}

/// An error of a request that has no answer of JetStream.
pub(super) fn unanswered(link: &Link, error: &(dyn Error + 'static)) -> SetupError {
    if let Some(refused) = link.take_refused() {
        return SetupError::Refused(format!("the server refuses: {refused}; grant it to the user of this host"));
    }
    match request(error) {
        Some(RequestErrorKind::NoResponders) if link.is_up() => SetupError::Refused(NO_JETSTREAM.into()),
        _ => SetupError::Unreachable(format!("the NATS server does not answer: {}", reason(error))),
    }
}

/// The failed request in the causes of an error.
fn request(error: &(dyn Error + 'static)) -> Option<RequestErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(request) = error.downcast_ref::<RequestError>() {
            return Some(request.kind());
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_subjects() {
        assert!(matches("a.b", "a.b") && matches("a.*", "a.b") && matches("a.>", "a.b.c") && matches(">", "a"));
        assert!(!matches("a", "a.b") && !matches("a.*", "a.b.c") && !matches("a.b.>", "a.b") && !matches("a.b", "a"));
    }

    #[test]
    fn what_is_temporary_does_not_end_a_host() {
        let error = |code| SetupError::refusal(code, String::new());
        for code in [ErrorCode::CLUSTER_NOT_AVAILABLE, ErrorCode::STREAM_OFFLINE, ErrorCode::CONSUMER_OFFLINE] {
            assert!(matches!(error(code), SetupError::Unreachable(_)));
        }
        assert!(matches!(error(ErrorCode::CLUSTER_NO_PEERS), SetupError::NoPlace(_)));
        assert!(matches!(error(ErrorCode::BAD_REQUEST), SetupError::Refused(_)));
    }
}
