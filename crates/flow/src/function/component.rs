//! Components of the world `estafette:flow/function`, whose text is `wit/flow.wit`.

use estafette_ipc::group::Claim;
use wasmtime::component::{ComponentType, Instance, Lift, Linker, Lower, ResourceTable, TypedFunc};
use wasmtime::{Store, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::{Common, Failure, Outputs, Sent, Setup, failure, stop};
use crate::counters::Counter;
use crate::engine::wasi;

/// The interface by which a component sends.
const TOPICS: &str = "estafette:flow/topics@0.1.0";

/// A function in a component.
pub(crate) struct Component {
    store: Store<State>,
    args: Vec<String>,
    start: Option<Start>,
    handle: Handle,
}

type Start = TypedFunc<(Vec<String>,), (Result<(), String>,)>;
type Handle = TypedFunc<(Vec<Vec<u8>>,), (Result<Vec<Outgoing>, String>,)>;

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

/// A message that a component sends.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(record)]
struct Outgoing {
    topic: u32,
    data: Vec<u8>,
}

/// Why nothing of a list was sent: the index of the first message that cannot be.
#[derive(Clone, Debug, ComponentType, Lift, Lower)]
#[component(variant)]
enum SendError {
    #[component(name = "no-such-topic")]
    NoSuchTopic(u32),
    #[component(name = "too-long")]
    TooLong(u32),
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
            stop::watch(&mut store, &setup.stop);
            let mut linker = Linker::new(&setup.engine);
            wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?;
            linker.instance(TOPICS)?.func_wrap("send", |mut store: StoreContextMut<'_, State>, (messages,)| {
                let messages: Vec<Outgoing> = messages;
                store.data().common.leave();
                let sent = send(store.data_mut(), &messages);
                store.data().common.enter();
                Ok((sent?,))
            })?;
            let instance = linker.instantiate(&mut store, &component)?;
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
        let messages: Vec<Vec<u8>> = claim.messages().map(|message| message.to_vec()).collect();
        let handle = self.handle;
        self.store.data().common.counters.add(Counter::Calls, 1);
        let sends = match self.call(|store| handle.call(store, (messages,)))?.0 {
            Ok(sends) => sends,
            Err(reason) => return Err(Failure::Trapped(format!("`handle` returned an error: {reason}"))),
        };
        match send(self.store.data_mut(), &sends).map_err(failure)? {
            Ok(()) => Ok(()),
            Err(error) => Err(Failure::Trapped(format!("`handle` returned messages that cannot be sent: {error:?}"))),
        }
    }

    /// Calls into the function, and notes that it is busy meanwhile.
    fn call<R>(&mut self, call: impl FnOnce(&mut Store<State>) -> wasmtime::Result<R>) -> Result<R, Failure> {
        self.store.data().common.enter();
        let result = call(&mut self.store);
        let common = &self.store.data().common;
        common.leave();
        result.map_err(|error| common.failure(error))
    }
}

fn exports(instance: &Instance, store: &mut Store<State>) -> wasmtime::Result<(Option<Start>, Handle)> {
    let start = match instance.get_func(&mut *store, "start") {
        Some(start) => Some(start.typed(&mut *store)?),
        None => None,
    };
    Ok((start, instance.get_typed_func(&mut *store, "handle")?))
}

/// Sends messages to their topics, or none of them.
fn send(state: &mut State, messages: &[Outgoing]) -> wasmtime::Result<Result<(), SendError>> {
    let outputs = &mut state.common.outputs;
    for (index, message) in (0..).zip(messages) {
        match outputs.check(message.topic, message.data.len()) {
            Sent::Yes => {}
            Sent::NoSuchTopic => return Ok(Err(SendError::NoSuchTopic(index))),
            Sent::TooLong => return Ok(Err(SendError::TooLong(index))),
        }
    }
    for run in messages.chunk_by(|a, b| a.topic == b.topic) {
        outputs.send_all(run[0].topic, run.iter().map(|message| &message.data[..]))?;
    }
    Ok(Ok(()))
}

#[allow(unsafe_code)]
fn load_code(setup: &Setup) -> wasmtime::Result<wasmtime::component::Component> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&setup.code));
    // SAFETY: the file is one that `engine::cache` opened or wrote: nobody but the user who runs this can have put it there,
    // and the supervisor handed over its descriptor.
    unsafe { wasmtime::component::Component::deserialize_file(&setup.engine, path) }
}
