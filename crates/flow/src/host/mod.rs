//! A host: a process that runs one function instance, or several as threads, as the supervisor
//! requests.

mod descriptors;
mod instance;
mod pace;

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::{io, thread};

use anyhow::{Context, Result};
use wasmtime::Engine;

pub(crate) use self::descriptors::Descriptors;
use self::instance::{Instance, Reload};
use crate::control::{End, Event, InstanceId, Request, Socket, Start, shorten};
use crate::engine;
use crate::function::StopSignal;

/// The argument that makes a program a host: `estafette-flow-host INSTANCES`, with the control
/// socket as its standard input.
pub const ARGUMENT: &str = "estafette-flow-host";

/// Serves as a host until the supervisor has ended. The program's argument after [`ARGUMENT`] is
/// the number of instances.
pub fn serve(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> ExitCode {
    let instances = arguments.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(1);
    // Otherwise the process would have the number of a descriptor as its name, since it is started
    // by a descriptor.
    let _ = rustix::thread::set_name(c"estafette-host");
    match serve_on_stdin(instances) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The supervisor copies it to its log.
            use io::Write;
            let _ = writeln!(io::stderr(), "estafette: the host of a function failed: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn serve_on_stdin(instances: u32) -> Result<()> {
    let socket = io::stdin().as_fd().try_clone_to_owned().context("standard input is not a control socket")?;
    let mut socket = Socket::new(socket);
    let mut host = Host::new(socket.try_clone()?, instances)?;
    while let Some((request, descriptors)) = socket.recv::<Request>()? {
        host.execute(request, descriptors)?;
    }
    // The supervisor has ended, so nobody needs the instances any more.
    Ok(())
}

struct Host {
    engine: Engine,
    events: Arc<Mutex<Socket>>,
    running: HashMap<InstanceId, Running>,
}

/// The handles by which the control loop reaches an instance's thread.
struct Running {
    stop: Arc<StopSignal>,
    reload: Arc<Mutex<Option<Reload>>>,
}

impl Host {
    fn new(events: Socket, instances: u32) -> Result<Host> {
        let engine = engine::engine(instances).map_err(|error| anyhow::anyhow!("cannot run WASM here: {error:?}"))?;
        Ok(Host { engine, events: Arc::new(Mutex::new(events)), running: HashMap::new() })
    }

    fn execute(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> Result<()> {
        match request {
            Request::Start(start) => self.start(*start, descriptors)?,
            Request::Stop { instance } => {
                if let Some(running) = self.running.get(&instance) {
                    running.stop.stop(&self.engine);
                }
            }
            Request::Interrupt { instance, progress } => {
                if let Some(running) = self.running.get(&instance) {
                    running.stop.interrupt(&self.engine, progress);
                }
            }
            Request::Reload { instance, generation, abi, optional } => {
                let code = descriptors.into_iter().next().context("a reload request has no code")?;
                if let Some(running) = self.running.get(&instance) {
                    let mut reload = running.reload.lock().unwrap_or_else(PoisonError::into_inner);
                    *reload = Some(Reload { generation, abi, optional, code: code.into() });
                    drop(reload);
                    running.stop.wake();
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, start: Start, descriptors: Vec<OwnedFd>) -> Result<()> {
        let id = start.instance;
        let stop = Arc::new(StopSignal::new());
        let reload = Arc::new(Mutex::new(None));
        self.running.insert(id, Running { stop: Arc::clone(&stop), reload: Arc::clone(&reload) });
        let (engine, events) = (self.engine.clone(), Arc::clone(&self.events));
        let name: String = start.name.chars().take(15).collect();
        let run = move || {
            let report = |event: Event| report(&events, &event);
            let run = || Instance::open(start, descriptors, engine, stop, reload)?.run(report);
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let end = match end {
                Ok(Ok(end)) => end,
                Ok(Err(error)) => End::Failed { reason: shorten(format!("{error:#}")) },
                Err(_) => End::Failed { reason: "the host panicked; its log says where".into() },
            };
            report(Event::Ended { instance: id, end });
        };
        thread::Builder::new().name(name).spawn(run).context("cannot start a thread for the function")?;
        Ok(())
    }
}

/// Reports an event. A host that cannot report exits, which the supervisor detects.
fn report(events: &Mutex<Socket>, event: &Event) {
    let events = events.lock().unwrap_or_else(PoisonError::into_inner);
    if events.send(event, &[]).is_err() {
        std::process::exit(2);
    }
}
