//! Where the parts of a pipeline run, and the part of one host.
//!
//! A topic *crosses* if its ends are on several hosts and its transport is a server. The part of a
//! host is a pipeline of its own: in place of the topic's far ends it has a sink that publishes to
//! the server, and a source for each queue that reads from it. So everything that runs a pipeline
//! runs a part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use serde::Serialize;

use super::function::{Input, Queue};
use super::nats::{Nats, NatsTopic, encoded};
use super::pipeline::Pipeline;
use super::sink::{Sink, SinkKind};
use super::source::{Source, SourceKind};
use super::topic::{Delivery, Overflow, Topic, Transport};

/// The hosts of a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Hosts {
    /// Their names, in the order of the file. Empty for a pipeline of one machine.
    pub names: Vec<String>,
    /// The host of each function, source and sink, by its name.
    pub placed: BTreeMap<String, String>,
}

/// A topic with ends on several hosts. Printed as `raw: edge -> center (...)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// The topic.
    pub topic: String,
    /// The hosts that write it, sorted.
    pub from: BTreeSet<String>,
    /// The hosts that read it, sorted.
    pub to: BTreeSet<String>,
    /// Its queues, by their names on the server, sorted.
    pub queues: BTreeSet<String>,
    /// Its subject on the server.
    pub subject: String,
    /// Its stream, if it is delivered at least once.
    pub stream: Option<String>,
}

impl Display for Crossing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let listed = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        write!(f, "{}: {} -> {} (", self.topic, listed(&self.from), listed(&self.to))?;
        match &self.stream {
            Some(stream) => write!(f, "at least once, stream {stream}, subject {}", self.subject)?,
            None => write!(f, "at most once, subject {}", self.subject)?,
        }
        write!(f, "; queues: {})", listed(&self.queues))
    }
}

/// Names that begin like this belong to the ends of crossing topics.
pub(super) const RESERVED: &str = "nats:";

/// The name of a reader's queue on the server: `all` without a queue, `q-NAME`, or `each-READER`.
fn queue_name(queue: &Queue, reader: &str) -> String {
    match queue {
        Queue::Unnamed => String::from("all"),
        Queue::Named(name) => format!("q-{}", encoded(name)),
        Queue::Each => format!("each-{}", encoded(reader)),
    }
}

/// The hosts that write and read each topic.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) from: BTreeSet<String>,
    pub(super) to: BTreeSet<String>,
    queues: BTreeSet<String>,
}

impl Ends {
    pub(super) fn is_crossing(&self) -> bool {
        !self.to.is_empty() && self.from.union(&self.to).count() > 1
    }
}

/// What a function, source or sink reads and writes.
pub(super) struct Use<'a> {
    pub(super) name: &'a str,
    pub(super) host: &'a str,
    pub(super) input: Option<&'a Input>,
    pub(super) output: &'a [String],
}

/// The ends of all topics. `dead_letter` names the dead-letter topic of a topic.
pub(super) fn ends<'a>(
    uses: impl Iterator<Item = Use<'a>>,
    dead_letter: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, Ends> {
    let mut all: BTreeMap<String, Ends> = BTreeMap::new();
    for Use { name, host, input, output } in uses {
        for topic in output {
            all.entry(topic.clone()).or_default().from.insert(host.to_owned());
        }
        let Some(input) = input else { continue };
        let ends = all.entry(input.topic.clone()).or_default();
        ends.to.insert(host.to_owned());
        ends.queues.insert(queue_name(&input.queue, name));
        if let Some(topic) = dead_letter(&input.topic) {
            all.entry(topic).or_default().from.insert(host.to_owned());
        }
    }
    all
}

impl Pipeline {
    /// The topics that cross hosts, by name.
    pub fn crossings(&self) -> Vec<Crossing> {
        let Some(nats) = &self.nats else { return Vec::new() };
        let dead_letter = |topic: &str| self.topics.get(topic)?.dead_letter.clone();
        let ends = ends(self.uses(), dead_letter).into_iter();
        let ends = ends.filter(|(topic, ends)| ends.is_crossing() && self.transport(topic) == Transport::Nats);
        let crossing = |(topic, Ends { from, to, queues }): (String, Ends)| {
            let is_stored = self.topics.get(&topic).is_some_and(|it| it.delivery == Delivery::AtLeastOnce);
            let (subject, stream) = (nats.subject(&topic), is_stored.then(|| nats.stream_name(&topic)));
            Crossing { topic, from, to, queues, subject, stream }
        };
        ends.map(crossing).collect()
    }

    /// A crossing topic, as a part uses it.
    pub(crate) fn nats_topic(&self, nats: &Nats, crossing: &Crossing) -> NatsTopic {
        let Topic { delivery, max_message, max_deliver, capacity, batch, message_ids, .. } =
            self.topics.get(&crossing.topic).cloned().unwrap_or_default();
        NatsTopic {
            topic: crossing.topic.clone(),
            subject: crossing.subject.clone(),
            stream: nats.stream_name(&crossing.topic),
            delivery,
            queues: crossing.queues.iter().cloned().collect(),
            max_message,
            max_deliver,
            capacity,
            batch,
            message_ids,
        }
    }

    fn transport(&self, topic: &str) -> Transport {
        self.topics.get(topic).map(|topic| topic.transport).unwrap_or_default()
    }

    fn uses(&self) -> impl Iterator<Item = Use<'_>> {
        let host = |name: &str| self.hosts.placed.get(name).map_or("", String::as_str);
        let functions = self.functions.iter().map(move |function| Use {
            name: &function.name,
            host: host(&function.name),
            input: function.input.as_ref(),
            output: &function.output,
        });
        let sources = self.sources.iter().map(move |source| Use {
            name: &source.name,
            host: host(&source.name),
            input: None,
            output: &source.output,
        });
        let sinks = self.sinks.iter().map(move |sink| Use {
            name: &sink.name,
            host: host(&sink.name),
            input: Some(&sink.input),
            output: &[],
        });
        functions.chain(sources).chain(sinks)
    }

    /// The part of the pipeline that runs on a host, which is a pipeline without hosts. None if
    /// there is no such host.
    pub fn part(&self, host: &str) -> Option<Pipeline> {
        if !self.hosts.names.iter().any(|name| name == host) {
            return None;
        }
        let mut part = Pipeline { hosts: Hosts::default(), host: Some(host.to_owned()), ..self.clone() };
        let is_here = |name: &String| self.hosts.placed.get(name).is_some_and(|on| on == host);
        part.functions.retain(|function| is_here(&function.name));
        part.sources.retain(|source| is_here(&source.name));
        part.sinks.retain(|sink| is_here(&sink.name));
        if let Some(nats) = &self.nats {
            part.replace_far_ends(nats, &self.crossings(), host);
        }
        part.keep_used_topics();
        Some(part)
    }

    /// Replaces the far ends of crossing topics by sources and sinks.
    fn replace_far_ends(&mut self, nats: &Nats, crossings: &[Crossing], host: &str) {
        for crossing in crossings {
            let (topic, remote) = (&crossing.topic, self.nats_topic(nats, crossing));
            let policies = self.topics.get(topic).cloned().unwrap_or_default();
            for queue in self.redirect_readers(topic) {
                self.add_source(&remote, queue, &policies);
            }
            if crossing.from.contains(host) {
                let input = Input { topic: topic.clone(), queue: Queue::Unnamed };
                let name = format!("{RESERVED}{topic}");
                self.sinks.push(Sink { name, input, kind: SinkKind::Nats(remote) });
                // Dead letters are of those who process messages, on the host of the reader.
                let sent = Topic { dead_letter: None, transport: Transport::Local, ..policies };
                self.topics.insert(topic.clone(), sent);
            }
        }
    }

    /// Lets the readers of a crossing topic read the source of their queue. Returns the queues.
    fn redirect_readers(&mut self, topic: &str) -> BTreeSet<String> {
        let functions = self.functions.iter_mut().filter_map(|it| Some((&it.name, it.input.as_mut()?)));
        let sinks = self.sinks.iter_mut().map(|it| (&it.name, &mut it.input));
        let mut queues = BTreeSet::new();
        for (name, input) in functions.chain(sinks).filter(|(_, input)| input.topic == topic) {
            let queue = queue_name(&input.queue, name);
            input.topic = received(topic, &queue);
            queues.insert(queue);
        }
        queues
    }

    /// Adds the source of one queue of a crossing topic.
    fn add_source(&mut self, remote: &NatsTopic, queue: String, policies: &Topic) {
        let name = received(&remote.topic, &queue);
        let mut output = vec![name.clone()];
        output.extend(policies.dead_letter.clone());
        // A full ring must not lose what the server has delivered for good.
        let overflow = match policies.delivery {
            Delivery::AtLeastOnce => Overflow::Block,
            Delivery::AtMostOnce => policies.overflow,
        };
        let topic = Topic { overflow, transport: Transport::Local, ..policies.clone() };
        self.topics.insert(name.clone(), topic);
        self.sources.push(Source { name, kind: SourceKind::Nats { topic: remote.clone(), queue }, output });
    }

    fn keep_used_topics(&mut self) {
        let read = self.uses().filter_map(|it| it.input.map(|input| input.topic.clone()));
        let written = self.uses().flat_map(|it| it.output.iter().cloned());
        let mut used: BTreeSet<String> = read.chain(written).collect();
        let dead_letters = used.iter().filter_map(|topic| self.topics.get(topic)?.dead_letter.clone());
        used.extend(dead_letters.collect::<Vec<_>>());
        self.topics.retain(|topic, _| used.contains(topic));
    }
}

/// The name of the source, and of its topic, for a queue of a crossing topic.
fn received(topic: &str, queue: &str) -> String {
    format!("{RESERVED}{topic}:{queue}")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::fuzzing::Text;
    use super::super::{Options, check_files};
    use super::*;

    const YAML: &str = "
hosts: [edge, center]
nats: { servers: ['nats://127.0.0.1:4222'], prefix: orders }
functions: []
sources:
  - { name: in, on: edge, stdin: lines, output: { topics: [raw, near] } }
sinks:
  - { name: keep, on: center, input: { topic: raw, queue: work }, stdout: lines }
  - { name: copy, on: edge, input: { topic: raw, queue: each }, stdout: lines }
  - { name: here, on: edge, input: { topic: near }, stdout: lines }
  - { name: dead, on: edge, input: { topic: dead }, stdout: lines }
topics:
  raw: { transport: nats, delivery: at-least-once, dead_letter: dead, max_deliver: 3 }
  near: { transport: nats }
  dead: { transport: nats }
";

    fn pipeline() -> Pipeline {
        let checked = check_files(Path::new("p.yml"), &Options::default(), &Text(YAML.as_bytes()));
        checked.pipeline.unwrap_or_else(|| panic!("{:?}", checked.diagnostics))
    }

    #[test]
    fn only_topics_with_ends_on_several_hosts_cross() {
        let crossings = pipeline().crossings();
        let topics: Vec<_> = crossings.iter().map(|crossing| crossing.topic.as_str()).collect();
        assert_eq!(topics, ["dead", "raw"]);
        let queues: Vec<_> = crossings[1].queues.iter().map(String::as_str).collect();
        assert_eq!(queues, ["each-copy", "q-work"]);
        let printed: Vec<_> = crossings.iter().map(Crossing::to_string).collect();
        assert_eq!(printed[0], "dead: center, edge -> edge (at most once, subject orders.dead; queues: all)");
        let raw = "raw: edge -> center, edge (at least once, stream orders_raw, subject orders.raw; queues: each-copy, q-work)";
        assert_eq!(printed[1], raw);
    }

    #[test]
    fn the_part_of_a_sender_publishes_what_it_writes() {
        let part = pipeline().part("edge").unwrap();
        let sinks: Vec<_> = part.sinks.iter().map(|sink| (sink.name.as_str(), sink.input.topic.as_str())).collect();
        assert!(sinks.contains(&("nats:raw", "raw")) && sinks.contains(&("here", "near")), "{sinks:?}");
        // Its own reader gets the messages from the server too, as the queue of another host does.
        assert!(sinks.contains(&("copy", "nats:raw:each-copy")), "{sinks:?}");
        assert_eq!(part.topics["raw"].dead_letter, None);
    }

    #[test]
    fn the_part_of_a_receiver_has_a_source_for_its_queue_only() {
        let part = pipeline().part("center").unwrap();
        let [source] = part.sources.as_slice() else { panic!("{:?}", part.sources) };
        assert_eq!(source.output, ["nats:raw:q-work", "dead"]);
        let SourceKind::Nats { topic, queue } = &source.kind else { panic!("{source:?}") };
        assert_eq!(
            (topic.subject.as_str(), topic.stream.as_str(), queue.as_str()),
            ("orders.raw", "orders_raw", "q-work")
        );
        assert_eq!((topic.max_deliver, part.topics["nats:raw:q-work"].dead_letter.as_deref()), (3, Some("dead")));
        // Its dead letters go to the other host.
        assert!(part.sinks.iter().any(|sink| sink.name == "nats:dead"), "{:?}", part.sinks);
        assert!(pipeline().part("nowhere").is_none());
    }
}
