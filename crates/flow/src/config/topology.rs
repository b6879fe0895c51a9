//! The topology of a pipeline: its ends, their queue groups, and the rings that connect them.
//!
//! Pure data, derived from a [`Pipeline`] only. A supervisor creates one bell for each group, and
//! one ring for each entry of [`Topology::rings`]: one for each pair of a producer and a group. The
//! order of all lists depends only on the pipeline, so all processes that read the same files use
//! the same indexes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::function::{Function, FunctionKind, Input, Queue};
use super::pipeline::Pipeline;
use super::topic::Topic;

/// The maximum number of members of a group.
pub const MAX_MEMBERS: usize = Function::MAX_REPLICAS as usize;

/// Something that sends or receives messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// An instance of a function.
    Function {
        /// The function's index in [`Pipeline::functions`].
        function: usize,
        /// The index of the instance, from 0.
        replica: u32,
    },
    /// A source, by its index in [`Pipeline::sources`].
    Source(usize),
    /// A sink, by its index in [`Pipeline::sinks`].
    Sink(usize),
    /// The stream of a function of [`FunctionKind::Input`], by the function's index. It sends what
    /// arrives, and receives the function's replies.
    Stream(usize),
}

/// A queue group: each message goes to one of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What the group reads.
    pub feed: Feed,
    /// Which group of the feed this is.
    pub key: GroupKey,
    /// The members, at most [`MAX_MEMBERS`]. A member's index here is its index in the rings.
    pub members: Vec<End>,
    /// The rings that it reads, by their indexes in [`Topology::rings`]: one for each producer, in
    /// the order of producers. Empty for a topic without a writer.
    pub rings: Vec<usize>,
}

/// What a group reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feed {
    /// A topic, by its index in [`Topology::topics`].
    Topic(usize),
    /// The messages of a function's stream, by the function's index. The members are its instances.
    Stream(usize),
    /// The replies that a function's instances send on its stream, by the function's index. The
    /// only member is the stream.
    Answers(usize),
}

/// Which group of a feed this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupKey {
    /// The readers without a queue. Also the only group of a stream or of its replies.
    Unnamed,
    /// The readers of a named queue, by the name's index in [`Topology::queues`].
    Named(usize),
    /// The instances of one function, or one sink, with `queue: each`.
    Each(End),
}

/// A ring: from one producer to one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Ring {
    /// The sender.
    pub producer: End,
    /// The receiving group, by its index in [`Topology::groups`].
    pub group: usize,
}

/// A producer, and where it sends messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Producer {
    /// The sender.
    pub end: End,
    /// Its outputs, in the order of the file: a guest's topic index is an index in this list.
    pub outputs: Vec<Output>,
    /// Where an instance sends replies on its input stream.
    pub answers: Option<Output>,
    /// Where an end sends input messages that reached the maximum number of deliveries.
    pub dead_letter: Option<Output>,
}

/// One output of a producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Output {
    /// What it sends to.
    pub feed: Feed,
    /// The rings that a message is sent to, one for each group of the topic. Empty for a topic
    /// without a reader. Two outputs of a producer with the same topic share the rings.
    pub rings: Vec<usize>,
}

/// The group from which an end reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Membership {
    /// The group, by its index in [`Topology::groups`].
    pub group: usize,
    /// The member's index in the group.
    pub member: usize,
}

/// The ends, groups and rings of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// The names of the topics, sorted: the keys of [`Pipeline::topics`].
    pub topics: Vec<String>,
    /// The names of the queues, sorted. The same name on two topics is one entry here, but two
    /// groups.
    pub queues: Vec<String>,
    /// The queue groups: those of topics in the order of topics, then those of streams and their
    /// replies.
    pub groups: Vec<Group>,
    /// The producers, sorted: instances of functions, sources, sinks with a dead-letter topic,
    /// streams. Only those with an output.
    pub producers: Vec<Producer>,
    /// The rings, by producer, then by group.
    pub rings: Vec<Ring>,
}

impl Topology {
    /// Derives the topology. Accepts any pipeline. Only for a pipeline that [`super::check`]
    /// accepted, no group has more than [`MAX_MEMBERS`] members.
    pub fn of(pipeline: &Pipeline) -> Topology {
        let mut topology = Topology {
            topics: pipeline.topics.keys().cloned().collect(),
            queues: queues(pipeline),
            groups: Vec::new(),
            producers: Vec::new(),
            rings: Vec::new(),
        };
        topology.groups = groups(pipeline, &topology);
        for (end, sends) in producers(pipeline, &topology) {
            topology.join(end, &sends);
        }
        topology
    }

    /// The index of a topic in [`Topology::topics`].
    pub fn topic(&self, name: &str) -> Option<usize> {
        self.topics.binary_search_by(|topic| topic.as_str().cmp(name)).ok()
    }

    /// The producer of an end. None if the end sends nothing.
    pub fn producer(&self, end: End) -> Option<&Producer> {
        let place = self.producers.binary_search_by_key(&end, |producer| producer.end).ok()?;
        self.producers.get(place)
    }

    /// The group of which an end is a member. None if the end receives nothing. No end is in two
    /// groups.
    pub fn membership(&self, end: End) -> Option<Membership> {
        self.groups.iter().enumerate().find_map(|(group, candidate)| {
            let member = candidate.members.iter().position(|member| *member == end)?;
            Some(Membership { group, member })
        })
    }

    /// The policies of a feed. Streams and replies have the defaults of a topic.
    pub fn policies(&self, pipeline: &Pipeline, feed: Feed) -> Topic {
        let Feed::Topic(topic) = feed else { return Topic::default() };
        pipeline.topics.get(&self.topics[topic]).cloned().unwrap_or_default()
    }

    /// Adds a producer, and its rings to every group of the feeds that it sends to.
    fn join(&mut self, end: End, sends: &Sends) {
        let mut rings: BTreeMap<Feed, Vec<usize>> = sends.feeds().map(|feed| (feed, Vec::new())).collect();
        for (group, reads) in self.groups.iter_mut().enumerate() {
            if let Some(rings) = rings.get_mut(&reads.feed) {
                let ring = self.rings.len();
                self.rings.push(Ring { producer: end, group });
                reads.rings.push(ring);
                rings.push(ring);
            }
        }
        let output = |feed: Feed| Output { feed, rings: rings.get(&feed).cloned().unwrap_or_default() };
        let outputs = sends.topics.iter().copied().map(output).collect();
        let (answers, dead_letter) = (sends.answers.map(output), sends.dead_letter.map(output));
        if sends.feeds().next().is_some() {
            self.producers.push(Producer { end, outputs, answers, dead_letter });
        }
    }
}

/// The feeds that an end sends to.
#[derive(Clone, Default)]
struct Sends {
    topics: Vec<Feed>,
    answers: Option<Feed>,
    dead_letter: Option<Feed>,
}

impl Sends {
    fn feeds(&self) -> impl Iterator<Item = Feed> {
        self.topics.iter().copied().chain(self.answers).chain(self.dead_letter)
    }
}

/// The instances of a function.
fn instances(function: usize, of: &Function) -> impl Iterator<Item = End> {
    (0..of.replicas).map(move |replica| End::Function { function, replica })
}

/// All readers of topics, in the order of the file: the input, and the ends that read it.
fn readers(pipeline: &Pipeline) -> Vec<(&Input, Vec<End>)> {
    let functions = pipeline.functions.iter().enumerate().filter_map(|(index, function)| {
        let input = function.input.as_ref()?;
        Some((input, instances(index, function).collect()))
    });
    let sinks = pipeline.sinks.iter().enumerate().map(|(index, sink)| (&sink.input, vec![End::Sink(index)]));
    functions.chain(sinks).collect()
}

fn queues(pipeline: &Pipeline) -> Vec<String> {
    let named = readers(pipeline).into_iter().filter_map(|(input, _)| match &input.queue {
        Queue::Named(name) => Some(name.clone()),
        Queue::Unnamed | Queue::Each => None,
    });
    let mut names: Vec<_> = named.collect();
    names.sort();
    names.dedup();
    names
}

fn groups(pipeline: &Pipeline, names: &Topology) -> Vec<Group> {
    let mut groups: BTreeMap<(Feed, GroupKey), Vec<End>> = BTreeMap::new();
    for (input, ends) in readers(pipeline) {
        let (Some(topic), Some(first)) = (names.topic(&input.topic), ends.first()) else { continue };
        let key = match &input.queue {
            Queue::Unnamed => GroupKey::Unnamed,
            Queue::Named(name) => GroupKey::Named(names.queues.binary_search(name).unwrap_or_default()),
            Queue::Each => GroupKey::Each(*first),
        };
        groups.entry((Feed::Topic(topic), key)).or_default().extend(ends);
    }
    for (index, function) in streamed(pipeline) {
        groups.insert((Feed::Stream(index), GroupKey::Unnamed), instances(index, function).collect());
        groups.insert((Feed::Answers(index), GroupKey::Unnamed), vec![End::Stream(index)]);
    }
    groups.into_iter().map(|((feed, key), members)| Group { feed, key, members, rings: Vec::new() }).collect()
}

/// The functions whose input is a stream.
fn streamed(pipeline: &Pipeline) -> impl Iterator<Item = (usize, &Function)> {
    let functions = pipeline.functions.iter().enumerate();
    functions.filter(|(_, function)| function.kind == FunctionKind::Input && function.stream.is_some())
}

/// All producers, and the feeds that they send to.
fn producers(pipeline: &Pipeline, names: &Topology) -> Vec<(End, Sends)> {
    let topics = |topics: &[String]| -> Vec<Feed> {
        topics.iter().filter_map(|topic| names.topic(topic)).map(Feed::Topic).collect()
    };
    let dead_letter = |input: &Input| {
        let topic = pipeline.topics.get(&input.topic)?;
        names.topic(topic.dead_letter.as_ref()?).map(Feed::Topic)
    };
    let mut producers = Vec::new();
    for (index, function) in pipeline.functions.iter().enumerate() {
        let is_streamed = function.kind == FunctionKind::Input && function.stream.is_some();
        let sends = Sends {
            topics: topics(&function.output),
            answers: is_streamed.then_some(Feed::Answers(index)),
            dead_letter: function.input.as_ref().and_then(dead_letter),
        };
        producers.extend(instances(index, function).map(|end| (end, sends.clone())));
    }
    let only = |topics| Sends { topics, ..Sends::default() };
    let sources = pipeline.sources.iter().enumerate();
    producers.extend(sources.map(|(index, source)| (End::Source(index), only(topics(&source.output)))));
    let sinks = pipeline.sinks.iter().enumerate();
    producers.extend(
        sinks.map(|(index, sink)| {
            (End::Sink(index), Sends { dead_letter: dead_letter(&sink.input), ..Sends::default() })
        }),
    );
    producers.extend(streamed(pipeline).map(|(index, _)| (End::Stream(index), only(vec![Feed::Stream(index)]))));
    producers
}

#[cfg(test)]
mod tests;
