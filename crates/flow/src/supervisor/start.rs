//! What a host is sent to start an instance.

use std::os::fd::BorrowedFd;

use super::code::Code;
use super::fabric::Fabric;
use super::instance::Instance;
use crate::config::{self, Delivery, End, Feed, Pipeline, Topology};
use crate::control::{Input, Output, Overflow, Start, Wait};
use crate::engine::wasi::{Directory, Grants};

/// The request itself. Its descriptors are [`descriptors`].
pub(super) fn request(
    instance: &Instance,
    requested_at: u64,
    pipeline: &Pipeline,
    topology: &Topology,
    code: &Code,
) -> Start {
    let function = &pipeline.functions[instance.function];
    let input = topology.membership(instance.end).map(|place| {
        let group = &topology.groups[place.group];
        let policies = topology.policies(pipeline, group.feed);
        let max_deliver = (policies.delivery == Delivery::AtLeastOnce).then_some(policies.max_deliver);
        Input { member: place.member, rings: group.rings.len(), max_deliver }
    });
    let output = |output: &config::Output| {
        let policies = topology.policies(pipeline, output.feed);
        let name = match output.feed {
            Feed::Topic(topic) => topology.topics[topic].clone(),
            Feed::Stream(_) | Feed::Answers(_) => "(stream)".into(),
        };
        Output {
            topic: name,
            groups: output.rings.len(),
            max_message: policies.max_message,
            overflow: overflow(policies.overflow),
        }
    };
    let ends = Ends::of(topology, instance.end);
    Start {
        instance: instance.id,
        name: instance.name.clone(),
        abi: code.abi(instance.function),
        requested_at,
        grants: grants(function),
        wait: wait(function.wait),
        memory_limit: usize::try_from(function.limits.memory).unwrap_or(usize::MAX),
        input,
        outputs: ends.topics.into_iter().map(output).collect(),
        reply: ends.reply.map(output),
        dead_letter: ends.dead_letter.map(output),
    }
}

/// The descriptors of an instance's ends, in the order that [`Start`] says.
pub(super) fn descriptors<'f>(end: End, topology: &Topology, fabric: &'f Fabric) -> Vec<BorrowedFd<'f>> {
    let mut all = Vec::new();
    if let Some(place) = topology.membership(end) {
        all.extend(fabric.input(topology, place.group));
    }
    let ends = Ends::of(topology, end);
    for output in ends.topics.into_iter().chain(ends.reply).chain(ends.dead_letter) {
        all.extend(fabric.output(topology, &output.rings));
    }
    all
}

/// What a producer sends to, by purpose.
struct Ends<'t> {
    topics: Vec<&'t config::Output>,
    reply: Option<&'t config::Output>,
    dead_letter: Option<&'t config::Output>,
}

impl<'t> Ends<'t> {
    fn of(topology: &'t Topology, end: End) -> Ends<'t> {
        let producer = topology.producers.iter().find(|producer| producer.end == end);
        let outputs = producer.map_or(&[][..], |producer| &producer.outputs);
        let is_reply = |output: &&config::Output| matches!(output.feed, Feed::Answers(_));
        Ends {
            topics: outputs.iter().filter(|output| !is_reply(output)).collect(),
            reply: outputs.iter().find(is_reply),
            dead_letter: producer.and_then(|producer| producer.dead_letter.as_ref()),
        }
    }
}

fn grants(function: &config::Function) -> Grants {
    let allow = &function.allow;
    let directory = |grant: &config::DirectoryGrant| Directory {
        host: grant.host.clone(),
        guest: grant.guest.clone(),
        is_writable: grant.write,
    };
    Grants {
        args: function.args.clone(),
        env: allow.env.clone(),
        directories: allow.directories.iter().map(directory).collect(),
        clocks: allow.clocks,
        random: allow.random,
        network: allow.network.iter().map(ToString::to_string).collect(),
    }
}

fn overflow(overflow: config::Overflow) -> Overflow {
    match overflow {
        config::Overflow::Block => Overflow::Block,
        config::Overflow::DropOldest => Overflow::DropOldest,
        config::Overflow::DropNew => Overflow::DropNew,
    }
}

fn wait(wait: config::Wait) -> Wait {
    match wait {
        config::Wait::Spin => Wait::Spin,
        config::Wait::Adaptive => Wait::Adaptive,
        config::Wait::Block => Wait::Block,
    }
}
