//! A function of the batched ABI outside of estafette-flow: what other ways between hosts run in the comparison.
//!
//! The host of `docs/flow-abi.md` with as little as it takes: messages are laid into the guest's memory, many a call, and those
//! that it sends are gathered and handed to the way that they go. Of WASI preview 1 it has what the guests of
//! `crates/guest/wat` import.

use std::io;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use wasmtime::{Caller, Engine, Extern, Instance, Linker, Memory, Module, Store, TypedFunc};

use super::printed::{self, Last};

/// A record's header.
const HEADER: usize = 8;
/// An entry of `send_batch`: topic, address, length.
const ENTRY: usize = 12;
/// A pointer and a length, of `fd_write`.
const VECTOR: usize = 8;

/// Where a guest's messages go.
pub(super) trait Outlet: 'static {
    /// Sends messages that lie back to back.
    fn send(&mut self, messages: &[u8]) -> io::Result<()>;
}

/// What has no output.
pub(super) struct Nowhere;

impl Outlet for Nowhere {
    fn send(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this function has no output"))
    }
}

/// A function and its memory.
pub(super) struct Guest<O: 'static> {
    store: Store<State<O>>,
    instance: Instance,
    memory: Memory,
}

/// What the guest's calls reach.
struct State<O> {
    outlet: O,
    /// The messages of a call of `send_batch`.
    gathered: Vec<u8>,
    args: Vec<String>,
    printed: String,
    started: Instant,
}

impl<O: Outlet> Guest<O> {
    /// Compiles a function.
    pub(super) fn new(text: &str, args: &[String], outlet: O) -> Result<Guest<O>> {
        let load = || -> wasmtime::Result<Guest<O>> {
            let engine = Engine::default();
            let module = Module::new(&engine, text)?;
            let (gathered, printed) = (Vec::new(), String::new());
            let state = State { outlet, gathered, args: args.to_vec(), printed, started: Instant::now() };
            let mut store = Store::new(&engine, state);
            let instance = linker(&engine)?.instantiate(&mut store, &module)?;
            let memory = instance.get_memory(&mut store, "memory").ok_or_else(no_memory)?;
            Ok(Guest { store, instance, memory })
        };
        load().map_err(|error| anyhow!("starting the guest: {error:?}"))
    }

    /// Calls an export without arguments, where there is one.
    pub(super) fn call(&mut self, name: &str) -> Result<()> {
        let Some(export) = self.instance.get_func(&mut self.store, name) else { return Ok(()) };
        let called = export.typed::<(), ()>(&self.store).and_then(|export| export.call(&mut self.store, ()));
        called.map_err(|error| anyhow!("`{name}` of the guest failed: {error:?}\n{}", self.store.data().printed))
    }

    /// Makes a receiver of it, for so many messages of this length at once.
    pub(super) fn receiver(mut self, len: usize, most: usize) -> Result<Receiver<O>> {
        self.call("_initialize")?;
        let Guest { mut store, instance, memory } = self;
        let mut open = || -> wasmtime::Result<_> {
            let buffer = instance.get_typed_func::<u32, u32>(&mut store, "estafette_buffer")?;
            let buffer = buffer.call(&mut store, (most * record(len)) as u32)? as usize;
            Ok((buffer, instance.get_typed_func(&mut store, "estafette_batch")?))
        };
        let (buffer, batch) = open().map_err(|error| anyhow!("starting the guest: {error:?}"))?;
        Ok(Receiver { store, memory, batch, buffer, len, count: 0 })
    }
}

/// A function that receives.
pub(super) struct Receiver<O: 'static> {
    store: Store<State<O>>,
    memory: Memory,
    batch: TypedFunc<(u32, u32, u32), ()>,
    /// The guest's buffer for a batch.
    buffer: usize,
    len: usize,
    count: u64,
}

impl<O: Outlet> Receiver<O> {
    /// Gives the guest messages, which lie back to back, in one call.
    pub(super) fn deliver(&mut self, messages: &[u8]) -> Result<()> {
        self.deliver_each(messages.chunks_exact(self.len))
    }

    /// Gives the guest messages in one call, wherever each of them lies.
    pub(super) fn deliver_each<'a>(&mut self, messages: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<()> {
        let (record, count) = (record(self.len), messages.len());
        let memory = self.memory.data_mut(&mut self.store);
        let place = memory.get_mut(self.buffer..self.buffer + count * record);
        let place = place.context("the guest's buffer lies outside of its memory")?;
        for (place, message) in place.chunks_exact_mut(record).zip(messages) {
            ensure!(message.len() == self.len, "a message has {} bytes, not {}", message.len(), self.len);
            place[..HEADER].copy_from_slice(&(self.len as u64).to_le_bytes());
            place[HEADER..HEADER + self.len].copy_from_slice(message);
        }
        let arguments = (self.buffer as u32, (count * record) as u32, count as u32);
        let called = self.batch.call(&mut self.store, arguments);
        self.count += count as u64;
        called.map_err(|error| anyhow!("the guest trapped: {error:?}\n{}", self.store.data().printed))
    }

    /// How many messages it was given.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What it printed at the last message.
    pub(super) fn last(&self) -> Option<Last> {
        self.store.data().printed.lines().find_map(printed::last)
    }

    /// Whether it found a message that is not what was sent.
    pub(super) fn is_damaged(&self) -> bool {
        self.store.data().printed.lines().any(printed::is_damaged)
    }

    /// Where its messages go.
    #[cfg(test)]
    pub(super) fn outlet(&self) -> &O {
        &self.store.data().outlet
    }
}

fn record(len: usize) -> usize {
    HEADER + len.next_multiple_of(HEADER)
}

fn no_memory() -> wasmtime::Error {
    wasmtime::Error::msg("the guest exports no memory")
}

/// What the guest imports.
fn linker<O: Outlet>(engine: &Engine) -> wasmtime::Result<Linker<State<O>>> {
    const WASI: &str = "wasi_snapshot_preview1";
    let mut linker = Linker::new(engine);
    linker.func_wrap("estafette", "send_batch", send_batch::<O>)?;
    linker.func_wrap(WASI, "args_sizes_get", args_sizes_get::<O>)?;
    linker.func_wrap(WASI, "args_get", args_get::<O>)?;
    linker.func_wrap(WASI, "clock_time_get", clock_time_get::<O>)?;
    linker.func_wrap(WASI, "fd_write", fd_write::<O>)?;
    linker.func_wrap(WASI, "proc_exit", |code: u32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::msg(format!("the guest ended with code {code}")))
    })?;
    Ok(linker)
}

/// The guest's memory, as a call of its host sees it.
struct View<'a, O> {
    memory: &'a mut [u8],
    state: &'a mut State<O>,
}

impl<'a, O> View<'a, O> {
    fn of(caller: &'a mut Caller<'_, State<O>>) -> wasmtime::Result<View<'a, O>> {
        let Some(Extern::Memory(memory)) = caller.get_export("memory") else { return Err(no_memory()) };
        let (memory, state) = memory.data_and_store_mut(caller);
        Ok(View { memory, state })
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> wasmtime::Result<()> {
        let place = self.memory.get_mut(at as usize..at as usize + bytes.len());
        place.ok_or_else(outside)?.copy_from_slice(bytes);
        Ok(())
    }
}

fn outside() -> wasmtime::Error {
    wasmtime::Error::msg("the guest passed an address outside of its memory")
}

fn slice(memory: &[u8], at: u32, len: usize) -> wasmtime::Result<&[u8]> {
    memory.get(at as usize..at as usize + len).ok_or_else(outside)
}

/// The 32-bit word at this place.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn send_batch<O: Outlet>(mut caller: Caller<'_, State<O>>, list: u32, count: u32) -> wasmtime::Result<u32> {
    let View { memory, state } = View::of(&mut caller)?;
    state.gathered.clear();
    for entry in slice(memory, list, count as usize * ENTRY)?.as_chunks::<ENTRY>().0 {
        state.gathered.extend_from_slice(slice(memory, word(entry, 4), word(entry, 8) as usize)?);
    }
    state.outlet.send(&state.gathered)?;
    Ok(0)
}

fn args_sizes_get<O>(mut caller: Caller<'_, State<O>>, count: u32, bytes: u32) -> wasmtime::Result<u32> {
    let mut view = View::of(&mut caller)?;
    let args = &view.state.args;
    let sizes = [args.len() as u32, args.iter().map(|arg| arg.len() as u32 + 1).sum::<u32>()];
    view.write(count, &sizes[0].to_le_bytes())?;
    view.write(bytes, &sizes[1].to_le_bytes())?;
    Ok(0)
}

fn args_get<O>(mut caller: Caller<'_, State<O>>, mut list: u32, mut bytes: u32) -> wasmtime::Result<u32> {
    let mut view = View::of(&mut caller)?;
    for arg in view.state.args.clone() {
        view.write(list, &bytes.to_le_bytes())?;
        view.write(bytes, arg.as_bytes())?;
        view.write(bytes + arg.len() as u32, &[0])?;
        list += 4;
        bytes += arg.len() as u32 + 1;
    }
    Ok(0)
}

fn clock_time_get<O>(mut caller: Caller<'_, State<O>>, _: u32, _: u64, at: u32) -> wasmtime::Result<u32> {
    let mut view = View::of(&mut caller)?;
    // From 1 on: 0 is what a guest has where there is no clock.
    let ns = view.state.started.elapsed().as_nanos() as u64 + 1;
    view.write(at, &ns.to_le_bytes())?;
    Ok(0)
}

fn fd_write<O>(mut caller: Caller<'_, State<O>>, _: u32, list: u32, count: u32, written: u32) -> wasmtime::Result<u32> {
    let mut view = View::of(&mut caller)?;
    let mut bytes = Vec::new();
    for vector in slice(view.memory, list, count as usize * VECTOR)?.as_chunks::<VECTOR>().0 {
        bytes.extend_from_slice(slice(view.memory, word(vector, 0), word(vector, 4) as usize)?);
    }
    view.state.printed.push_str(&String::from_utf8_lossy(&bytes));
    view.write(written, &(bytes.len() as u32).to_le_bytes())?;
    Ok(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::flow_pipelines::BATCHED;
    use super::*;

    #[derive(Default)]
    struct Kept(Vec<u8>);

    impl Outlet for Kept {
        fn send(&mut self, messages: &[u8]) -> io::Result<()> {
            self.0.extend_from_slice(messages);
            Ok(())
        }
    }

    /// What the sender sends: so many messages of 1000 bytes and one more.
    pub(in super::super) fn sent(messages: u64) -> Vec<u8> {
        let args = [messages.to_string(), String::from("1000")];
        let mut sender = Guest::new(BATCHED.send, &args, Kept::default()).unwrap();
        sender.call("_start").unwrap();
        std::mem::take(&mut sender.store.data_mut().outlet.0)
    }

    #[test]
    fn what_the_sender_sends_the_receivers_count() {
        let messages = sent(99);
        for text in [BATCHED.receive, BATCHED.checksum] {
            let mut receiver = Guest::new(text, &[], Nowhere).unwrap().receiver(1000, 7).unwrap();
            messages.chunks(7000).for_each(|batch| receiver.deliver(batch).unwrap());
            assert_eq!((receiver.count(), receiver.last().map(|last| last.count)), (100, Some(100)));
            assert!(!receiver.is_damaged());
        }
    }

    #[test]
    fn a_changed_byte_is_damage_to_who_checks() {
        let mut messages = sent(9);
        messages[5_500] ^= 1;
        let mut receiver = Guest::new(BATCHED.checksum, &[], Nowhere).unwrap().receiver(1000, 10).unwrap();
        assert!(receiver.deliver(&messages).is_err());
        assert!(receiver.is_damaged());
    }

    #[test]
    fn a_sender_without_its_arguments_says_so() {
        let error = Guest::new(BATCHED.send, &[], Nowhere).unwrap().call("_start").unwrap_err().to_string();
        assert!(error.contains("code 1") && error.contains("args must be two numbers"), "{error}");
    }
}
