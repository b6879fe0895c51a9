//! Core modules of the reference's ABI and of the batched ABI. `docs/flow-abi.md` specifies both.

use estafette_ipc::group::Claim;
use wasmtime::{Caller, Instance, Linker, Module, Store, TypedFunc};
use wasmtime_wasi::p1::{self, WasiP1Ctx};

use super::{Common, Failure, Outputs, Sent, Setup, failure, stop};
use crate::counters::Counter;
use crate::engine::inspect::Abi;
use crate::engine::wasi;

/// The size of the reference's message buffer in bytes.
const REFERENCE_BUFFER: usize = 1 << 20;
/// The capacity of the first batch buffer that is requested from a function, in bytes.
const BATCH_BUFFER: usize = 256 << 10;
/// The maximum number of messages of one `send_batch`.
const MAX_SEND_BATCH: usize = 1 << 20;
/// The size of an entry of `send_batch` in bytes: topic, pointer, length.
const ENTRY: usize = 12;

/// A function that is a core module.
pub(crate) struct CoreModule {
    store: Store<State>,
    instance: Instance,
    memory: wasmtime::Memory,
    receiver: Receiver,
}

struct State {
    common: Common,
    wasi: WasiP1Ctx,
    /// None before the module is instantiated.
    memory: Option<wasmtime::Memory>,
    /// Whether it may call its host. False in its start section and in `estafette_buffer`.
    may_call: bool,
}

/// How the function receives messages.
enum Receiver {
    /// It does not: its start function does all of its work.
    None,
    /// One call for each message.
    Reference { buffer: usize, on_message: TypedFunc<(u32, u32), ()> },
    /// One call for many messages.
    Batched { buffer: Option<Buffer>, grow: TypedFunc<u32, u32>, batch: TypedFunc<(u32, u32, u32), ()> },
}

/// A batch buffer in linear memory.
#[derive(Clone, Copy)]
struct Buffer {
    address: usize,
    capacity: usize,
}

impl CoreModule {
    pub(super) fn load(setup: &Setup, outputs: Outputs) -> Result<CoreModule, Failure> {
        let build = || -> wasmtime::Result<CoreModule> {
            let module = load_code(setup)?;
            let wasi = wasi::context(&setup.grants, setup.stdout.try_clone()?, setup.stderr.try_clone()?)
                .map_err(|error| wasmtime::Error::msg(format!("{error:#}")))?
                .build_p1();
            let state = State { common: Common::new(setup, outputs), wasi, memory: None, may_call: false };
            let mut store = Store::new(&setup.engine, state);
            store.limiter(|state| &mut state.common);
            stop::watch(&mut store, &setup.stop, &setup.counters);
            let mut linker = Linker::new(&setup.engine);
            p1::add_to_linker_sync(&mut linker, |state: &mut State| &mut state.wasi)?;
            link_reference(&mut linker)?;
            link_batched(&mut linker)?;
            // This runs the module's start section.
            store.data().common.enter();
            let instance = linker.instantiate(&mut store, &module);
            store.data().common.leave();
            let instance = instance?;
            let memory = instance.get_memory(&mut store, "memory");
            let memory = memory.ok_or_else(|| wasmtime::Error::msg("the module exports no memory"))?;
            store.data_mut().memory = Some(memory);
            store.data_mut().may_call = true;
            Ok(CoreModule { store, instance, memory, receiver: Receiver::None })
        };
        let mut function = build().map_err(failure)?;
        function.receiver = function.find_receiver(setup.abi).map_err(failure)?;
        Ok(function)
    }

    fn find_receiver(&mut self, abi: Abi) -> wasmtime::Result<Receiver> {
        let (store, instance) = (&mut self.store, self.instance);
        let receives = if abi == Abi::Batched { "estafette_batch" } else { "on_message" };
        if instance.get_export(&mut *store, receives).is_none() {
            return Ok(Receiver::None);
        }
        Ok(match abi {
            Abi::Batched => Receiver::Batched {
                buffer: None,
                grow: instance.get_typed_func(&mut *store, "estafette_buffer")?,
                batch: instance.get_typed_func(&mut *store, "estafette_batch")?,
            },
            _ => Receiver::Reference { buffer: 0, on_message: instance.get_typed_func(&mut *store, "on_message")? },
        })
    }

    /// Runs `_initialize` or `_start`. In the reference's ABI, gets the address of the message
    /// buffer.
    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let mut exit = None;
        for name in ["_initialize", "_start"] {
            let Ok(start) = self.instance.get_typed_func::<(), ()>(&mut self.store, name) else { continue };
            match self.call(|store| start.call(store, ())) {
                Err(Failure::Exited(status)) => exit = Some(status),
                result => result?,
            }
        }
        if let Some(status) = exit.filter(|status| *status != 0) {
            return Err(Failure::Exited(status));
        }
        if let Receiver::Reference { .. } = self.receiver {
            let function =
                self.instance.get_typed_func::<(), u32>(&mut self.store, "buffer_pointer").map_err(failure)?;
            let address = self.call(|store| function.call(store, ()))? as usize;
            self.check_buffer(address, REFERENCE_BUFFER, "buffer_pointer")?;
            if let Receiver::Reference { buffer, .. } = &mut self.receiver {
                *buffer = address;
            }
        }
        Ok(())
    }

    pub(super) fn can_receive(&self) -> bool {
        !matches!(self.receiver, Receiver::None)
    }

    pub(super) fn outputs(&mut self) -> &mut Outputs {
        &mut self.store.data_mut().common.outputs
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn memory(&self) -> &[u8] {
        self.memory.data(&self.store)
    }

    pub(super) fn deliver(&mut self, claim: &Claim<'_>) -> Result<(), Failure> {
        match &self.receiver {
            Receiver::None => Err(Failure::Trapped("it exports nothing that receives messages".into())),
            Receiver::Reference { buffer, on_message } => {
                let (buffer, on_message) = (*buffer, on_message.clone());
                self.deliver_each(claim, buffer, &on_message)
            }
            Receiver::Batched { batch, .. } => {
                let batch = batch.clone();
                self.deliver_batch(claim, &batch)
            }
        }
    }

    fn deliver_each(
        &mut self,
        claim: &Claim<'_>,
        buffer: usize,
        on_message: &TypedFunc<(u32, u32), ()>,
    ) -> Result<(), Failure> {
        let result = self.call_each(claim, buffer, on_message);
        self.store.data().common.leave();
        result
    }

    fn call_each(
        &mut self,
        claim: &Claim<'_>,
        buffer: usize,
        on_message: &TypedFunc<(u32, u32), ()>,
    ) -> Result<(), Failure> {
        for (done, message) in claim.messages().enumerate() {
            let place = self.memory.data_mut(&mut self.store).get_mut(buffer..buffer + REFERENCE_BUFFER);
            let place = place.and_then(|place| place.get_mut(..message.len()));
            let place = place.ok_or_else(|| {
                Failure::Trapped(format!("a message of {} bytes does not fit its buffer of 1 MiB", message.len()))
            })?;
            place.copy_from_slice(&message);
            self.store.data().common.enter();
            self.store.data().common.counters.add(Counter::Calls, 1);
            let called = on_message.call(&mut self.store, (buffer as u32, message.len() as u32));
            called.map_err(|error| self.store.data().common.failure(error))?;
            claim.progress(done + 1);
        }
        Ok(())
    }

    fn deliver_batch(&mut self, claim: &Claim<'_>, batch: &TypedFunc<(u32, u32, u32), ()>) -> Result<(), Failure> {
        let buffer = self.batch_buffer(claim.bytes().len())?;
        let records = claim.bytes();
        let place = self.memory.data_mut(&mut self.store).get_mut(buffer.address..buffer.address + records.len());
        let place = place.ok_or_else(|| Failure::Trapped("its buffer is no longer within its memory".into()))?;
        place.copy_from_slice(records);
        let arguments = (buffer.address as u32, records.len() as u32, claim.count() as u32);
        self.store.data().common.counters.add(Counter::Calls, 1);
        self.call(|store| batch.call(store, arguments))
    }

    /// A buffer of at least `len` bytes. Requests a larger one from the function if needed.
    fn batch_buffer(&mut self, len: usize) -> Result<Buffer, Failure> {
        let Receiver::Batched { buffer, grow, .. } = &self.receiver else {
            return Err(Failure::Trapped("it takes no batches".into()));
        };
        if let Some(buffer) = buffer.filter(|buffer| buffer.capacity >= len) {
            return Ok(buffer);
        }
        let (grow, capacity) = (grow.clone(), len.max(BATCH_BUFFER).next_power_of_two());
        let wanted = u32::try_from(capacity).map_err(|_| Failure::Trapped("a batch exceeds its memory".into()))?;
        self.store.data_mut().may_call = false;
        let address = self.call(|store| grow.call(store, wanted))? as usize;
        self.store.data_mut().may_call = true;
        self.check_buffer(address, capacity, "estafette_buffer")?;
        let offered = Buffer { address, capacity };
        if let Receiver::Batched { buffer, .. } = &mut self.receiver {
            *buffer = Some(offered);
        }
        Ok(offered)
    }

    fn check_buffer(&self, address: usize, capacity: usize, name: &str) -> Result<(), Failure> {
        let len = self.memory.data_size(&self.store);
        let is_inside = address.checked_add(capacity).is_some_and(|end| end <= len);
        if address == 0 || !is_inside || (name == "estafette_buffer" && !address.is_multiple_of(8)) {
            return Err(self.store.data().common.failure(wasmtime::Error::msg(format!(
                "`{name}` returned {address:#x}: it must be an address of {capacity} bytes within the {len} bytes of memory, \
                 for a batch a multiple of 8"
            ))));
        }
        Ok(())
    }

    /// Calls the function, and marks it as busy during the call.
    fn call<R>(&mut self, call: impl FnOnce(&mut Store<State>) -> wasmtime::Result<R>) -> Result<R, Failure> {
        self.store.data().common.enter();
        let result = call(&mut self.store);
        let common = &self.store.data().common;
        common.leave();
        result.map_err(|error| common.failure(error))
    }
}

#[allow(unsafe_code)]
fn load_code(setup: &Setup) -> wasmtime::Result<Module> {
    let code = setup.code.try_clone()?;
    // SAFETY: the file was opened or written by `engine::cache`, so only the user who runs this
    // program can have created it. The supervisor passed its descriptor.
    unsafe { Module::deserialize_open_file(&setup.engine, code) }
}

/// Links the imports of the reference's ABI. They have no results, so a message that cannot be sent
/// traps.
fn link_reference(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "io",
        "send_message_to_topic_idx",
        |mut caller: Caller<'_, State>, topic: u32, pointer: u32, len: u32| match with_memory(
            &mut caller,
            "send_message_to_topic_idx",
            |memory, outputs| outputs.send(topic, memory.slice(pointer, len)?),
        )? {
            Sent::Yes => Ok(()),
            Sent::NoSuchTopic => Err(wasmtime::Error::msg(format!("it sent to topic {topic}, which it does not have"))),
            Sent::TooLong => {
                Err(wasmtime::Error::msg(format!("it sent {len} bytes, more than the topic's `max_message`")))
            }
        },
    )?;
    linker.func_wrap("io", "send_websocket_message", |mut caller: Caller<'_, State>, pointer: u32, len: u32| {
        let reply = |memory: Memory<'_>, outputs: &mut Outputs| outputs.reply(memory.slice(pointer, len)?);
        match with_memory(&mut caller, "send_websocket_message", reply)? {
            Sent::Yes => Ok(()),
            Sent::NoSuchTopic => Err(wasmtime::Error::msg("it sent a reply, but it has no input stream")),
            Sent::TooLong => Err(wasmtime::Error::msg(format!("it sent a reply of {len} bytes, which is too long"))),
        }
    })?;
    Ok(())
}

/// Links the imports of the batched ABI.
fn link_batched(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap("estafette", "send", |mut caller: Caller<'_, State>, topic: u32, pointer: u32, len: u32| {
        let send = |memory: Memory<'_>, outputs: &mut Outputs| outputs.send(topic, memory.slice(pointer, len)?);
        let sent = with_memory(&mut caller, "send", send)?;
        wasmtime::Result::Ok(sent.code())
    })?;
    linker.func_wrap("estafette", "send_batch", |mut caller: Caller<'_, State>, list: u32, count: u32| {
        let sent = with_memory(&mut caller, "send_batch", |memory, outputs| send_batch(memory, outputs, list, count))?;
        wasmtime::Result::Ok(sent.code())
    })?;
    linker.func_wrap("estafette", "reply", |mut caller: Caller<'_, State>, pointer: u32, len: u32| {
        let reply = |memory: Memory<'_>, outputs: &mut Outputs| outputs.reply(memory.slice(pointer, len)?);
        let sent = with_memory(&mut caller, "reply", reply)?;
        wasmtime::Result::Ok(sent.code())
    })?;
    Ok(())
}

fn send_batch(memory: Memory<'_>, outputs: &mut Outputs, list: u32, count: u32) -> wasmtime::Result<Sent> {
    let count = count as usize;
    if count > MAX_SEND_BATCH {
        return Err(wasmtime::Error::msg(format!(
            "it passed {count} messages to `send_batch` at once; the most is {MAX_SEND_BATCH}"
        )));
    }
    let entries = memory.slice(list, (count * ENTRY) as u32)?.as_chunks::<ENTRY>().0;
    let word =
        |entry: &[u8; ENTRY], at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
    // The whole list is checked before any message is sent.
    let mut bytes = 0;
    for entry in entries {
        let (topic, message) = (word(entry, 0), memory.slice(word(entry, 4), word(entry, 8))?);
        match outputs.check(topic, message.len()) {
            Sent::Yes => bytes += message.len() as u64,
            refused => return Ok(refused),
        }
    }
    for run in entries.chunk_by(|a, b| word(a, 0) == word(b, 0)) {
        let messages = run.iter().map(|entry| memory.slice(word(entry, 4), word(entry, 8)).unwrap_or_default());
        outputs.send_checked(word(&run[0], 0), messages)?;
    }
    outputs.count(entries.len() as u64, bytes);
    Ok(Sent::Yes)
}

/// Runs the body of an import with the current linear memory and the outputs.
#[inline]
fn with_memory<R>(
    caller: &mut Caller<'_, State>,
    import: &'static str,
    run: impl FnOnce(Memory<'_>, &mut Outputs) -> wasmtime::Result<R>,
) -> wasmtime::Result<R> {
    let state = caller.data();
    let Some(memory) = state.memory.filter(|_| state.may_call) else {
        return Err(wasmtime::Error::msg(format!(
            "it called `{import}` from its start section or from `estafette_buffer`"
        )));
    };
    let (bytes, state) = memory.data_and_store_mut(caller);
    state.common.leave();
    let result = run(Memory { bytes, import }, &mut state.common.outputs);
    state.common.enter();
    result
}

/// The linear memory, as imports read it.
#[derive(Clone, Copy)]
struct Memory<'m> {
    bytes: &'m [u8],
    /// The import's name, for error messages.
    import: &'static str,
}

impl<'m> Memory<'m> {
    /// The bytes of a message or of a list of messages.
    #[inline]
    fn slice(self, pointer: u32, len: u32) -> wasmtime::Result<&'m [u8]> {
        let (pointer, len) = (pointer as usize, len as usize);
        self.bytes.get(pointer..pointer + len).ok_or_else(|| {
            wasmtime::Error::msg(format!(
                "it passed {len} bytes at {pointer:#x} to `{}`, outside of its memory of {} bytes",
                self.import,
                self.bytes.len()
            ))
        })
    }
}
