//! Properties of every pipeline that the check accepts: values are read as written, and each
//! message reaches each queue of its topic once.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use estafette_flow::config::{Checked, End, Feed, GroupKey, Input, Options, Pipeline, Queue, Topology, check};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Checks a pipeline that is written as JSON, which YAML includes.
fn checked(pipeline: &Value) -> Checked {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("it can be written");
    write("guest.wat", "(module)");
    write("pipeline.yml", &pipeline.to_string());
    check(&folder.path().join("pipeline.yml"), &Options::default())
}

/// One of a few topics, so that some are both read and written.
fn topic() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(String::from)
}

fn input() -> impl Strategy<Value = Value> {
    let queue = prop::sample::select(vec![None, Some("q"), Some("r"), Some("each")]);
    (topic(), queue).prop_map(|(topic, queue)| match queue {
        Some(queue) => json!({ "topic": topic, "queue": queue }),
        None => json!({ "topic": topic }),
    })
}

fn output() -> impl Strategy<Value = Value> {
    prop::collection::vec(topic(), 0..4).prop_map(|topics| json!({ "topics": topics }))
}

fn function() -> impl Strategy<Value = Value> {
    (prop::option::of(input()), output(), 1..4_u32, any::<bool>()).prop_map(|(input, output, replicas, is_input)| {
        let mut function = json!({ "module": { "path": "guest.wat" }, "output": output, "replicas": replicas });
        match input {
            Some(_) if is_input => {
                function["kind"] = json!("input");
                function["stream"] = json!({ "websocket": { "url": "ws://127.0.0.1:3012" } });
            }
            Some(input) => function["input"] = input,
            None => {}
        }
        function
    })
}

/// A pipeline with a source that writes every topic, and with numbered names.
fn pipeline() -> impl Strategy<Value = Value> {
    let sink = input().prop_map(|input| json!({ "input": input, "stdout": "lines" }));
    (prop::collection::vec(function(), 0..6), prop::collection::vec(sink, 0..3)).prop_map(|(functions, sinks)| {
        let named = |prefix: &str, mut items: Vec<Value>| {
            for (index, item) in items.iter_mut().enumerate() {
                item["name"] = json!(format!("{prefix}{index}"));
            }
            items
        };
        let source = json!({ "name": "s", "stdin": "lines", "output": { "topics": ["a", "b", "c", "d"] } });
        json!({ "functions": named("f", functions), "sources": [source], "sinks": named("k", sinks) })
    })
}

/// The number of queues of each topic, counted without the topology.
fn queues(pipeline: &Pipeline) -> BTreeMap<&str, usize> {
    let functions = pipeline.functions.iter().filter_map(|function| Some((&function.name, function.input.as_ref()?)));
    let sinks = pipeline.sinks.iter().map(|sink| (&sink.name, &sink.input));
    let mut queues: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (reader, Input { topic, queue }) in functions.chain(sinks) {
        let queue = match queue {
            Queue::Unnamed => String::from("none"),
            Queue::Named(name) => format!("named {name}"),
            Queue::Each => format!("of {reader}"),
        };
        queues.entry(topic).or_default().insert(queue);
    }
    queues.into_iter().map(|(topic, queues)| (topic, queues.len())).collect()
}

fn instances(pipeline: &Pipeline) -> Vec<(End, &[String])> {
    let functions = pipeline.functions.iter().enumerate().flat_map(|(index, function)| {
        let end = move |replica| End::Function { function: index, replica };
        (0..function.replicas).map(move |replica| (end(replica), function.output.as_slice()))
    });
    let sources = pipeline.sources.iter().enumerate();
    functions.chain(sources.map(|(index, source)| (End::Source(index), source.output.as_slice()))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_message_reaches_each_queue_of_its_topic_once(pipeline in pipeline()) {
        let Checked { pipeline, diagnostics } = checked(&pipeline);
        prop_assert!(pipeline.is_some(), "{diagnostics:?}");
        let pipeline = pipeline.unwrap_or_default();
        let topology = Topology::of(&pipeline);
        let queues = queues(&pipeline);
        for (end, outputs) in instances(&pipeline) {
            let producer = topology.producer(end);
            let sent = producer.map(|producer| producer.outputs.as_slice()).unwrap_or_default();
            prop_assert_eq!(sent.len(), outputs.len());
            for (output, name) in sent.iter().zip(outputs) {
                prop_assert_eq!(output.feed, Feed::Topic(topology.topic(name).unwrap()));
                let groups: BTreeSet<_> = output.rings.iter().map(|ring| topology.rings[*ring].group).collect();
                prop_assert_eq!(groups.len(), output.rings.len(), "no group gets it twice");
                prop_assert_eq!(groups.len(), queues.get(name.as_str()).copied().unwrap_or_default());
                prop_assert!(groups.iter().all(|group| topology.groups[*group].feed == output.feed));
                prop_assert!(output.rings.iter().all(|ring| topology.rings[*ring].producer == end));
            }
        }
    }

    #[test]
    fn every_reader_is_in_the_group_of_its_queue(pipeline in pipeline()) {
        let pipeline = checked(&pipeline).pipeline.unwrap();
        let topology = Topology::of(&pipeline);
        for (index, function) in pipeline.functions.iter().enumerate() {
            for replica in 0..function.replicas {
                let membership = topology.membership(End::Function { function: index, replica });
                let group = membership.map(|membership| &topology.groups[membership.group]);
                match (&function.input, group) {
                    (None, None) => {}
                    (None, Some(group)) => prop_assert_eq!(group.feed, Feed::Stream(index)),
                    (Some(input), Some(group)) => {
                        let key = match &input.queue {
                            Queue::Unnamed => GroupKey::Unnamed,
                            Queue::Named(name) => GroupKey::Named(topology.queues.binary_search(name).unwrap()),
                            Queue::Each => GroupKey::Each(End::Function { function: index, replica: 0 }),
                        };
                        prop_assert_eq!(group.key, key);
                        prop_assert_eq!(group.feed, Feed::Topic(topology.topic(&input.topic).unwrap()));
                    }
                    (Some(_), None) => prop_assert!(false, "{} is in no group", function.name),
                }
            }
        }
    }

    #[test]
    fn arguments_and_variables_are_read_as_they_are_written(
        args in prop::collection::vec("\\PC*", 0..5),
        env in prop::collection::btree_map("[^=\\pC]+", "\\PC*", 0..5),
    ) {
        let function = json!({ "name": "f", "module": { "path": "guest.wat" }, "args": args, "allow": { "env": env } });
        let Checked { pipeline, diagnostics } = checked(&json!({ "functions": [function] }));
        prop_assert!(pipeline.is_some(), "{diagnostics:?}");
        let function = &pipeline.unwrap_or_default().functions[0];
        prop_assert_eq!(&function.args, &args);
        prop_assert_eq!(&function.allow.env, &env);
    }
}
