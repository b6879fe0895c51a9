//! The function of `sandbox/flow` between two pipes. It shows the cost without estafette-flow's
//! rings and supervisor.
//!
//! The broker is the function's host. It reads as many messages as the pipe contains, delivers them
//! to the guest in one call, and writes the messages that the guest sends with one system call. In
//! a pipeline the ends are hosts of guests, too, without a broker between them.

use std::io::{self, ErrorKind, Read, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Result, ensure};
use estafette_contest_common::byte_stream::{PipeEnd, Reading, Writing};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Tier;
use estafette_measure::usage::Usage;
use estafette_measure::{Ends, Mechanism, PartyEnds, PipelineEnd, Raw, Rendezvous, Spec, Transport};

use super::flow_pipelines::BATCHED;
use super::guest::{Guest, MessageSink, NoOutput, Receiver};
use super::rows::{self, ALL, MAX_MESSAGE};

/// The most bytes that one read of a pipe returns.
const PIPE: usize = 64 << 10;
/// `sandbox/flow-pipes`.
pub(super) struct FlowPipes;

impl Mechanism for FlowPipes {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/flow-pipes")
            .version(concat!("wasmtime ", env!("LOCKED_WASMTIME")))
            .implementation("the functions of `sandbox/flow`, each in a process, pipes between")
            .patterns(&ALL)
            .max_message(MAX_MESSAGE)
            .tier(Tier::Suite)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        if case.pattern.is_pipeline() { rows::ends(case) } else { rows::roles(case) }
    }

    fn pipeline(
        &self,
        case: &Case,
        role: Role,
        messages: u64,
        rendezvous: &mut Rendezvous,
    ) -> Result<Vec<PipelineEnd>> {
        match role {
            Role::Consumer(index) => receive(case, index, rendezvous),
            _ => send(case, messages, rendezvous),
        }
    }

    fn pipeline_slowness(&self, case: &Case) -> u64 {
        // Computing a checksum takes the same time as elsewhere.
        if case.pattern == Pattern::SendChecksum { 1 } else { 8 }
    }

    fn broker(&self, case: &Case, rendezvous: &mut Rendezvous) -> Result<Usage> {
        let (input, theirs) = pipe()?;
        rendezvous.publish_descriptors("in", &[theirs.as_fd()])?;
        drop(theirs);
        let (theirs, output) = pipe()?;
        rendezvous.publish_descriptors("out", &[theirs.as_fd()])?;
        drop(theirs);
        let output = RoundRobin { pipes: vec![PipeEnd::new(output)], next: 0 };
        let guest = Guest::new(include_str!("../wat/forward.wat"), &[], output)?;
        let mut function = guest.receiver(case.payload.len(), max_batch(case.payload.len()))?;
        rendezvous.wait_at_barrier()?;
        pass_on(&mut PipeEnd::new(input), case.payload.len(), &mut function)?;
        Ok(Usage::default())
    }
}

impl Transport<Raw> for FlowPipes {
    type Tx = Writing<PipeEnd>;
    type Rx = Reading<PipeEnd>;

    fn open(&self, case: &Case, role: Role, rendezvous: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let mut request = |name: &str| -> Result<PipeEnd> {
            let [end]: [OwnedFd; 1] = rendezvous.request_descriptors(name)?;
            Ok(PipeEnd::new(end))
        };
        let (mut tx, mut rx) = (None, None);
        if let Role::Producer(_) = role {
            tx = Some(Writing::new(request("in")?, len));
        }
        if case.pattern == Pattern::PingPong || matches!(role, Role::Consumer(_)) {
            rx = Some(Reading::new(request("out")?, len));
        }
        Ok(Ends(vec![PartyEnds { role, tx, rx }]))
    }
}

/// Runs the sender of a pipeline, which has a pipe to each receiver.
fn send(case: &Case, messages: u64, rendezvous: &mut Rendezvous) -> Result<Vec<PipelineEnd>> {
    let mut pipes = Vec::new();
    for index in 0..case.consumers() {
        let [end]: [OwnedFd; 1] = rendezvous.request_descriptors(&name(index))?;
        pipes.push(PipeEnd::new(end));
    }
    let args = [messages.to_string(), case.payload.len().to_string()];
    let mut sender = Guest::new(BATCHED.send, &args, RoundRobin { pipes, next: 0 })?;
    rendezvous.wait_at_barrier()?;
    sender.call("_start")?;
    Ok(vec![PipelineEnd::sender(messages + 1)])
}

/// Runs a receiver of a pipeline.
fn receive(case: &Case, index: usize, rendezvous: &mut Rendezvous) -> Result<Vec<PipelineEnd>> {
    let (input, theirs) = pipe()?;
    rendezvous.publish_descriptors(&name(index), &[theirs.as_fd()])?;
    drop(theirs);
    let len = case.payload.len();
    let mut receiver = Guest::new(BATCHED.receiver(case.pattern), &[], NoOutput)?.receiver(len, max_batch(len))?;
    rendezvous.wait_at_barrier()?;
    match pass_on(&mut PipeEnd::new(input), len, &mut receiver) {
        Err(error) if !receiver.is_damaged() => return Err(error),
        _ => {}
    }
    let damaged = u64::from(receiver.is_damaged());
    let end = PipelineEnd::receiver(index, receiver.count(), receiver.last().map(|last| last.time));
    Ok(vec![end.damaged(damaged)])
}

/// Returns the name of a receiver's pipe.
fn name(index: usize) -> String {
    format!("pipe:{index}")
}

/// A sink that writes batches to several pipes in turn. (Two receivers cannot read whole messages
/// from one pipe.)
struct RoundRobin<W> {
    pipes: Vec<W>,
    next: usize,
}

impl<W: Write + 'static> MessageSink for RoundRobin<W> {
    fn send(&mut self, messages: &[u8]) -> io::Result<()> {
        let pipe = &mut self.pipes[self.next];
        pipe.write_all(messages)?;
        self.next = (self.next + 1) % self.pipes.len();
        Ok(())
    }
}

/// Delivers the messages of a stream to a function, until the stream ends.
fn pass_on<O: MessageSink>(input: &mut impl Read, len: usize, function: &mut Receiver<O>) -> Result<()> {
    let mut bytes = vec![0; max_batch(len) * len];
    let mut filled = 0;
    loop {
        match input.read(&mut bytes[filled..]) {
            Ok(0) => {
                ensure!(filled == 0, "the stream ended within a message");
                return Ok(());
            }
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(io::Error::into(error)),
        }
        let whole = filled / len * len;
        if whole > 0 {
            function.deliver(&bytes[..whole])?;
            bytes.copy_within(whole..filled, 0);
            filled -= whole;
        }
    }
}

/// Returns the highest number of messages in a batch.
fn max_batch(len: usize) -> usize {
    (PIPE / len).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_forwards_whole_messages() {
        for len in [1, 64, 1000, PIPE - 1, PIPE + 1] {
            let messages: Vec<u8> = (0..3 * len).map(|at| at as u8).collect();
            let output = RoundRobin { pipes: vec![Vec::new()], next: 0 };
            let guest = Guest::new(include_str!("../wat/forward.wat"), &[], output).unwrap();
            let mut function = guest.receiver(len, max_batch(len)).unwrap();
            pass_on(&mut &messages[..], len, &mut function).unwrap();
            assert!(function.sink().pipes[0] == messages, "{len}");
            assert!(pass_on(&mut &messages[..len + 1], len, &mut function).is_err() || len == 1);
        }
    }

    #[test]
    fn several_pipes_get_batches_in_turn() {
        let mut round_robin = RoundRobin { pipes: vec![Vec::new(), Vec::new()], next: 0 };
        for batch in [&[1u8, 1][..], &[2], &[3, 3]] {
            round_robin.send(batch).unwrap();
        }
        assert_eq!(round_robin.pipes, [vec![1, 1, 3, 3], vec![2]]);
    }
}
