//! The request that starts an instance.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::code::Code;
use super::fabric::Fabric;
use super::instance::Instance;
use crate::config::{self, Delivery, End, Pipeline, Topology};
use crate::control::{Input, Output, Overflow, Start, Wait};
use crate::engine::wasi::{Directory, Grants};
use crate::external;

/// The request. [`descriptors`] returns its descriptors.
pub(super) fn request(
    instance: &Instance,
    requested_at: u64,
    pipeline: &Pipeline,
    topology: &Topology,
    code: &Code,
) -> Start {
    let function = &pipeline.functions[instance.function];
    let input = input(instance.end, pipeline, topology);
    let ends = Ends::of(topology, instance.end);
    let code = code.current(instance.function);
    Start {
        instance: instance.id,
        name: instance.name.clone(),
        abi: code.abi,
        generation: code.generation,
        requested_at,
        grants: grants(function),
        wait: wait(function.wait),
        memory_limit: usize::try_from(function.limits.memory).unwrap_or(usize::MAX),
        input,
        outputs: ends.outputs.iter().map(|output| describe(output, pipeline, topology)).collect(),
        topics: ends.topics,
        reply: ends.reply,
        dead_letter: ends.dead_letter,
    }
}

/// The input of an end, if it has one.
fn input(end: End, pipeline: &Pipeline, topology: &Topology) -> Option<Input> {
    let place = topology.membership(end)?;
    let group = &topology.groups[place.group];
    let policies = topology.policies(pipeline, group.feed);
    let max_deliver = (policies.delivery == Delivery::AtLeastOnce).then_some(policies.max_deliver);
    Some(Input { member: place.member, rings: group.rings.len(), max_deliver, copies: policies.is_copied() })
}

/// What a process outside of the pipeline needs to be one of its ends: the end's description, and
/// the bells and rings.
///
/// # Errors
///
/// If the process has no file descriptor left.
pub(super) fn external(
    end: End,
    pipeline: &Pipeline,
    topology: &Topology,
    fabric: &Fabric,
) -> io::Result<(external::Plan, Vec<OwnedFd>)> {
    let outputs = Ends::of(topology, end).outputs;
    let plan = external::Plan {
        input: input(end, pipeline, topology),
        outputs: outputs.iter().map(|output| describe(output, pipeline, topology)).collect(),
    };
    let rings = descriptors(end, topology, fabric);
    Ok((plan, rings.iter().map(BorrowedFd::try_clone_to_owned).collect::<io::Result<_>>()?))
}

fn describe(output: &config::Output, pipeline: &Pipeline, topology: &Topology) -> Output {
    let policies = topology.policies(pipeline, output.feed);
    Output { groups: output.rings.len(), max_message: policies.max_message, overflow: overflow(policies.overflow) }
}

/// The descriptors of an instance's inputs and outputs, in the order that [`Start`] documents.
pub(super) fn descriptors<'f>(end: End, topology: &Topology, fabric: &'f Fabric) -> Vec<BorrowedFd<'f>> {
    let mut all = Vec::new();
    if let Some(place) = topology.membership(end) {
        all.extend(fabric.input(topology, place.group));
    }
    for output in Ends::of(topology, end).outputs {
        all.extend(fabric.output(topology, &output.rings));
    }
    all
}

/// The outputs of a producer, each feed once, and their roles.
#[derive(Default)]
struct Ends<'t> {
    outputs: Vec<&'t config::Output>,
    topics: Vec<usize>,
    reply: Option<usize>,
    dead_letter: Option<usize>,
}

impl<'t> Ends<'t> {
    fn of(topology: &'t Topology, end: End) -> Ends<'t> {
        let mut ends = Ends::default();
        if let Some(producer) = topology.producer(end) {
            ends.topics = producer.outputs.iter().map(|output| ends.add(output)).collect();
            ends.reply = producer.answers.as_ref().map(|output| ends.add(output));
            ends.dead_letter = producer.dead_letter.as_ref().map(|output| ends.add(output));
        }
        ends
    }

    /// A ring has one publisher, so a feed with two roles is one output.
    fn add(&mut self, output: &'t config::Output) -> usize {
        self.outputs.iter().position(|known| known.feed == output.feed).unwrap_or_else(|| {
            self.outputs.push(output);
            self.outputs.len() - 1
        })
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
