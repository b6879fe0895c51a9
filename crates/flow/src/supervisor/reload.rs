//! Reloading: replaces a function's code while the pipeline runs.
//!
//! 1. A thread compiles the module's file. The supervisor continues in the meantime.
//! 2. The new code is the candidate. Running instances are requested to switch to it between two
//!    batches. Instances that start use it.
//! 3. Once every instance runs it, the reload is done. If it does not start in one of them, all
//!    return to the previous code. An instance that cannot return ends, and is restarted with that
//!    code.
//!
//! A function has at most one reload in progress. Requests that arrive during a reload wait, and
//! are all served by one further reload.

use std::os::fd::AsFd;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};

use super::code::Compiled;
use super::instance::{Ended, Phase};
use super::{Message, Supervisor};
use crate::control::{Generation, Request};

/// Called once with the result of a reload: the number of instances that run the new code, or the
/// error.
pub(super) type Callback = Box<dyn FnOnce(Result<usize>) + Send>;

/// The reloads of one function.
#[derive(Default)]
pub(super) struct Reloads {
    /// The callbacks of the reload in progress. None if there is none.
    current: Option<Vec<Callback>>,
    /// The callbacks of the next reload, requested during the current one.
    next: Vec<Callback>,
}

/// The progress of a function's instances towards a generation of its code.
#[derive(Debug, PartialEq, Eq)]
enum ReloadProgress {
    /// Some instances do not run it yet.
    Pending,
    /// All remaining instances run it. The number of instances that switched to it.
    Done(usize),
    /// No instance is left, and none switched to it.
    Gone,
}

impl Supervisor {
    /// Starts a reload of a function's code, or records that another one follows the current one.
    pub(super) fn reload(&mut self, name: &str, callback: Callback) {
        match self.reloadable(name) {
            Err(error) => callback(Err(error)),
            Ok(function) if self.reloads[function].current.is_some() => self.reloads[function].next.push(callback),
            Ok(function) => self.begin_reload(function, vec![callback]),
        }
    }

    /// The index of the function with this name, if its code can be reloaded.
    fn reloadable(&self, name: &str) -> Result<usize> {
        let functions = &self.pipeline.functions;
        let known = || functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>().join(", ");
        let at = functions.iter().position(|function| function.name == name);
        let at = at.with_context(|| format!("there is no function `{name}`; the pipeline has {}", known()))?;
        ensure!(
            functions[at].input.is_some() || functions[at].stream.is_some(),
            "`{name}` receives nothing, so there is no moment between two batches; stop the pipeline and start it again"
        );
        Ok(at)
    }

    fn begin_reload(&mut self, function: usize, callbacks: Vec<Callback>) {
        let compile = self.code.compilation(&self.pipeline.functions[function]);
        let mailbox = self.poll.mailbox();
        let run = move || mailbox.send(Message::Compiled(function, compile()));
        self.reloads[function].current = Some(callbacks);
        if let Err(error) = thread::Builder::new().name("compile".into()).spawn(run) {
            self.end_reload(function, Err(anyhow!("cannot start a thread to compile the module: {error}")));
        }
    }

    /// Handles the end of a compilation.
    pub(super) fn on_compiled(&mut self, function: usize, result: Result<Compiled>) {
        match result {
            Ok(compiled) => {
                self.code.offer(function, compiled);
                self.request_reload(function);
                self.check_reload(function);
            }
            Err(error) => self.end_reload(function, Err(error)),
        }
    }

    /// Requests a function's instances to switch to the current code. An instance that runs it
    /// already ignores the request.
    fn request_reload(&mut self, function: usize) {
        let (code, optional) = (self.code.current(function), self.code.candidate(function).is_some());
        let mut lost = Vec::new();
        for instance in self.instances.iter().filter(|instance| instance.function == function) {
            let Some(number) = instance.host() else { continue };
            let Some(host) = self.hosts.get(&number).filter(|_| !lost.contains(&number)) else { continue };
            let request =
                Request::Reload { instance: instance.id, generation: code.generation, abi: code.abi, optional };
            if host.send(&request, &[code.file.as_fd()]).is_err() {
                lost.push(number);
            }
        }
        for host in lost {
            self.end_host(host, "a reload request could not be sent to it");
        }
    }

    /// Handles an instance's report that it runs a generation of its code, or could not start it.
    pub(super) fn on_reloaded(&mut self, at: usize, generation: Generation, error: Option<String>) {
        let function = self.instances[at].function;
        match error {
            None if self.instances[at].generation == generation => {}
            None => {
                self.instances[at].generation = generation;
                tracing::info!(function = self.instances[at].name, "reloaded");
            }
            Some(reason) if self.code.candidate(function) == Some(generation) => self.reject_reload(at, &reason),
            // Another instance has rejected it before.
            Some(_) => {}
        }
        self.check_reload(function);
    }

    /// Rejects new code that does not start in an instance. All instances return to the previous
    /// code.
    pub(super) fn reject_reload(&mut self, at: usize, reason: &str) {
        let (function, name) = (self.instances[at].function, self.instances[at].name.clone());
        tracing::error!(function = name, "the new code does not start, the old goes on: {reason}");
        self.code.reject(function);
        self.request_reload(function);
        let reason = format!("the new code does not start in `{name}`, and the old code goes on: {reason}");
        self.end_reload(function, Err(anyhow!(reason)));
    }

    /// Whether an instance is in its first start with code that is being tried.
    pub(super) fn is_trying(&self, at: usize) -> bool {
        let instance = &self.instances[at];
        let is_starting = matches!(instance.phase, Phase::Starting { .. });
        is_starting && self.code.candidate(instance.function) == Some(instance.generation)
    }

    /// Ends a function's reload if all of its instances run the new code, or none is left.
    pub(super) fn check_reload(&mut self, function: usize) {
        let Some(candidate) = self.code.candidate(function) else { return };
        let instances = self.instances.iter().filter(|instance| instance.function == function);
        match progress(candidate, instances.map(|instance| (instance.phase, instance.generation))) {
            ReloadProgress::Pending => {}
            ReloadProgress::Done(count) => {
                self.code.accept(function);
                self.end_reload(function, Ok(count));
            }
            ReloadProgress::Gone => {
                self.code.reject(function);
                let name = &self.pipeline.functions[function].name;
                let error = anyhow!("`{name}` has ended, and did not take the new code");
                self.end_reload(function, Err(error));
            }
        }
    }

    /// Calls the callbacks with the result, and starts the next reload if one was requested.
    fn end_reload(&mut self, function: usize, result: Result<usize>) {
        let reloads = &mut self.reloads[function];
        for callback in reloads.current.take().into_iter().flatten() {
            callback(match &result {
                Ok(count) => Ok(*count),
                Err(error) => Err(anyhow!("{error:#}")),
            });
        }
        let next = std::mem::take(&mut self.reloads[function].next);
        if !next.is_empty() {
            self.begin_reload(function, next);
        }
    }
}

fn progress(candidate: Generation, instances: impl Iterator<Item = (Phase, Generation)>) -> ReloadProgress {
    let mut count = 0;
    for (phase, generation) in instances {
        match phase {
            Phase::Ended(Ended::Failed) => {}
            Phase::Running { .. } | Phase::Ended(Ended::Finished) if generation == candidate => count += 1,
            Phase::Ended(_) => {}
            Phase::Waiting { .. } | Phase::Starting { .. } | Phase::Running { .. } => return ReloadProgress::Pending,
        }
    }
    if count > 0 { ReloadProgress::Done(count) } else { ReloadProgress::Gone }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reload_is_done_once_all_remaining_instances_run_its_generation() {
        let (running, starting) = (Phase::Running { host: 0 }, Phase::Starting { host: 0 });
        let waiting = Phase::Waiting { until: Instant::now() };
        let (finished, failed) = (Phase::Ended(Ended::Finished), Phase::Ended(Ended::Failed));
        let check = |instances: &[(Phase, Generation)], expected: ReloadProgress| {
            assert_eq!(progress(7, instances.iter().copied()), expected, "{instances:?}");
        };
        check(&[(running, 7), (running, 7)], ReloadProgress::Done(2));
        check(&[(running, 7), (running, 6)], ReloadProgress::Pending);
        // An instance that became ready with older code proves nothing about this generation, nor
        // does one with newer code.
        check(&[(running, 6)], ReloadProgress::Pending);
        check(&[(running, 8)], ReloadProgress::Pending);
        check(&[(starting, 7)], ReloadProgress::Pending);
        check(&[(running, 7), (waiting, 7)], ReloadProgress::Pending);
        check(&[(running, 7), (failed, 6)], ReloadProgress::Done(1));
        check(&[(running, 7), (finished, 6)], ReloadProgress::Done(1));
        check(&[(finished, 7)], ReloadProgress::Done(1));
        check(&[(failed, 7), (finished, 6)], ReloadProgress::Gone);
        check(&[(Phase::Ended(Ended::Stopped), 7)], ReloadProgress::Gone);
    }
}
