//! Components of the world `estafette:flow/function`, which `wit/flow.wit` specifies.

use std::sync::Arc;

use estafette_ipc::group::Claim;
use wasmtime::component::{ComponentType, Func, Instance, Lift, Linker, Lower, ResourceTable, TypedFunc, WasmList};
use wasmtime::{Store, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::{Common, Failure, Outputs, Sent, Setup, failure, stop};
use crate::counters::Counter;
use crate::engine::wasi;

/// The interface that a component imports to send.
const TOPICS: &str = "estafette:flow/topics@0.1.0";

/// A function that is a component.
pub(crate) struct Component {
    store: Store<State>,
    args: Vec<String>,
    start: Option<Start>,
    handle: Func,
}

type Start = TypedFunc<(Vec<String>,), (Result<(), String>,)>;
/// The type of `handle`, with messages borrowed in place.
type Handle<'m> = TypedFunc<(Vec<&'m [u8]>,), (Result<Vec<Outgoing>, String>,)>;

struct State {
    common: Common,
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

/// A message that a component returns. It is copied, since the returned value is freed before it
/// could be sent.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(record)]
struct Outgoing {
    topic: u32,
    data: Vec<u8>,
}

/// A message that a component sends, in the component's memory.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Sending {
    topic: u32,
    data: WasmList<u8>,
}

/// Why a list was not sent: the index of the first refused message.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum SendError {
    #[component(name = "no-such-topic")]
    NoSuchTopic(u32),
    #[component(name = "too-long")]
    TooLong(u32),
}

/// Why a reply was not sent.
#[derive(Clone, Copy, Debug, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
enum ReplyError {
    #[component(name = "no-stream")]
    NoStream,
    #[component(name = "too-long")]
    TooLong,
}

impl Component {
    pub(super) fn load(setup: &Setup, outputs: Outputs) -> Result<Component, Failure> {
        let build = || -> wasmtime::Result<Component> {
            let component = load_code(setup)?;
            let wasi = wasi::context(&setup.grants, setup.stdout.try_clone()?, setup.stderr.try_clone()?)
                .map_err(|error| wasmtime::Error::msg(format!("{error:#}")))?
                .build();
            let state = State { common: Common::new(setup, outputs), wasi, table: ResourceTable::new() };
            let mut store = Store::new(&setup.engine, state);
            store.limiter(|state| &mut state.common);
            stop::watch(&mut store, &setup.stop, &setup.counters);
            let mut linker = Linker::new(&setup.engine);
            wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
            let mut topics = linker.instance(TOPICS)?;
            topics.func_wrap("send", |mut store: StoreContextMut<'_, State>, (messages,)| {
                let messages: Vec<Sending> = messages;
                store.data().common.leave();
                // The outputs are moved out of the store, in whose memory the messages lie.
                let none = Outputs::none(Arc::clone(&store.data().common.counters));
                let mut outputs = std::mem::replace(&mut store.data_mut().common.outputs, none);
                let messages: Vec<_> =
                    messages.iter().map(|message| (message.topic, message.data.as_le_slice(&store))).collect();
                let sent = send(&mut outputs, &messages);
                store.data_mut().common.outputs = outputs;
                store.data().common.enter();
                Ok((sent?,))
            })?;
            topics.func_wrap("reply", |mut store: StoreContextMut<'_, State>, (message,)| {
                let message: Vec<u8> = message;
                store.data().common.leave();
                let sent = store.data_mut().common.outputs.reply(&message);
                store.data().common.enter();
                Ok((match sent? {
                    Sent::Yes => Ok(()),
                    Sent::NoSuchTopic => Err(ReplyError::NoStream),
                    Sent::TooLong => Err(ReplyError::TooLong),
                },))
            })?;
            // This runs the module's start section.
            store.data().common.enter();
            let instance = linker.instantiate(&mut store, &component);
            store.data().common.leave();
            let instance = instance?;
            let (start, handle) = exports(&instance, &mut store)?;
            Ok(Component { store, args: setup.grants.args.clone(), start, handle })
        };
        build().map_err(failure)
    }

    pub(super) fn start(&mut self) -> Result<(), Failure> {
        let Some(start) = self.start else { return Ok(()) };
        let args = self.args.clone();
        match self.call(|store| start.call(store, (args,)))?.0 {
            Ok(()) => Ok(()),
            Err(reason) => Err(Failure::Trapped(format!("`start` returned an error: {reason}"))),
        }
    }

    pub(super) fn outputs(&mut self) -> &mut Outputs {
        &mut self.store.data_mut().common.outputs
    }

    pub(super) fn deliver(&mut self, claim: &Claim<'_>) -> Result<(), Failure> {
        let messages: Vec<&[u8]> = claim.messages().map(|message| message.data).collect();
        let handle: Handle<'_> = self.handle.typed(&self.store).map_err(failure)?;
        self.store.data().common.counters.add(Counter::Calls, 1);
        let sends = match self.call(|store| handle.call(store, (messages,)))?.0 {
            Ok(sends) => sends,
            Err(reason) => return Err(Failure::Trapped(format!("`handle` returned an error: {reason}"))),
        };
        let sends: Vec<_> = sends.iter().map(|message| (message.topic, &message.data[..])).collect();
        match send(self.outputs(), &sends).map_err(failure)? {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure::Trapped(format!("`handle` returned messages that cannot be sent: {error:?}"))),
        }
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

fn exports(instance: &Instance, store: &mut Store<State>) -> wasmtime::Result<(Option<Start>, Func)> {
    let start = match instance.get_func(&mut *store, "start") {
        Some(start) => Some(start.typed(&mut *store)?),
        None => None,
    };
    let handle = instance.get_func(&mut *store, "handle");
    let handle = handle.ok_or_else(|| wasmtime::Error::msg("the component exports no `handle`"))?;
    // The type is checked here once, so that later calls need no check.
    let _: Handle<'_> = handle.typed(&mut *store)?;
    Ok((start, handle))
}

/// Sends all messages to their topics, or none of them.
fn send(outputs: &mut Outputs, messages: &[(u32, &[u8])]) -> wasmtime::Result<Result<(), SendError>> {
    let mut bytes = 0;
    for (index, (topic, message)) in (0..).zip(messages) {
        match outputs.check(*topic, message.len()) {
            Sent::Yes => bytes += message.len() as u64,
            Sent::NoSuchTopic => return Ok(Err(SendError::NoSuchTopic(index))),
            Sent::TooLong => return Ok(Err(SendError::TooLong(index))),
        }
    }
    for run in messages.chunk_by(|a, b| a.0 == b.0) {
        outputs.send_checked(run[0].0, run.iter().map(|(_, message)| *message))?;
    }
    outputs.count(messages.len() as u64, bytes);
    Ok(Ok(()))
}

#[allow(unsafe_code)]
fn load_code(setup: &Setup) -> wasmtime::Result<wasmtime::component::Component> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&setup.code));
    // SAFETY: the file was opened or written by `engine::cache`, so only the user who runs this
    // program can have created it. The supervisor passed its descriptor.
    unsafe { wasmtime::component::Component::deserialize_file(&setup.engine, path) }
}
