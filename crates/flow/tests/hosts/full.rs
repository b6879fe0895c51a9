//! Streams that are full, and several producers: each producer's messages stay in order.

use crate::delivery::BATCHES;
use crate::ground::{Ground, numbers};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![
    a_slow_reader_on_another_host_slows_the_sender_down_and_nothing_is_lost,
    a_full_stream_keeps_the_order,
    producers_on_several_hosts_keep_their_own_order,
];

/// Two hosts, and a stream that is full after some of the messages.
const SMALL: &str = "
hosts: [edge, center]
nats: { servers: [SERVER], prefix: t, stream: { max_bytes: 256KiB } }
functions: []
sources:
  - { name: in, on: edge, file: { path: in.txt }, output: { topics: [raw] } }
sinks:
  - { name: out, on: center, input: { topic: raw }, file: { path: out.txt } }
topics:
  raw: { transport: nats, delivery: at-least-once, capacity: 64KiB, max_message: 1KiB }
";

fn a_slow_reader_on_another_host_slows_the_sender_down_and_nothing_is_lost() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(SMALL, &server);
    ground.write("in.txt", numbers(20_000));
    let edge = ground.run("edge");
    let problem = edge.until_problem("nats:raw", "is full");
    assert!(problem.contains("`t_raw`") && problem.contains("`nats.stream.max_bytes`"), "{problem}");
    let sent = || edge.remote.status().unwrap().connectors.iter().map(|it| it.sent_messages).max().unwrap();
    assert!(sent() < 20_000, "the source waits");
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(20_000));
    edge.finished();
    center.end();
}

#[track_caller]
fn assert_order(lines: &[String], wanted: impl Iterator<Item = String>) {
    let wanted: Vec<_> = wanted.collect();
    let wrong = lines.iter().zip(&wanted).position(|(line, wanted)| line != wanted);
    let near = wrong.map(|at| &lines[at.saturating_sub(3)..(at + 3).min(lines.len())]);
    assert!(lines.len() == wanted.len() && wrong.is_none(), "{} lines; wrong near {near:?}", lines.len());
}

fn a_full_stream_keeps_the_order() {
    for batch in BATCHES {
        full_stream(batch);
    }
}

fn full_stream(batch: &str) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&SMALL.replace("max_message: 1KiB", &format!("max_message: 1KiB{batch}")), &server);
    // Batches take less space.
    ground.write("in.txt", numbers(50_000));
    let edge = ground.run("edge");
    edge.until_problem("nats:raw", "is full");
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(50_000));
    edge.finished();
    center.end();
    assert_order(&ground.first_lines("out.txt"), numbers(50_000));
}

fn producers_on_several_hosts_keep_their_own_order() {
    for batch in BATCHES {
        several_producers(batch);
    }
}

fn several_producers(batch: &str) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let yaml = "
hosts: [east, west, center]
nats: { servers: [SERVER], prefix: t }
functions: []
sources:
  - { name: in-east, on: east, file: { path: east.txt }, output: { topics: [raw] } }
  - { name: in-west, on: west, file: { path: west.txt }, output: { topics: [raw] } }
sinks:
  - { name: out, on: center, input: { topic: raw }, file: { path: out.txt } }
topics:
  raw: { transport: nats, delivery: at-least-once, capacity: 64KiB, max_message: 1KiB }
";
    let ground = Ground::new(&yaml.replace("max_message: 1KiB", &format!("max_message: 1KiB{batch}")), &server);
    let named = |host: &'static str| numbers(10_000).map(move |number| format!("{host} {number}"));
    ground.write("east.txt", named("east"));
    ground.write("west.txt", named("west"));
    let center = ground.run("center");
    let (east, west) = (ground.run("east"), ground.run("west"));
    ground.until_all("out.txt", named("east").chain(named("west")));
    east.finished();
    west.finished();
    center.end();
    let lines = ground.first_lines("out.txt");
    for host in ["east", "west"] {
        let own: Vec<_> = lines.iter().filter(|line| line.starts_with(host)).cloned().collect();
        assert_order(&own, named(host));
    }
    server.until_stored("t_raw", 0);
}
