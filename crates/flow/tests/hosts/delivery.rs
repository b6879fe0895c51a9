//! Messages cross hosts: at most once and at least once, to queues.

use estafette_flow::config::SourceKind;
use estafette_ipc::WaitMode;

use crate::client::{Client, Received};
use crate::ground::{Ground, numbers, until};
use crate::runner::tests;
use crate::server::{JETSTREAM, Server};

tests![
    at_least_once_a_host_gets_what_was_sent_before_it_ran,
    at_most_once_a_running_host_gets_what_is_sent,
    each_queue_gets_every_message_and_its_readers_on_all_hosts_compete,
    a_message_is_not_dropped_because_hosts_took_it_often_and_did_not_process_it,
    a_message_that_is_delivered_far_too_often_is_a_dead_letter_on_another_host,
    a_message_that_its_function_fails_to_process_is_a_dead_letter_on_another_host,
    a_function_that_failed_for_good_leaves_its_messages_to_other_hosts,
    another_program_sees_the_messages_with_their_headers,
    without_message_ids_another_program_sees_the_messages_alone,
    another_program_sees_a_batch_as_one_message,
    a_message_that_the_server_no_longer_accepts_is_dropped_and_counted,
    a_malformed_batch_is_dropped_and_counted_at_most_once,
    a_malformed_batch_is_a_dead_letter_at_least_once,
    a_consumer_that_is_ahead_of_its_stream_is_made_anew,
];

/// Settings of a topic: each message is one of the server, or several are.
pub(crate) const BATCHES: [&str; 2] = ["", ", batch: 4KiB"];

/// Two hosts, from a file to a file.
pub(crate) fn from_file(topic: &str) -> String {
    format!(
        "
hosts: [edge, center]
nats: {{ servers: [SERVER], prefix: t, ack_wait: 1s }}
functions: []
sources:
  - {{ name: in, on: edge, file: {{ path: in.txt }}, output: {{ topics: [raw] }} }}
sinks:
  - {{ name: out, on: center, input: {{ topic: raw }}, file: {{ path: out.txt }} }}
topics:
  raw: {{ transport: nats{topic} }}
"
    )
}

fn at_least_once_a_host_gets_what_was_sent_before_it_ran() {
    for batch in BATCHES {
        at_least_once(batch);
    }
}

fn at_least_once(batch: &str) {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&from_file(&format!(", delivery: at-least-once{batch}")), &server);
    ground.write("in.txt", numbers(10_000));
    ground.run("edge").finished();
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(10_000));
    let summary = center.end();
    assert_eq!(summary.left_in_topics(), 0);
    // A host that is stopped for longer than `ack_wait` gets messages again.
    assert_eq!(ground.first_lines("out.txt"), numbers(10_000).collect::<Vec<_>>(), "in order");
}

fn at_most_once_a_running_host_gets_what_is_sent() {
    for batch in BATCHES {
        at_most_once(batch);
        at_most_once(&format!("{batch}, message_ids: false"));
    }
}

/// So many messages fit into the buffer of a host that is slow for a while.
const AT_ONCE: usize = 8_000;

fn at_most_once(settings: &str) {
    let Some(server) = Server::start("") else { return };
    let ground = Ground::new(&from_file(settings), &server);
    ground.write("in.txt", numbers(AT_ONCE));
    let center = ground.run("center");
    server.until_subscribed("t.raw", 1);
    ground.run("edge").finished();
    ground.until_all("out.txt", numbers(AT_ONCE));
    center.end();
    assert_eq!(ground.lines("out.txt"), numbers(AT_ONCE).collect::<Vec<_>>(), "in order, each once");
}

/// Two sinks on one host and two on the other: three queues, of which one has a reader on each.
fn queues(delivery: &str) -> String {
    format!(
        "
hosts: [edge, center]
nats: {{ servers: [SERVER], prefix: t }}
functions: []
sources:
  - {{ name: in, on: edge, file: {{ path: in.txt }}, output: {{ topics: [raw] }} }}
sinks:
  - {{ name: one, on: center, input: {{ topic: raw, queue: work }}, file: {{ path: one.txt }} }}
  - {{ name: two, on: edge, input: {{ topic: raw, queue: work }}, file: {{ path: two.txt }} }}
  - {{ name: own, on: center, input: {{ topic: raw, queue: each }}, file: {{ path: own.txt }} }}
  - {{ name: all, on: edge, input: {{ topic: raw }}, file: {{ path: all.txt }} }}
topics:
  raw: {{ transport: nats, delivery: {delivery} }}
"
    )
}

fn each_queue_gets_every_message_and_its_readers_on_all_hosts_compete() {
    for (delivery, configuration) in [("at-least-once", JETSTREAM), ("at-most-once", "")] {
        let Some(server) = Server::start(configuration) else { return };
        let ground = Ground::new(&queues(delivery), &server);
        ground.write("in.txt", numbers(5000));
        let center = ground.run("center");
        if delivery == "at-most-once" {
            server.until_subscribed("t.raw", 2);
        }
        // It sends when its own subscriptions may not be there yet, and messages to them are lost.
        let edge = ground.run("edge");
        ground.until_all("own.txt", numbers(5000));
        if delivery == "at-least-once" {
            ground.until_all("all.txt", numbers(5000));
            until(|| (ground.lines("one.txt").len() + ground.lines("two.txt").len() >= 5000).then_some(()));
        }
        edge.end();
        center.end();
        let mut work = [ground.lines("one.txt"), ground.lines("two.txt")].concat();
        work.sort();
        assert_eq!(work, numbers(5000).collect::<Vec<_>>(), "{delivery}");
    }
}

fn a_message_is_not_dropped_because_hosts_took_it_often_and_did_not_process_it() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&from_file(", delivery: at-least-once, max_deliver: 1"), &server);
    ground.write("in.txt", numbers(1));
    ground.run("edge").finished();
    Client::connect(server.port()).give_back("t_raw.all", "000000", 110);
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(1));
    center.end();
}

fn a_message_that_is_delivered_far_too_often_is_a_dead_letter_on_another_host() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let yaml = "
hosts: [edge, center]
nats: { servers: [SERVER], prefix: t, ack_wait: 1s }
functions: []
sources:
  - { name: in, on: edge, file: { path: in.txt }, output: { topics: [raw] } }
sinks:
  - { name: out, on: center, input: { topic: raw }, file: { path: out.txt } }
  - { name: dead, on: edge, input: { topic: dead }, file: { path: dead.txt } }
topics:
  raw: { transport: nats, delivery: at-least-once, max_deliver: 1, dead_letter: dead }
  dead: { transport: nats, delivery: at-least-once }
";
    let ground = Ground::new(yaml, &server);
    ground.write("in.txt", numbers(1));
    let edge = ground.run("edge");
    server.until_stored("t_raw", 1);
    // Another program takes the message as often as the server may deliver it.
    Client::connect(server.port()).give_back("t_raw.all", "000000", 101);
    let center = ground.run("center");
    ground.until_all("dead.txt", numbers(1));
    assert_eq!(ground.lines("out.txt").len(), 0);
    center.end();
    edge.end();
}

fn a_message_that_its_function_fails_to_process_is_a_dead_letter_on_another_host() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let yaml = "
hosts: [edge, center]
nats: { servers: [SERVER], prefix: t }
functions:
  - { name: bad, on: center, module: { path: trap.wat }, input: { topic: raw },
      restart: { max: 1000, initial_delay: 1ms, max_delay: 1ms } }
sources:
  - { name: in, on: edge, file: { path: in.txt }, output: { topics: [raw] } }
sinks:
  - { name: dead, on: edge, input: { topic: dead }, file: { path: dead.txt } }
topics:
  raw: { transport: nats, delivery: at-least-once, max_deliver: 2, dead_letter: dead }
  dead: { transport: nats, delivery: at-least-once }
";
    let ground = Ground::new(yaml, &server);
    ground.write("in.txt", numbers(3));
    let edge = ground.run("edge");
    let center = ground.run("center");
    ground.until_all("dead.txt", numbers(3));
    center.end();
    edge.end();
    assert_eq!(ground.lines("dead.txt").len(), 3, "each once");
}

fn a_function_that_failed_for_good_leaves_its_messages_to_other_hosts() {
    for (delivery, configuration) in [("at-least-once", JETSTREAM), ("at-most-once", "")] {
        let Some(server) = Server::start(configuration) else { return };
        let yaml = "
hosts: [edge, east, west]
nats: { servers: [SERVER], prefix: t }
functions:
  - { name: bad, on: east, module: { path: trap.wat }, input: { topic: raw, queue: work },
      restart: { max: 0, then: continue } }
sources:
  - { name: in, on: edge, file: { path: in.txt }, output: { topics: [raw] } }
  - { name: tick, on: east, timer: { every: 60min }, output: { topics: [other] } }
sinks:
  - { name: out, on: west, input: { topic: raw, queue: work }, file: { path: out.txt } }
  - { name: other, on: east, input: { topic: other }, file: { path: other.txt } }
topics:
  raw: { transport: nats, delivery: DELIVERY }
  other: {}
";
        let ground = Ground::new(&yaml.replace("DELIVERY", delivery), &server);
        ground.write("in.txt", numbers(3000));
        let is_stored = delivery == "at-least-once";
        if is_stored {
            ground.run("edge").finished();
        }
        let east = ground.run("east");
        if !is_stored {
            server.until_subscribed("t.raw", 1);
            // It is lost with the function.
            Client::connect(server.port()).send("PUB t.raw 1\r\nx\r\n");
        }
        east.until_ended("nats:raw:q-work");
        let west = ground.run("west");
        if !is_stored {
            server.until_subscribed("t.raw", 1);
            ground.run("edge").finished();
        }
        ground.until_all("out.txt", numbers(3000));
        west.end();
        east.remote.end();
        let summary = east.ended().unwrap();
        assert!(summary.failures.iter().any(|failure| failure.contains("`bad`")), "{:?}", summary.failures);
        assert_eq!(ground.lines("out.txt").len(), 3000, "{delivery}: each once");
    }
}

/// Two messages of a topic with these settings, as another program gets them. None without a
/// server.
fn seen_by_another_program(settings: &str) -> Option<[Received; 2]> {
    let server = Server::start("")?;
    let ground = Ground::new(&from_file(settings), &server);
    ground.write("in.txt", numbers(2));
    let mut client = Client::connect(server.port());
    client.send("SUB t.raw 1\r\n");
    server.until_subscribed("t.raw", 1);
    ground.run("edge").finished();
    Some([client.next(), client.next()])
}

fn another_program_sees_the_messages_with_their_headers() {
    let Some(messages) = seen_by_another_program("") else { return };
    for (number, Received { headers, payload, .. }) in messages.into_iter().enumerate() {
        assert_eq!(payload, format!("{number:06}").into_bytes());
        assert!(headers.starts_with("NATS/1.0\r\n"), "{headers}");
        assert!(headers.contains("Nats-Msg-Id: edge-"), "{headers}");
        assert!(headers.contains(&format!(":{}\r\n", number + 1)), "{headers}");
    }
}

fn without_message_ids_another_program_sees_the_messages_alone() {
    let Some(messages) = seen_by_another_program(", message_ids: false") else { return };
    for (number, Received { headers, payload, .. }) in messages.into_iter().enumerate() {
        assert_eq!((headers.as_str(), payload), ("", format!("{number:06}").into_bytes()));
    }
}

fn another_program_sees_a_batch_as_one_message() {
    // So many that some wait together, however fast they are sent.
    const COUNT: usize = 2000;
    let Some(server) = Server::start(JETSTREAM) else { return };
    let ground = Ground::new(&from_file(", delivery: at-least-once, batch: 25B"), &server);
    ground.write("in.txt", numbers(COUNT));
    let mut client = Client::connect(server.port());
    client.send("SUB t.raw 1\r\n");
    server.until_subscribed("t.raw", 1);
    ground.run("edge").finished();
    let (mut next, mut batches) = (0, 0);
    while next < COUNT {
        let message = client.next();
        assert!(message.headers.contains(&format!(":{}\r\n", next + 1)), "{}", message.headers);
        if message.headers.contains("Estafette-Batch") {
            assert!(message.headers.contains("Estafette-Batch: 2\r\n"), "{}", message.headers);
            let wanted = format!("\x06\0\0\0{:06}\x06\0\0\0{:06}", next, next + 1);
            assert_eq!(message.payload, wanted.as_bytes());
            (next, batches) = (next + 2, batches + 1);
        } else {
            assert_eq!(message.payload, format!("{next:06}").as_bytes());
            next += 1;
        }
    }
    assert!(batches > 0);
}

fn a_message_that_the_server_no_longer_accepts_is_dropped_and_counted() {
    let Some(mut server) = Server::start("") else { return };
    let ground = Ground::new(&from_file(", max_message: 200KiB"), &server);
    ground.write("in.txt", numbers(0));
    let mut sender = None;
    let edge = ground.run_changed(
        "edge",
        |part| part.sources.iter_mut().filter(|it| it.name == "in").for_each(|it| it.kind = SourceKind::External),
        |supervisor| sender = Some(supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap()),
    );
    server.kill();
    edge.until_problem("nats:raw", "NATS server");
    server.configure("max_payload: 65536\n");
    server.run();
    edge.until_good("nats:raw");
    let mut client = Client::connect(server.port());
    client.send("SUB t.raw 1\r\n");
    server.until_subscribed("t.raw", 1);
    let mut sender = sender.unwrap();
    sender.send(&[7; 100_000]).unwrap();
    sender.send(b"short").unwrap();
    assert_eq!(client.next().payload, b"short");
    until(|| {
        let status = edge.remote.status()?;
        status.connectors.iter().any(|it| it.name == "nats:raw" && it.dropped == 1).then_some(())
    });
    sender.send(b"another").unwrap();
    edge.until_good("nats:raw");
    drop(sender);
    edge.finished();
}

fn a_malformed_batch_is_dropped_and_counted_at_most_once() {
    let Some(server) = Server::start("") else { return };
    let ground = Ground::new(&from_file(""), &server);
    ground.write("in.txt", numbers(10));
    let center = ground.run("center");
    server.until_subscribed("t.raw", 1);
    Client::connect(server.port()).send(&malformed());
    until(|| {
        let status = center.remote.status()?;
        status.connectors.iter().any(|it| it.name == "nats:raw:all" && it.dropped == 1).then_some(())
    });
    ground.run("edge").finished();
    ground.until_all("out.txt", numbers(10));
    center.end();
    assert_eq!(ground.lines("out.txt"), numbers(10).collect::<Vec<_>>());
}

fn a_malformed_batch_is_a_dead_letter_at_least_once() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let yaml = from_file(", delivery: at-least-once, dead_letter: dead").replace(
        "sinks:\n",
        "sinks:\n  - { name: dead, on: center, input: { topic: dead }, file: { path: dead.txt } }\n",
    ) + "  dead: { delivery: at-least-once }\n";
    let ground = Ground::new(&yaml, &server);
    ground.write("in.txt", numbers(10));
    let center = ground.run("center");
    ground.run("edge").finished();
    // The stream has its consumer now, without which it keeps nothing.
    ground.until_all("out.txt", numbers(10));
    Client::connect(server.port()).send(&malformed());
    until(|| (!ground.lines("dead.txt").is_empty()).then_some(()));
    center.end();
    server.until_stored("t_raw", 0);
    assert_eq!(ground.lines("dead.txt"), ["\x01\0\0\0a\x02\0\0\0b"]);
}

/// A message whose header says that it has two, and which is cut off in the second.
fn malformed() -> String {
    let headers = "NATS/1.0\r\nEstafette-Batch: 2\r\n\r\n";
    let payload = "\x01\0\0\0a\x02\0\0\0b";
    format!("HPUB t.raw {} {}\r\n{headers}{payload}\r\n", headers.len(), headers.len() + payload.len())
}

/// As after a server was killed that had forgotten how far an empty stream was.
fn a_consumer_that_is_ahead_of_its_stream_is_made_anew() {
    let Some(server) = Server::start(JETSTREAM) else { return };
    let mut client = Client::connect(server.port());
    let stream = r#"{"name":"t_raw","subjects":["t.raw"],"retention":"interest","storage":"file"}"#;
    client.request("$JS.API.STREAM.CREATE.t_raw", stream);
    let consumer = r#"{"stream_name":"t_raw","config":{"durable_name":"all","ack_policy":"explicit","max_ack_pending":77,
                       "deliver_policy":"by_start_sequence","opt_start_seq":1000}}"#;
    client.request("$JS.API.CONSUMER.DURABLE.CREATE.t_raw.all", consumer);
    let ground = Ground::new(&from_file(", delivery: at-least-once"), &server);
    ground.write("in.txt", numbers(100));
    ground.run("edge").finished();
    let center = ground.run("center");
    ground.until_all("out.txt", numbers(100));
    center.end();
    assert_eq!(ground.lines("out.txt"), numbers(100).collect::<Vec<_>>());
    let info = client.request("$JS.API.CONSUMER.INFO.t_raw.all", "");
    let info = String::from_utf8(info.payload).unwrap();
    assert!(info.contains(r#""max_ack_pending":77"#), "it keeps its settings: {info}");
    let names = client.request("$JS.API.CONSUMER.NAMES.t_raw", "");
    let names = String::from_utf8(names.payload).unwrap();
    assert!(names.contains(r#""consumers":["all"]"#), "no other is left: {names}");
}
