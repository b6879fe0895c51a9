//! Ends of a pipeline that the embedding program holds.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use estafette_flow::config::{Input, Pipeline, Queue, Sink, SinkKind, Source, SourceKind, Topic};
use estafette_flow::external::ExternalEnd;
use estafette_flow::{Ended, Options, Supervisor};
use estafette_ipc::WaitMode;
use estafette_ipc::group::PublishError;

/// A source, a topic, and a sink for each queue.
fn pipeline(queues: &[&str]) -> Pipeline {
    let source = Source { name: "in".into(), kind: SourceKind::External, output: vec!["topic".into()] };
    let sinks = queues.iter().map(|queue| Sink {
        name: (*queue).into(),
        input: Input { topic: "topic".into(), queue: Queue::Named((*queue).into()) },
        kind: SinkKind::External,
    });
    Pipeline {
        name: "external".into(),
        sources: vec![source],
        sinks: sinks.collect(),
        topics: BTreeMap::from([("topic".into(), Topic { max_message: 1000, ..Topic::default() })]),
        ..Pipeline::default()
    }
}

fn supervisor(queues: &[&str]) -> Supervisor {
    // There is no function, so nothing is started.
    let options = Options { host_program: "/nowhere".into(), drain_timeout: Duration::from_secs(10) };
    Supervisor::new(pipeline(queues), options).unwrap()
}

/// As if it came from another process.
fn sent(end: &ExternalEnd) -> ExternalEnd {
    let descriptors = end.descriptors().iter().map(|descriptor| descriptor.try_clone_to_owned().unwrap()).collect();
    ExternalEnd::from_parts(&end.description().unwrap(), descriptors).unwrap()
}

#[test]
fn every_queue_gets_every_message_until_the_sender_closes() {
    for queues in [&["one"][..], &["one", "two"]] {
        let supervisor = supervisor(queues);
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

#[test]
fn the_pipeline_ends_when_it_is_asked_to() {
    let supervisor = supervisor(&["one"]);
    let mut receiver = supervisor.external_sink("one").unwrap().receiver(WaitMode::Block).unwrap();
    let receiving = thread::spawn(move || receiver.for_each(|_| {}));
    let remote = supervisor.remote();
    let running = thread::spawn(move || supervisor.run().unwrap());
    remote.end();
    assert_eq!(running.join().unwrap().ended, Ended::Drained);
    assert_eq!(receiving.join().unwrap(), Ok(()));
}

#[test]
fn only_external_ends_are_given_away() {
    let supervisor = supervisor(&["one"]);
    assert!(supervisor.external_source("one").unwrap_err().to_string().contains("no external source"));
    assert!(supervisor.external_sink("in").is_err());
    assert!(supervisor.external_source("in").unwrap().receiver(WaitMode::Block).is_err());
    assert!(ExternalEnd::from_parts("{}", Vec::new()).is_err());
}
