use std::path::Path;

use super::super::check_files;
use super::super::fuzzing::{Text, assert_consistent};
use super::*;

/// Makes a pipeline from entries of `functions` and the rest of its file.
fn pipeline(functions: &str, rest: &str) -> (Pipeline, Topology) {
    let text = format!("functions: [{functions}]\n{rest}\n");
    let checked = check_files(Path::new("p.yml"), &Default::default(), &Text(text.as_bytes()));
    let pipeline = checked.pipeline.unwrap_or_else(|| panic!("{:?}", checked.diagnostics));
    let topology = Topology::of(&pipeline);
    assert_consistent(&topology);
    (pipeline, topology)
}

fn instance(function: usize, replica: u32) -> End {
    End::Function { function, replica }
}

const SEND: &str = "{name: send, module: {path: a}, output: {topics: [t]}}";

#[test]
fn a_sender_and_a_receiver_share_a_ring() {
    let (_, topology) = pipeline(&format!("{SEND}, {{name: b, module: {{path: a}}, input: {{topic: t}}}}"), "");
    assert_eq!(topology.rings, [Ring { producer: instance(0, 0), group: 0 }]);
    assert_eq!(topology.groups[0].members, [instance(1, 0)]);
    assert_eq!(topology.producers[0].outputs, [Output { feed: Feed::Topic(0), rings: vec![0] }]);
    assert_eq!(topology.producer(instance(1, 0)), None);
}

#[test]
fn readers_without_a_queue_compete_and_queues_get_copies() {
    let read = |name: &str, queue: &str| format!("{{name: {name}, module: {{path: a}}, input: {{topic: t{queue}}}}}");
    let functions = [
        String::from(SEND),
        read("a", ""),
        read("b", ", queue: q"),
        read("c", ""),
        read("d", ", queue: q"),
        read("e", ", queue: each"),
        read("f", ", queue: each"),
    ];
    let sink = "sinks: [{name: s, stdout: lines, input: {topic: t, queue: q}}]";
    let (_, topology) = pipeline(&functions.join(", "), sink);
    let groups: Vec<_> = topology.groups.iter().map(|group| (group.key, group.members.clone())).collect();
    let expected = [
        (GroupKey::Unnamed, vec![instance(1, 0), instance(3, 0)]),
        (GroupKey::Named(0), vec![instance(2, 0), instance(4, 0), End::Sink(0)]),
        (GroupKey::Each(instance(5, 0)), vec![instance(5, 0)]),
        (GroupKey::Each(instance(6, 0)), vec![instance(6, 0)]),
    ];
    assert_eq!(groups, expected);
    assert_eq!(topology.producers[0].outputs[0].rings, [0, 1, 2, 3]);
    assert_eq!(topology.queues, ["q"]);
}

#[test]
fn sending_instances_have_their_own_rings_and_receiving_ones_compete() {
    let send = "{name: send, replicas: 2, module: {path: a}, output: {topics: [t]}}";
    let receive = "{name: b, replicas: 3, module: {path: a}, input: {topic: t, queue: each}}";
    let (_, topology) = pipeline(&format!("{send}, {receive}"), "");
    assert_eq!(topology.rings.iter().map(|ring| ring.producer).collect::<Vec<_>>(), [instance(0, 0), instance(0, 1)]);
    assert_eq!(topology.groups[0].members, [instance(1, 0), instance(1, 1), instance(1, 2)]);
    assert_eq!(topology.groups[0].rings, [0, 1]);
}

#[test]
fn outputs_keep_their_indexes() {
    let send = "{name: send, module: {path: a}, output: {topics: [z, nobody, t, z]}}";
    let receive = "{name: b, module: {path: a}, input: {topic: z}}, {name: c, module: {path: a}, input: {topic: t}}";
    let (_, topology) = pipeline(&format!("{send}, {receive}"), "");
    assert_eq!(topology.topics, ["nobody", "t", "z"]);
    let rings: Vec<_> = topology.producers[0].outputs.iter().map(|output| output.rings.clone()).collect();
    assert_eq!(rings, [vec![1], vec![], vec![0], vec![1]]);
}

#[test]
fn a_stream_is_the_input_of_its_function_and_receives_its_replies() {
    let input = "{name: in, kind: input, replicas: 2, stream: {websocket: {url: 'ws://a'}}, module: {path: a}, \
                 output: {topics: [t]}}";
    let (pipeline, topology) = pipeline(&format!("{input}, {{name: b, module: {{path: a}}, input: {{topic: t}}}}"), "");
    let feeds: Vec<_> = topology.groups.iter().map(|group| (group.feed, group.members.clone())).collect();
    let expected = [
        (Feed::Topic(0), vec![instance(1, 0)]),
        (Feed::Stream(0), vec![instance(0, 0), instance(0, 1)]),
        (Feed::Answers(0), vec![End::Stream(0)]),
    ];
    assert_eq!(feeds, expected);
    let first = topology.producer(instance(0, 0)).unwrap();
    assert_eq!(first.outputs.len(), 1, "no topic index means the replies");
    assert_eq!(topology.rings[first.answers.as_ref().unwrap().rings[0]].group, 2);
    assert_eq!(topology.producer(End::Stream(0)).unwrap().outputs[0].feed, Feed::Stream(0));
    assert_eq!(topology.policies(&pipeline, Feed::Stream(0)), Topic::default());
}

#[test]
fn readers_of_a_topic_send_its_dead_letters() {
    let functions = "{name: a, module: {path: a}, input: {topic: t}}";
    let rest = "sources: [{name: s, stdin: lines, output: {topics: [t]}}]\n\
                sinks: [{name: dead, input: {topic: u}, stdout: lines}]\n\
                topics: {t: {delivery: at-least-once, dead_letter: u, max_deliver: 2}}";
    let (pipeline, topology) = pipeline(functions, rest);
    let producers: Vec<_> = topology.producers.iter().map(|producer| producer.end).collect();
    assert_eq!(producers, [instance(0, 0), End::Source(0)]);
    assert_eq!(topology.groups[1].members, [End::Sink(0)]);
    assert_eq!(topology.rings[0], Ring { producer: instance(0, 0), group: 1 });
    assert_eq!(topology.producers[0].dead_letter.as_ref().unwrap().rings, [0]);
    assert!(topology.producers[0].outputs.is_empty(), "no topic index means the dead letters");
    assert_eq!(topology.policies(&pipeline, Feed::Topic(0)).max_deliver, 2);
    assert_eq!(topology.topic("u"), Some(1));
    assert_eq!(topology.topic("v"), None);
}

#[test]
fn a_cycle_is_two_rings() {
    let functions = "{name: a, module: {path: a}, input: {topic: t}, output: {topics: [u]}}, \
                     {name: b, module: {path: a}, input: {topic: u}, output: {topics: [t]}}";
    let (_, topology) = pipeline(functions, "");
    assert_eq!(topology.rings.len(), 2);
}
