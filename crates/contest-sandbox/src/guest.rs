//! A function of the batched ABI outside of estafette-flow, for the mechanisms that estafette-flow
//! is compared with.
//!
//! A minimal host of `docs/flow-abi.md`. It copies many messages per call into the guest's memory,
//! collects the messages that the guest sends, and passes them to a sink. It provides the part of
//! WASI preview 1 that the guests of `crates/guest/wat` import.

use std::io;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use wasmtime::{Caller, Engine, Extern, Instance, Linker, Memory, Module, Store, TypedFunc};

use super::printed::{self, Last};

/// The size of a record's header in bytes.
const HEADER: usize = 8;
/// The size of an entry of `send_batch` in bytes: topic, address, length.
const ENTRY: usize = 12;
/// The size of a pointer and a length, for `fd_write`, in bytes.
const VECTOR: usize = 8;

/// The destination of a guest's messages.
pub(super) trait MessageSink: 'static {
    /// Sends contiguous messages.
    fn send(&mut self, messages: &[u8]) -> io::Result<()>;
}

/// The sink of a function without output.
pub(super) struct NoOutput;

impl MessageSink for NoOutput {
    fn send(&mut self, _: &[u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this function has no output"))
    }
}

/// A function instance and its memory.
pub(super) struct Guest<O: 'static> {
    store: Store<State<O>>,
    instance: Instance,
    memory: Memory,
}

/// The host state that the guest's calls access.
struct State<O> {
    sink: O,
    /// The messages of one call of `send_batch`.
    collected: Vec<u8>,
    args: Vec<String>,
    printed: String,
    started: Instant,
}

impl<O: MessageSink> Guest<O> {
    /// Compiles and instantiates a function.
    pub(super) fn new(text: &str, args: &[String], sink: O) -> Result<Guest<O>> {
        let load = || -> wasmtime::Result<Guest<O>> {
            let engine = Engine::default();
            let module = Module::new(&engine, text)?;
            let (collected, printed) = (Vec::new(), String::new());
            let state = State { sink, collected, args: args.to_vec(), printed, started: Instant::now() };
            let mut store = Store::new(&engine, state);
            let instance = linker(&engine)?.instantiate(&mut store, &module)?;
            let memory = instance.get_memory(&mut store, "memory").ok_or_else(no_memory)?;
            Ok(Guest { store, instance, memory })
        };
        load().map_err(|error| anyhow!("starting the guest: {error:?}"))
    }

    /// Calls an export without arguments, if it exists.
    pub(super) fn call(&mut self, name: &str) -> Result<()> {
        let Some(export) = self.instance.get_func(&mut self.store, name) else { return Ok(()) };
        let called = export.typed::<(), ()>(&self.store).and_then(|export| export.call(&mut self.store, ()));
        called.map_err(|error| anyhow!("`{name}` of the guest failed: {error:?}\n{}", self.store.data().printed))
    }

    /// Makes it a receiver of up to `most` messages of `len` bytes per call.
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

/// A function that receives messages.
pub(super) struct Receiver<O: 'static> {
    store: Store<State<O>>,
    memory: Memory,
    batch: TypedFunc<(u32, u32, u32), ()>,
    /// The address of the guest's batch buffer.
    buffer: usize,
    len: usize,
    count: u64,
}

impl<O: MessageSink> Receiver<O> {
    /// Delivers contiguous messages to the guest in one call.
    pub(super) fn deliver(&mut self, messages: &[u8]) -> Result<()> {
        self.deliver_each(messages.chunks_exact(self.len))
    }

    /// Delivers separate messages to the guest in one call.
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

    /// Returns how many messages the guest has received.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns what the guest printed at the last message.
    pub(super) fn last(&self) -> Option<Last> {
        self.store.data().printed.lines().find_map(printed::last)
    }

    /// Returns whether the guest reported a damaged message.
    pub(super) fn is_damaged(&self) -> bool {
        self.store.data().printed.lines().any(printed::is_damaged)
    }

    /// Returns the destination of its messages.
    #[cfg(test)]
    pub(super) fn sink(&self) -> &O {
        &self.store.data().sink
    }
}

fn record(len: usize) -> usize {
    HEADER + len.next_multiple_of(HEADER)
}

fn no_memory() -> wasmtime::Error {
    wasmtime::Error::msg("the guest exports no memory")
}

/// Defines the functions that the guest imports.
fn linker<O: MessageSink>(engine: &Engine) -> wasmtime::Result<Linker<State<O>>> {
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

/// The guest's memory and the host state during a call from the guest.
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

/// Reads the little-endian 32-bit word at an offset.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn send_batch<O: MessageSink>(mut caller: Caller<'_, State<O>>, list: u32, count: u32) -> wasmtime::Result<u32> {
    let View { memory, state } = View::of(&mut caller)?;
    state.collected.clear();
    for entry in slice(memory, list, count as usize * ENTRY)?.as_chunks::<ENTRY>().0 {
        state.collected.extend_from_slice(slice(memory, word(entry, 4), word(entry, 8) as usize)?);
    }
    state.sink.send(&state.collected)?;
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
    // Starts at 1, because a guest without a clock reads 0.
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

    impl MessageSink for Kept {
        fn send(&mut self, messages: &[u8]) -> io::Result<()> {
            self.0.extend_from_slice(messages);
            Ok(())
        }
    }

    /// Returns what the sender sends: `messages` messages of 1000 bytes, and the last one.
    pub(in super::super) fn sent(messages: u64) -> Vec<u8> {
        let args = [messages.to_string(), String::from("1000")];
        let mut sender = Guest::new(BATCHED.send, &args, Kept::default()).unwrap();
        sender.call("_start").unwrap();
        std::mem::take(&mut sender.store.data_mut().sink.0)
    }

    #[test]
    fn receivers_count_what_the_sender_sends() {
        let messages = sent(99);
        for text in [BATCHED.receive, BATCHED.checksum] {
            let mut receiver = Guest::new(text, &[], NoOutput).unwrap().receiver(1000, 7).unwrap();
            messages.chunks(7000).for_each(|batch| receiver.deliver(batch).unwrap());
            assert_eq!((receiver.count(), receiver.last().map(|last| last.count)), (100, Some(100)));
            assert!(!receiver.is_damaged());
        }
    }

    #[test]
    fn the_checksum_function_detects_a_changed_byte() {
        let mut messages = sent(9);
        messages[5_500] ^= 1;
        let mut receiver = Guest::new(BATCHED.checksum, &[], NoOutput).unwrap().receiver(1000, 10).unwrap();
        assert!(receiver.deliver(&messages).is_err());
        assert!(receiver.is_damaged());
    }

    #[test]
    fn a_sender_without_arguments_reports_an_error() {
        let error = Guest::new(BATCHED.send, &[], NoOutput).unwrap().call("_start").unwrap_err().to_string();
        assert!(error.contains("code 1") && error.contains("args must be two numbers"), "{error}");
    }
}
