//! The throughput of a topic between two hosts, beside that of a publisher and a subscriber that
//! use the client library alone, with the same server and the same batches: once without headers,
//! and once with those of a topic, for which the server recognises messages that are sent again and
//! keeps their order. Both write every byte of each message before they send it, and read every
//! byte that they receive.
//!
//! They take turns in short slices, so that changes of the machine affect all. Run it with
//! `cargo test --release -p estafette-flow --features nats --test hosts -- --ignored --nocapture throughput`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use async_nats::header::{NATS_EXPECTED_LAST_MESSAGE_ID, NATS_MESSAGE_ID};
use async_nats::jetstream::{self, consumer::pull, stream};
use async_nats::{Client, ConnectOptions, HeaderMap, Subject};
use bytes::Bytes;
use estafette_flow::config::{SinkKind, SourceKind};
use estafette_flow::external::Sender;
use estafette_ipc::WaitMode;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Semaphore;

use crate::delivery::from_file;
use crate::ground::{Ground, PATIENCE, Running};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![; ignored: throughput_of_a_topic_beside_a_bare_client, throughput_of_a_local_edge_beside_one_that_crosses];

/// How many rounds are measured, after one that is not.
const ROUNDS: usize = 15;
/// How many bytes may be on their way.
const WINDOW: usize = 4 << 20;
/// The most bytes and messages of a batch, as in a topic.
const BATCH: (usize, usize) = (256 << 10, 4096);

/// How messages are delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    AtMostOnce,
    AtLeastOnce,
}

impl Delivery {
    /// How many bytes a slice has: some 200 ms. In slices of 25 ms, the first and the last messages
    /// count for several percent.
    fn slice(self) -> usize {
        match self {
            Delivery::AtMostOnce => 192 << 20,
            Delivery::AtLeastOnce => 24 << 20,
        }
    }
}

/// Messages of one length in batches. Receivers give back a permit for each message.
#[derive(Clone)]
struct Load {
    len: usize,
    count: usize,
    batch: usize,
    window: usize,
    permits: Arc<Semaphore>,
}

impl Load {
    /// `slice` is the number of bytes of a slice.
    fn new(len: usize, slice: usize) -> Load {
        let batch = (BATCH.0 / len).clamp(1, BATCH.1);
        let window = (WINDOW / len).max(2 * batch);
        let permits = Arc::new(Semaphore::new(window));
        Load { len, count: slice / len / batch * batch, batch, window, permits }
    }

    /// Takes a message that has arrived: reads it, and allows another one.
    fn receive(&self, message: &[u8]) {
        assert_eq!(message.len(), self.len);
        let different = message.iter().fold(0, |different, byte| different | (byte ^ message[0]));
        assert_eq!(different, 0, "a message is damaged");
        self.permits.add_permits(1);
    }

    /// Waits until so many messages may be sent.
    async fn take(&self, messages: usize) {
        let permits = self.permits.acquire_many(u32::try_from(messages).unwrap());
        tokio::time::timeout(PATIENCE, permits).await.expect("messages were lost").unwrap().forget();
    }

    /// Waits until all messages have been received.
    async fn end(&self) {
        self.take(self.window).await;
        self.permits.add_permits(self.window);
    }
}

/// A thread that drives the connections of one side, as each host has one.
fn io() -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
}

/// Sends a batch to a topic. Each message is written in the ring.
fn send(sender: &mut Sender, load: &Load, batch: usize) {
    for message in 0..load.batch {
        sender.send_with(load.len, |bytes| bytes.fill((batch + message) as u8)).unwrap();
    }
}

/// The two hosts of a topic.
struct Topic {
    load: Load,
    io: Handle,
    sender: Sender,
    hosts: [Running; 2],
    _ground: Ground,
}

impl Topic {
    /// `settings` are further settings of the topic.
    fn start(server: &Server, delivery: Delivery, settings: &str, load: Load) -> Topic {
        let delivery_setting = match delivery {
            Delivery::AtMostOnce => "",
            Delivery::AtLeastOnce => ", delivery: at-least-once",
        };
        let ground = Ground::new(
            &from_file(&format!("{delivery_setting}{settings}, capacity: 4MiB, max_message: 200KiB")),
            server,
        );
        ground.write("in.txt", std::iter::empty());
        let (mut sender, mut receiver) = (None, None);
        let center = ground.run_changed(
            "center",
            |part| {
                part.sinks.iter_mut().filter(|sink| sink.name == "out").for_each(|sink| sink.kind = SinkKind::External)
            },
            |supervisor| receiver = Some(supervisor.external_sink("out").unwrap().receiver(WaitMode::Block).unwrap()),
        );
        let (mut receiver, received) = (receiver.unwrap(), load.clone());
        thread::spawn(move || receiver.for_each(|message| received.receive(message)));
        if delivery == Delivery::AtMostOnce {
            server.until_subscribed("t.raw", 1);
        }
        let edge = ground.run_changed(
            "edge",
            |part| part.sources.iter_mut().filter(|it| it.name == "in").for_each(|it| it.kind = SourceKind::External),
            |supervisor| sender = Some(supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap()),
        );
        Topic { load, io: io(), sender: sender.unwrap(), hosts: [edge, center], _ground: ground }
    }

    fn slice(&mut self) -> Duration {
        let start = Instant::now();
        for batch in 0..self.load.count / self.load.batch {
            self.io.block_on(self.load.take(self.load.batch));
            send(&mut self.sender, &self.load, batch);
        }
        self.io.block_on(self.load.end());
        start.elapsed()
    }

    fn end(self) {
        drop(self.sender);
        self.hosts.iter().for_each(|host| drop(host.end()));
    }
}

/// The headers of a publisher without a pipeline.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Headers {
    None,
    /// Those that a topic's messages have.
    OfTopics,
}

/// A publisher and a subscriber without a pipeline.
struct Bare {
    load: Load,
    io: Handle,
    delivery: Delivery,
    headers: Headers,
    /// The stream, and the first word of the subject.
    name: &'static str,
    /// The number of the next message.
    next: u64,
    publisher: Client,
    jetstream: jetstream::Context,
}

impl Bare {
    fn start(server: &Server, delivery: Delivery, headers: Headers, load: Load) -> Bare {
        let name = if headers == Headers::None { "bare" } else { "named" };
        let (io, far) = (io(), io());
        far.block_on(async {
            let receiver = ConnectOptions::new().connect(server.url()).await.unwrap();
            match delivery {
                Delivery::AtMostOnce => {
                    let subscriber = receiver.subscribe(format!("{name}.raw")).await.unwrap();
                    receiver.flush().await.unwrap();
                    drop(tokio::spawn(subscribe(subscriber, load.clone())));
                }
                Delivery::AtLeastOnce => drop(tokio::spawn(consume(consumer(receiver, name).await, load.clone()))),
            }
        });
        let (publisher, jetstream) = io.block_on(async {
            let publisher = ConnectOptions::new().connect(server.url()).await.unwrap();
            (publisher.clone(), jetstream::new(publisher))
        });
        if delivery == Delivery::AtMostOnce {
            server.until_subscribed(&format!("{name}.raw"), 1);
        }
        Bare { load, io, delivery, headers, name, next: 1, publisher, jetstream }
    }

    fn slice(&mut self) -> Duration {
        let start = Instant::now();
        let io = self.io.clone();
        io.block_on(async {
            for _ in 0..self.load.count / self.load.batch {
                self.load.take(self.load.batch).await;
                match self.delivery {
                    Delivery::AtMostOnce => self.publish().await,
                    Delivery::AtLeastOnce => self.store().await,
                }
            }
            self.load.end().await;
        });
        start.elapsed()
    }

    async fn publish(&mut self) {
        let subject = Subject::from(format!("{}.raw", self.name));
        for _ in 0..self.load.batch {
            let (message, headers) = (self.message(), self.headers(true));
            match headers {
                Some(headers) => self.publisher.publish_with_headers(subject.clone(), headers, message).await.unwrap(),
                None => self.publisher.publish(subject.clone(), message).await.unwrap(),
            }
        }
        self.publisher.flush().await.unwrap();
    }

    async fn store(&mut self) {
        let subject = Subject::from(format!("{}.raw", self.name));
        let mut sent = Vec::with_capacity(self.load.batch);
        for _ in 0..self.load.batch {
            let (message, headers) = (self.message(), self.headers(sent.is_empty()));
            sent.push(match headers {
                Some(headers) => self.jetstream.publish_with_headers(subject.clone(), headers, message).await.unwrap(),
                None => self.jetstream.publish(subject.clone(), message).await.unwrap(),
            });
        }
        for stored in join_all(sent.into_iter().map(IntoFuture::into_future)).await {
            stored.unwrap();
        }
    }

    /// The next message.
    fn message(&self) -> Bytes {
        Bytes::from(vec![self.next as u8; self.load.len])
    }

    /// The headers of the next message, which is counted.
    fn headers(&mut self, is_first: bool) -> Option<HeaderMap> {
        let id = |number| format!("edge-4711-63f1c0ffee:{number}");
        let number = self.next;
        self.next += 1;
        (self.headers == Headers::OfTopics).then(|| {
            let mut headers = HeaderMap::new();
            headers.insert(NATS_MESSAGE_ID, id(number));
            if !is_first {
                headers.insert(NATS_EXPECTED_LAST_MESSAGE_ID, id(number - 1));
            }
            headers
        })
    }
}

async fn subscribe(mut subscriber: async_nats::Subscriber, load: Load) {
    while let Some(message) = subscriber.next().await {
        load.receive(&message.payload);
    }
}

/// A stream and its consumer with the settings of a topic.
async fn consumer(client: Client, name: &str) -> jetstream::consumer::PullConsumer {
    let config = stream::Config {
        name: name.into(),
        subjects: vec![format!("{name}.raw")],
        max_bytes: 256 << 20,
        discard: stream::DiscardPolicy::New,
        retention: stream::RetentionPolicy::Interest,
        ..stream::Config::default()
    };
    let stream = jetstream::new(client).create_stream(config).await.unwrap();
    let config = pull::Config { durable_name: Some("all".into()), max_ack_pending: 16_384, ..pull::Config::default() };
    stream.create_consumer(config).await.unwrap()
}

async fn consume(consumer: jetstream::consumer::PullConsumer, load: Load) {
    let most = (2 * load.window).min(2048);
    loop {
        let request = consumer.batch().max_messages(most).expires(Duration::from_secs(5)).messages().await;
        let mut batch = request.unwrap();
        while let Some(message) = batch.next().await {
            let message = message.unwrap();
            load.receive(&message.payload);
            message.ack().await.unwrap();
        }
    }
}

/// `settings` are further settings of the topic.
fn measure(delivery: Delivery, len: usize, settings: &str) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let load = || Load::new(len, delivery.slice());
    let mut topic = Topic::start(&server, delivery, settings, load());
    let [mut bare, mut named] =
        [Headers::None, Headers::OfTopics].map(|headers| Bare::start(&server, delivery, headers, load()));
    let mut round = || [topic.slice(), bare.slice(), named.slice()].map(|time| time.as_secs_f64());
    round();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| round()).collect();
    let ratio = |other: usize| {
        let [low, median, high] = quartiles(rounds.iter().map(|times| times[other] / times[0]).collect());
        format!("{median:.2} (quartiles {low:.2} to {high:.2})")
    };
    let name = if delivery == Delivery::AtMostOnce { "at most once" } else { "at least once" };
    let rate = topic.load.count as f64 / quartiles(rounds.iter().map(|times| times[0]).collect())[1];
    println!(
        "{name}, {len} bytes{settings}: {rate:.0} messages/s; as a share of the client alone {}, with the same headers {}",
        ratio(1),
        ratio(2),
    );
    topic.end();
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

fn throughput_of_a_topic_beside_a_bare_client() {
    for len in [1000, 10_000, 100_000] {
        measure(Delivery::AtMostOnce, len, "");
        measure(Delivery::AtMostOnce, len, ", message_ids: false");
        measure(Delivery::AtLeastOnce, len, "");
    }
    for delivery in [Delivery::AtMostOnce, Delivery::AtLeastOnce] {
        for (len, batch) in [(1000, "32KiB"), (10_000, "32KiB"), (10_000, "128KiB")] {
            measure(delivery, len, &format!(", batch: {batch}"));
        }
    }
}

/// One host with an edge from memory to memory.
struct Edge {
    load: Load,
    io: Handle,
    sender: Sender,
    host: Running,
    _ground: Ground,
}

impl Edge {
    /// With or without a second edge, which crosses hosts and is idle.
    fn start(server: &Server, crossing: bool) -> Edge {
        let mut yaml = String::from(
            "
hosts: [edge, center]
nats: { servers: [SERVER], prefix: t }
functions: []
sources:
  - { name: near-in, on: edge, timer: { every: 60min }, output: { topics: [near] } }
FAR-IN
sinks:
  - { name: near-out, on: edge, input: { topic: near }, file: { path: near.txt } }
  - { name: far-out, on: center, input: { topic: FAR }, file: { path: far.txt } }
topics:
  near: { capacity: 4MiB }
  FAR: { transport: nats, delivery: at-least-once }
",
        );
        let source = |host: &str, topic: &str| {
            format!(
                "  - {{ name: {topic}-in, on: {host}, timer: {{ every: 60min }}, output: {{ topics: [{topic}] }} }}"
            )
        };
        // Without it, the topic is one between other hosts.
        let (host, topic) = if crossing { ("edge", "far") } else { ("center", "none") };
        yaml = yaml.replace("FAR-IN", &source(host, topic)).replace("FAR", topic);
        let ground = Ground::new(&yaml, server);
        let load = Load::new(1000, 24 << 20);
        let (mut sender, mut receiver) = (None, None);
        let host = ground.run_changed(
            "edge",
            |part| {
                part.sources.iter_mut().filter(|it| it.name == "near-in").for_each(|it| it.kind = SourceKind::External);
                part.sinks.iter_mut().filter(|it| it.name == "near-out").for_each(|it| it.kind = SinkKind::External);
            },
            |supervisor| {
                sender = Some(supervisor.external_source("near-in").unwrap().sender(WaitMode::Block).unwrap());
                receiver = Some(supervisor.external_sink("near-out").unwrap().receiver(WaitMode::Block).unwrap());
            },
        );
        let (mut receiver, received) = (receiver.unwrap(), load.clone());
        thread::spawn(move || receiver.for_each(|message| received.receive(message)));
        Edge { load, io: io(), sender: sender.unwrap(), host, _ground: ground }
    }

    fn slice(&mut self) -> f64 {
        let start = Instant::now();
        for batch in 0..self.load.count / self.load.batch {
            self.io.block_on(self.load.take(self.load.batch));
            send(&mut self.sender, &self.load, batch);
        }
        self.io.block_on(self.load.end());
        start.elapsed().as_secs_f64()
    }
}

/// A second host without a crossing edge shows how much two equal hosts differ.
fn throughput_of_a_local_edge_beside_one_that_crosses() {
    const HOSTS: usize = 12;
    const LAPS: usize = 30;
    let Some(server) = Server::start(JETSTREAM) else { return };
    let mut ratios: [Vec<f64>; 2] = [const { Vec::new() }; 2];
    for _ in 0..HOSTS {
        let mut edges = [true, false, false].map(|crossing| Edge::start(&server, crossing));
        let mut lap = || edges.each_mut().map(Edge::slice);
        lap();
        let laps: Vec<_> = (0..LAPS).map(|_| lap()).collect();
        for (ratios, index) in ratios.iter_mut().zip([0, 2]) {
            ratios.push(quartiles(laps.iter().map(|times| times[1] / times[index]).collect())[1]);
        }
        for edge in edges {
            drop(edge.sender);
            edge.host.stop();
        }
    }
    for (what, ratios) in ["with the crossing edge", "of a second host without"].iter().zip(ratios) {
        let [low, median, high] = quartiles(ratios);
        println!(
            "rate {what} by rate without: median {median:.3}, quartiles {low:.3} to {high:.3} of {HOSTS} sets of hosts"
        );
    }
}
