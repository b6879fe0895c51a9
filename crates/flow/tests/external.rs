//! External ends of a pipeline.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use estafette_flow::config::{Delivery, Input, Overflow, Pipeline, Queue, Sink, SinkKind, Source, SourceKind, Topic};
use estafette_flow::external::{ExternalEnd, Sender};
use estafette_flow::{Ended, Options, Supervisor};
use estafette_ipc::WaitMode;
use estafette_ipc::fd_passing::{recv_fds, send_fds};
use estafette_ipc::group::{ClaimError, PublishError};

/// A pipeline with a source, a topic, and sinks given by name and queue.
fn pipeline(sinks: &[(&str, &str)], delivery: Delivery) -> Pipeline {
    let source = Source { name: "in".into(), kind: SourceKind::External, output: vec!["topic".into()] };
    let sinks = sinks.iter().map(|(name, queue)| Sink {
        name: (*name).into(),
        input: Input { topic: "topic".into(), queue: Queue::Named((*queue).into()) },
        kind: SinkKind::External,
    });
    let topic = Topic { max_message: 1000, delivery, ..Topic::default() };
    Pipeline {
        name: "external".into(),
        sources: vec![source],
        sinks: sinks.collect(),
        topics: BTreeMap::from([("topic".into(), topic)]),
        ..Pipeline::default()
    }
}

/// The supervisor of a pipeline without functions, which starts no process.
fn supervise(pipeline: Pipeline) -> Supervisor {
    let options = Options { host_program: "/nowhere".into(), drain_timeout: Duration::from_secs(10) };
    Supervisor::new(pipeline, options).unwrap()
}

/// A pipeline with one sink for each queue, both of the same name.
fn supervisor(queues: &[&str]) -> Supervisor {
    let sinks: Vec<_> = queues.iter().map(|queue| (*queue, *queue)).collect();
    supervise(pipeline(&sinks, Delivery::AtMostOnce))
}

/// A pipeline with two competing sinks.
fn competing(delivery: Delivery) -> Supervisor {
    supervise(pipeline(&[("one", "work"), ("two", "work")], delivery))
}

/// Makes an end from its parts, as if it came from another process.
fn sent(end: &ExternalEnd) -> ExternalEnd {
    let descriptors = end.descriptors().iter().map(|descriptor| descriptor.try_clone_to_owned().unwrap()).collect();
    ExternalEnd::from_parts(&end.description().unwrap(), descriptors).unwrap()
}

#[test]
fn every_queue_gets_every_message_until_the_sender_closes() {
    for queues in [&["one"][..], &["one", "two"]] {
        let mut supervisor = supervisor(queues);
        let source = sent(&supervisor.external_source("in").unwrap());
        let sinks = queues.iter().map(|queue| sent(&supervisor.external_sink(queue).unwrap()));
        let receivers: Vec<_> = sinks
            .map(|end| {
                let mut receiver = end.receiver(WaitMode::Block).unwrap();
                thread::spawn(move || {
                    let mut messages = Vec::new();
                    receiver.for_each(|message| messages.push(message.to_vec())).map(|()| messages)
                })
            })
            .collect();
        let sender = thread::spawn(move || {
            let mut sender = source.sender(WaitMode::Block).unwrap();
            sender.send(b"a").unwrap();
            sender.send_with(2, |bytes| bytes.copy_from_slice(b"bc")).unwrap();
            assert_eq!(sender.send(&[0; 1001]), Err(PublishError::TooLong { len: 1001, max: 1000 }));
            sender.close();
        });
        let summary = supervisor.run().unwrap();
        assert_eq!(summary.ended, Ended::Finished);
        let counts = summary.status.connectors.iter().map(|it| it.sent_messages + it.received_messages);
        assert!(counts.eq(vec![2; queues.len() + 1]), "{:?}", summary.status.connectors);
        sender.join().unwrap();
        for receiver in receivers {
            assert_eq!(receiver.join().unwrap().unwrap(), [&b"a"[..], b"bc"]);
        }
    }
}

/// A topic whose readers have ended accepts no more messages, and does not affect the other topics
/// of the source.
#[test]
fn a_sender_gets_closed_once_none_of_its_topics_has_a_reader() {
    let mut pipeline = pipeline(&[("one", "one"), ("two", "two")], Delivery::AtMostOnce);
    let topic = Topic { capacity: 4096, max_message: 1000, ..Topic::default() };
    pipeline.topics = BTreeMap::from([("topic".into(), topic.clone()), ("other".into(), topic)]);
    pipeline.sources[0].output.push("other".into());
    pipeline.sinks[1].input.topic = "other".into();
    let mut supervisor = supervise(pipeline);
    let mut sender = supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap();
    supervisor.external_sink("one").unwrap().receiver(WaitMode::Block).unwrap().close();
    let mut receiver = supervisor.external_sink("two").unwrap().receiver(WaitMode::Block).unwrap();
    let running = thread::spawn(move || supervisor.run().unwrap());
    let receiving = thread::spawn(move || {
        for number in 0..100u8 {
            let claim = receiver.claim(1000, 1).unwrap();
            assert!(claim.messages().all(|message| message.data[0] == number));
            claim.ack();
        }
    });
    // More messages than fit into the first topic.
    (0..100u8).for_each(|number| sender.send(&[number; 1000]).unwrap());
    receiving.join().unwrap();
    assert_eq!(send_until_refused(&mut sender), PublishError::Closed);
    assert_eq!(sender.send(b"again"), Err(PublishError::Closed));
    drop(sender);
    assert_eq!(running.join().unwrap().failures, Vec::<String>::new());
}

/// A receiver is slow with one message. It gets the newest messages next, and new messages are
/// never dropped.
#[test]
fn messages_in_processing_take_no_space_from_newer_ones() {
    let mut pipeline = pipeline(&[("one", "one")], Delivery::AtMostOnce);
    let topic = Topic { capacity: 4096, max_message: 1000, overflow: Overflow::DropOldest, ..Topic::default() };
    pipeline.topics = BTreeMap::from([("topic".into(), topic)]);
    let mut supervisor = supervise(pipeline);
    let mut receiver = sent(&supervisor.external_sink("one").unwrap()).receiver(WaitMode::Block).unwrap();
    let mut sender = sent(&supervisor.external_source("in").unwrap()).sender(WaitMode::Block).unwrap();
    let running = thread::spawn(move || supervisor.run().unwrap());
    sender.send(&[0; 1000]).unwrap();
    let claim = receiver.claim(usize::MAX, usize::MAX).unwrap();
    for number in 1..=200 {
        sender.send(&[number; 1000]).unwrap();
    }
    assert_eq!(claim.messages().map(|message| message[0]).collect::<Vec<_>>(), [0]);
    sender.close();
    claim.ack();
    let mut messages = Vec::new();
    receiver.for_each(|message| messages.push(message[0])).unwrap();
    assert_eq!(messages, [197, 198, 199, 200]);
    let summary = running.join().unwrap();
    assert_eq!(summary.ended, Ended::Finished);
    let edge = &summary.status.edges[0];
    assert_eq!((edge.published_messages, edge.dropped, edge.dropped_new, edge.discarded), (201, 196, 0, 0));
}

#[test]
fn the_pipeline_ends_on_request() {
    let mut supervisor = supervisor(&["one"]);
    let mut receiver = supervisor.external_sink("one").unwrap().receiver(WaitMode::Block).unwrap();
    let receiving = thread::spawn(move || receiver.for_each(|_| {}));
    let remote = supervisor.remote();
    let running = thread::spawn(move || supervisor.run().unwrap());
    remote.end();
    assert_eq!(running.join().unwrap().ended, Ended::Drained);
    assert_eq!(receiving.join().unwrap(), Ok(()));
}

#[test]
fn only_external_ends_can_be_taken_and_only_once() {
    let mut supervisor = supervisor(&["one"]);
    assert!(supervisor.external_source("one").unwrap_err().to_string().contains("no external source"));
    assert!(supervisor.external_sink("in").is_err());
    assert!(supervisor.external_source("in").unwrap().receiver(WaitMode::Block).is_err());
    let again = supervisor.external_source("in").unwrap_err().to_string();
    assert!(again.contains("`in` was taken before"), "{again}");
    assert!(ExternalEnd::from_parts("{}", Vec::new()).is_err());
}

#[test]
fn a_sink_that_is_closed_early_ends_the_pipeline() {
    let mut supervisor = supervisor(&["one"]);
    let mut sender = supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap();
    let mut receiver = supervisor.external_sink("one").unwrap().receiver(WaitMode::Block).unwrap();
    let running = thread::spawn(move || supervisor.run().unwrap());
    sender.send(b"enough").unwrap();
    receiver.claim(1000, 1).unwrap().ack();
    sender.send(b"too much").unwrap();
    receiver.close();
    let summary = running.join().unwrap();
    assert_eq!((summary.failures, summary.ended), (Vec::new(), Ended::Drained));
    assert_eq!(send_until_refused(&mut sender), PublishError::Closed);
}

#[test]
fn a_living_receiver_keeps_its_claim_when_the_pipeline_stops() {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let mut supervisor = supervise(pipeline(&[("one", "one")], delivery));
        let mut sender = supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap();
        let mut receiver = supervisor.external_sink("one").unwrap().receiver(WaitMode::Block).unwrap();
        (0..3u8).for_each(|number| sender.send(&[number]).unwrap());
        let claim = receiver.claim(1000, 1).unwrap();
        let remote = supervisor.remote();
        let running = thread::spawn(move || supervisor.run().unwrap());
        remote.end();
        remote.end();
        let summary = running.join().unwrap();
        assert_eq!((summary.ended, summary.discarded), (Ended::Stopped, 0));
        assert!(claim.messages().map(|message| message.data).eq([[0]]));
        claim.ack();
        let mut rest = Vec::new();
        receiver.for_each(|message| rest.extend_from_slice(message)).unwrap();
        assert_eq!(rest, [1, 2], "each once");
    }
}

/// Sends until an error: a sender gets `Closed` only when there is no space left.
fn send_until_refused(sender: &mut Sender) -> PublishError {
    let refused = (0..Topic::CAPACITY / 1000 + 1).find_map(|_| sender.send(&[0; 1000]).err());
    refused.expect("a closed topic takes no more than its capacity")
}

/// The environment variable that makes this program a holder of an end: the end's description.
const END: &str = "ESTAFETTE_FLOW_TEST_END";

/// Another process that holds an end of the pipeline. See [`holder`] for its work.
struct Holder {
    child: Child,
    socket: UnixStream,
}

impl Holder {
    /// Starts a process, and passes the end to it.
    fn start(end: ExternalEnd) -> Holder {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["holder", "--exact", "--nocapture", "--test-threads=1"])
            .env(END, end.description().unwrap())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        send_fds(&ours, &end.descriptors()).unwrap();
        Holder { child, socket: ours }
    }

    /// Waits until the process has done its work.
    fn await_done(&mut self) {
        self.socket.read_exact(&mut [0]).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The entry point of a [`Holder`] process: claims two messages or sends one, and then hangs.
#[test]
fn holder() {
    let Ok(description) = std::env::var(END) else { return };
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let end = ExternalEnd::from_parts(&description, recv_fds(&socket).unwrap()).unwrap();
    let is_sink = description.contains(r#""member""#);
    let mut receiver = None;
    let mut sender = None;
    if is_sink {
        let claim = receiver.insert(end.receiver(WaitMode::Block).unwrap()).claim(1000, 2).unwrap();
        assert_eq!(claim.count(), 2);
    } else {
        sender.insert(end.sender(WaitMode::Block).unwrap()).send(b"half of it").unwrap();
    }
    socket.write_all(b"d").unwrap();
    // Waits until it is killed, or its parent has ended.
    let _ = socket.read(&mut [0]);
    std::process::abort();
}

/// Sends four messages. A process claims two of them and is killed. Returns the messages that the
/// other receiver gets, with their attempts, and the summary.
fn kill_a_receiver(delivery: Delivery) -> (Vec<(u8, u8)>, estafette_flow::Summary) {
    let mut supervisor = competing(delivery);
    let mut sender = supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap();
    let mut receiver = supervisor.external_sink("two").unwrap().receiver(WaitMode::Block).unwrap();
    (0..4u8).for_each(|number| sender.send(&[number]).unwrap());
    sender.close();
    let mut holder = Holder::start(supervisor.external_sink("one").unwrap());
    holder.await_done();
    let running = thread::spawn(move || supervisor.run().unwrap());
    holder.kill();
    let mut messages = Vec::new();
    loop {
        // Waits until the other receiver's claim is acknowledged, returned or discarded.
        match receiver.claim(1000, 1) {
            Ok(claim) => {
                messages.extend(claim.messages().map(|message| (message.data[0], message.attempts)));
                claim.ack();
            }
            Err(ClaimError::Closed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    messages.sort_unstable();
    (messages, running.join().unwrap())
}

#[test]
fn the_claim_of_a_killed_receiver_returns_to_its_queue() {
    let (messages, summary) = kill_a_receiver(Delivery::AtLeastOnce);
    assert_eq!(messages, [(0, 1), (1, 1), (2, 0), (3, 0)]);
    assert_eq!((summary.ended, summary.discarded), (Ended::Finished, 0));
    assert_eq!(summary.failures.len(), 1, "{:?}", summary.failures);
    assert!(summary.failures[0].starts_with("`one` failed: its holder"), "{:?}", summary.failures);
}

#[test]
fn the_claim_of_a_killed_receiver_is_counted_as_lost() {
    let (messages, summary) = kill_a_receiver(Delivery::AtMostOnce);
    assert_eq!(messages, [(2, 0), (3, 0)]);
    assert_eq!((summary.ended, summary.discarded), (Ended::Finished, 2));
    assert_eq!(summary.failures.len(), 1, "{:?}", summary.failures);
}

#[test]
fn a_pipeline_stops_when_the_only_receiver_of_a_queue_is_killed() {
    let mut supervisor = supervisor(&["one"]);
    let mut sender = supervisor.external_source("in").unwrap().sender(WaitMode::Block).unwrap();
    (0..2u8).for_each(|number| sender.send(&[number]).unwrap());
    let mut holder = Holder::start(supervisor.external_sink("one").unwrap());
    holder.await_done();
    let running = thread::spawn(move || supervisor.run().unwrap());
    holder.kill();
    let summary = running.join().unwrap();
    assert_eq!((summary.ended, summary.discarded, summary.failures.len()), (Ended::Stopped, 2, 1));
    assert_eq!(send_until_refused(&mut sender), PublishError::Closed);
}

#[test]
fn messages_of_a_killed_sender_are_received_and_its_death_is_reported() {
    let mut supervisor = supervisor(&["one"]);
    let mut receiver = supervisor.external_sink("one").unwrap().receiver(WaitMode::Block).unwrap();
    let mut holder = Holder::start(supervisor.external_source("in").unwrap());
    holder.await_done();
    let running = thread::spawn(move || supervisor.run().unwrap());
    holder.kill();
    let mut messages = Vec::new();
    receiver.for_each(|message| messages.push(message.to_vec())).unwrap();
    assert_eq!(messages, [b"half of it"]);
    let summary = running.join().unwrap();
    assert_eq!((summary.ended, summary.failures.len()), (Ended::Finished, 1));
}
