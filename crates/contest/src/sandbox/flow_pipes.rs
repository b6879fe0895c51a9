//! The function of `sandbox/flow` between two pipes: what estafette-flow's rings and supervisor are
//! held against.
//!
//! The broker is its host. It reads as many messages as the pipe has, lays them into the guest's memory as the batched ABI of
//! `docs/flow-abi.md` has it, and writes what the guest sends in one system call.

use std::io::{self, ErrorKind, Read, Write, pipe};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::spec::Joins;
use estafette_measure::usage::Usage;
use estafette_measure::{Carries, Ends, Mechanism, Party, Raw, Rendezvous, Spec};
use wasmtime::{Caller, Engine, Extern, Linker, Memory, Module, Store, TypedFunc};

use crate::byte_stream::{PipeEnd, Reading, Writing};

/// What one read of a pipe returns at most.
const PIPE: usize = 64 << 10;
/// A record's header.
const HEADER: usize = 8;
/// An entry of `send_batch`: topic, address, length.
const ENTRY: usize = 12;
const MAX_MESSAGE: usize = 1 << 20;

/// `sandbox/flow-pipes`.
pub(super) struct FlowPipes;

impl Mechanism for FlowPipes {
    fn spec(&self) -> Spec {
        Spec::new("sandbox/flow-pipes")
            .version(concat!("wasmtime ", env!("LOCKED_WASMTIME")))
            .stands_on("the function of `sandbox/flow` in a process, pipes in and out")
            .max_message(MAX_MESSAGE)
            .joins(Joins::Suite)
    }

    fn roles(&self, case: &Case) -> Vec<Role> {
        super::roles(case)
    }

    fn broker(&self, case: &Case, meet: &mut Rendezvous) -> Result<Usage> {
        let (input, theirs) = pipe()?;
        meet.offer_descriptors("in", &[theirs.as_fd()])?;
        drop(theirs);
        let (theirs, output) = pipe()?;
        meet.offer_descriptors("out", &[theirs.as_fd()])?;
        drop(theirs);
        let mut host = Host::new(case.payload.len(), PipeEnd::new(output))?;
        meet.ready()?;
        host.run(&mut PipeEnd::new(input))?;
        Ok(Usage::default())
    }
}

impl Carries<Raw> for FlowPipes {
    type Tx = Writing<PipeEnd>;
    type Rx = Reading<PipeEnd>;

    fn open(&self, case: &Case, role: Role, meet: &mut Rendezvous) -> Result<Ends<Self::Tx, Self::Rx>> {
        let len = case.payload.len();
        let mut want = |name: &str| -> Result<PipeEnd> {
            let [end]: [OwnedFd; 1] = meet.want_descriptors(name)?;
            Ok(PipeEnd::new(end))
        };
        let (mut tx, mut rx) = (None, None);
        if let Role::Producer(_) = role {
            tx = Some(Writing::new(want("in")?, len));
        }
        if case.pattern == Pattern::PingPong || matches!(role, Role::Consumer(_)) {
            rx = Some(Reading::new(want("out")?, len));
        }
        Ok(Ends(vec![Party { role, tx, rx }]))
    }
}

/// The function, its memory, and where its messages go.
struct Host<W: Write + 'static> {
    store: Store<Output<W>>,
    memory: Memory,
    batch: TypedFunc<(u32, u32, u32), ()>,
    /// The guest's buffer for a batch.
    buffer: usize,
    len: usize,
}

/// Where the guest's messages go: gathered, then written.
struct Output<W> {
    stream: W,
    bytes: Vec<u8>,
}

impl<W: Write + 'static> Host<W> {
    fn new(len: usize, stream: W) -> Result<Host<W>> {
        let load = || -> wasmtime::Result<Host<W>> {
            let engine = Engine::default();
            let module = Module::new(&engine, include_str!("../../../guest/wat/forward.wat"))?;
            let mut store = Store::new(&engine, Output { stream, bytes: Vec::new() });
            let mut linker = Linker::new(&engine);
            linker.func_wrap("estafette", "send_batch", send_batch::<W>)?;
            let instance = linker.instantiate(&mut store, &module)?;
            let memory = instance.get_memory(&mut store, "memory");
            let memory = memory.ok_or_else(|| wasmtime::Error::msg("the guest exports no memory"))?;
            let grow = instance.get_typed_func::<u32, u32>(&mut store, "estafette_buffer")?;
            let buffer = grow.call(&mut store, (most(len) * record(len)) as u32)? as usize;
            let batch = instance.get_typed_func(&mut store, "estafette_batch")?;
            Ok(Host { store, memory, batch, buffer, len })
        };
        load().map_err(|error| anyhow::anyhow!("starting the guest: {error:?}"))
    }

    /// Passes messages on until the stream ends.
    fn run(&mut self, input: &mut impl Read) -> Result<()> {
        let mut bytes = vec![0; most(self.len) * self.len];
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
            let whole = filled / self.len * self.len;
            if whole > 0 {
                self.deliver(&bytes[..whole])?;
                bytes.copy_within(whole..filled, 0);
                filled -= whole;
            }
        }
    }

    /// Gives the guest messages in one call.
    fn deliver(&mut self, messages: &[u8]) -> Result<()> {
        let (record, count) = (record(self.len), messages.len() / self.len);
        let memory = self.memory.data_mut(&mut self.store);
        let place = memory.get_mut(self.buffer..self.buffer + count * record);
        let place = place.context("the guest's buffer lies outside of its memory")?;
        for (place, message) in place.chunks_exact_mut(record).zip(messages.chunks_exact(self.len)) {
            place[..HEADER].copy_from_slice(&(self.len as u64).to_le_bytes());
            place[HEADER..HEADER + self.len].copy_from_slice(message);
        }
        let arguments = (self.buffer as u32, (count * record) as u32, count as u32);
        let called = self.batch.call(&mut self.store, arguments);
        called.map_err(|error| anyhow::anyhow!("the guest trapped: {error:?}"))
    }
}

/// The import `estafette.send_batch`.
fn send_batch<W: Write + 'static>(mut caller: Caller<'_, Output<W>>, list: u32, count: u32) -> wasmtime::Result<u32> {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return Err(wasmtime::Error::msg("the guest exports no memory"));
    };
    let (memory, output) = memory.data_and_store_mut(&mut caller);
    let slice = |at: u32, len: usize| {
        let slice = memory.get(at as usize..at as usize + len);
        slice.ok_or_else(|| wasmtime::Error::msg("the guest passed an address outside of its memory"))
    };
    output.bytes.clear();
    for entry in slice(list, count as usize * ENTRY)?.as_chunks::<ENTRY>().0 {
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        output.bytes.extend_from_slice(slice(word(4), word(8) as usize)?);
    }
    output.stream.write_all(&output.bytes)?;
    Ok(0)
}

/// How many messages are given at once, at the most.
fn most(len: usize) -> usize {
    (PIPE / len).max(1)
}

fn record(len: usize) -> usize {
    HEADER + len.next_multiple_of(HEADER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_passes_whole_messages_on() {
        for len in [1, 64, 1000, PIPE - 1, PIPE + 1] {
            let messages: Vec<u8> = (0..3 * len).map(|at| at as u8).collect();
            let mut host = Host::new(len, Vec::new()).unwrap();
            host.run(&mut &messages[..]).unwrap();
            assert!(host.store.data().stream == messages, "{len}");
            assert!(host.run(&mut &messages[..len + 1]).is_err() || len == 1);
        }
    }
}
