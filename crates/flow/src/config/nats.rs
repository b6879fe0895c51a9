//! The settings of the NATS server for topics that cross hosts, and the ends of such a topic.

use std::fmt::{self, Debug, Formatter};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::topic::Delivery;

/// How a pipeline reaches its NATS server.
#[derive(Clone, PartialEq, Serialize)]
pub struct Nats {
    /// The servers of one cluster. They may contain a user's name and a password or a token, so
    /// they are not serialized, and `Debug` shows only their addresses.
    #[serde(skip)]
    pub servers: Vec<String>,
    /// The first word of all subjects and streams of the pipeline.
    pub prefix: String,
    /// A credentials file.
    pub credentials: Option<PathBuf>,
    /// Certificates. With it, connections without TLS are refused.
    pub tls: Option<NatsTls>,
    /// After how long without a sign of life the server delivers the messages of a host again; 30 s
    /// by default.
    pub ack_wait: Duration,
    /// The limits of streams that do not exist yet.
    pub stream: NatsStream,
}

impl Nats {
    /// The default of `ack_wait`.
    pub const ACK_WAIT: Duration = Duration::from_secs(30);

    /// The subject of a topic: `PREFIX.TOPIC`, where bytes of the topic's name other than letters,
    /// digits, `-` and `_` are written as `%` and two hexadecimal digits.
    pub fn subject(&self, topic: &str) -> String {
        format!("{}.{}", self.prefix, encoded(topic))
    }

    /// The stream of a topic that is delivered at least once: `PREFIX_TOPIC`, with the topic's name
    /// as in the subject.
    pub fn stream_name(&self, topic: &str) -> String {
        format!("{}_{}", self.prefix, encoded(topic))
    }
}

impl Debug for Nats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Nats { servers, prefix, credentials, tls, ack_wait, stream } = self;
        let servers: Vec<_> = servers.iter().map(|server| without_user(server)).collect();
        f.debug_struct("Nats")
            .field("servers", &servers)
            .field("prefix", prefix)
            .field("credentials", credentials)
            .field("tls", tls)
            .field("ack_wait", ack_wait)
            .field("stream", stream)
            .finish()
    }
}

/// A server's URL without the user, password or token.
fn without_user(server: &str) -> String {
    match (server.split_once("://"), server.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, address))) => format!("{scheme}://{address}"),
        (None, Some((_, address))) => address.to_owned(),
        (_, None) => server.to_owned(),
    }
}

/// Certificates for connections to a NATS server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NatsTls {
    /// Certificates to trust beside the system's.
    pub ca: Option<PathBuf>,
    /// This host's own certificate, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// The limits of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct NatsStream {
    /// After how long a message is lost though nobody has processed it; never by default.
    pub max_age: Option<Duration>,
    /// How many bytes a stream keeps; 256 MiB by default. Senders wait while it is full.
    pub max_bytes: u64,
    /// On how many servers of the cluster it is kept; 1 by default.
    pub replicas: usize,
}

impl Default for NatsStream {
    fn default() -> NatsStream {
        NatsStream { max_age: None, max_bytes: 256 << 20, replicas: 1 }
    }
}

/// A topic on the server, as a host's part of a pipeline uses it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NatsTopic {
    /// The topic's name in the pipeline's file.
    pub topic: String,
    /// Its subject.
    pub subject: String,
    /// The stream of a topic that is delivered at least once.
    pub stream: String,
    /// Whether it has a stream.
    pub delivery: Delivery,
    /// All queues that read it, on any host, by their names on the server.
    pub queues: Vec<String>,
    /// The longest message in bytes.
    pub max_message: usize,
    /// How often readers on one host may attempt a message. Without a topic for dead letters, the
    /// server may deliver it any number of times; with one, 100 times more than this.
    pub max_deliver: u8,
    /// The bytes that a host takes before they are processed.
    pub capacity: usize,
    /// The most bytes of messages that are sent as one NATS message; 0: each is one.
    pub batch: usize,
    /// Whether each NATS message has an ID.
    pub message_ids: bool,
}

/// Writes a name as one word of a subject.
pub(crate) fn encoded(name: &str) -> String {
    let mut word = String::new();
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' => word.push(byte.into()),
            _ => word.push_str(&format!("%{byte:02X}")),
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_password() {
        let servers = ["nats://flow:se@cret@a:4222", "token@b", "tls://c"].map(String::from).to_vec();
        let (ack_wait, stream) = (Nats::ACK_WAIT, NatsStream::default());
        let nats = Nats { servers, prefix: String::from("t"), credentials: None, tls: None, ack_wait, stream };
        let shown = format!("{nats:?}");
        assert!(shown.contains(r#"["nats://a:4222", "b", "tls://c"]"#), "{shown}");
    }

    #[test]
    fn a_name_is_one_word_of_a_subject() {
        assert_eq!(encoded("raw-data_2"), "raw-data_2");
        assert_eq!(encoded("a.b *>%ü"), "a%2Eb%20%2A%3E%25%C3%BC");
    }
}
