//! How a call is ended from outside: by a signal that code compiled with epoch checks looks at once the epoch moves on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use estafette_ipc::group::Interrupt;
use wasmtime::{Engine, Store, UpdateDeadline};

use crate::counters::{Counter, Counters};

/// Ends what one instance does, whether its code runs or its host waits.
#[derive(Debug)]
pub(crate) struct StopSignal {
    is_stopping: AtomicBool,
    /// The call that took too long, by its count of [`Counter::Progress`]. 0 is that of no call.
    interrupted: AtomicU64,
    /// Ends a wait for space: the instance stops.
    sends: Arc<Interrupt>,
    /// Ends a wait for messages: the instance stops, or its host wants something else of it.
    claims: Arc<Interrupt>,
}

/// The error by which a call ends that was stopped.
#[derive(Debug)]
pub(super) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

impl StopSignal {
    /// Nothing is to end yet.
    pub(crate) fn new() -> StopSignal {
        let (is_stopping, interrupted) = (AtomicBool::new(false), AtomicU64::new(0));
        StopSignal { is_stopping, interrupted, sends: Interrupt::new(), claims: Interrupt::new() }
    }

    /// What ends the instance's waits for space.
    pub(crate) fn sends(&self) -> &Arc<Interrupt> {
        &self.sends
    }

    /// What ends its waits for messages.
    pub(crate) fn claims(&self) -> &Arc<Interrupt> {
        &self.claims
    }

    /// Ends the instance.
    pub(crate) fn stop(&self, engine: &Engine) {
        self.is_stopping.store(true, Ordering::Release);
        engine.increment_epoch();
        self.sends.set();
        self.claims.set();
    }

    /// Traps the call that took too long at this count of [`Counter::Progress`]. If the function has gone on since then, with
    /// this call or the next, nothing happens.
    pub(crate) fn interrupt(&self, engine: &Engine, progress: u64) {
        self.interrupted.store(progress, Ordering::Release);
        engine.increment_epoch();
    }

    /// Has the instance look for what else its host wants of it, before it takes more messages.
    pub(crate) fn wake(&self) {
        self.claims.set();
    }

    /// Takes notice of a [`StopSignal::wake`]: the next wait is a wait again.
    pub(crate) fn woke(&self) {
        self.claims.clear();
        if self.is_stopping() {
            self.claims.set();
        }
    }

    /// Whether the instance is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

/// Has the code of a store look at the signal when the epoch moves on, which it does for any instance of the process.
pub(super) fn watch<T>(store: &mut Store<T>, signal: &Arc<StopSignal>, counters: &Arc<Counters>) {
    let (signal, counters) = (Arc::clone(signal), Arc::clone(counters));
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        if signal.is_stopping() {
            Err(wasmtime::Error::new(Stopped))
        } else if signal.interrupted.load(Ordering::Acquire) == counters.get(Counter::Progress) {
            Err(wasmtime::Error::msg("the call took longer than its limit `limits.call`: an endless loop?"))
        } else {
            Ok(UpdateDeadline::Continue(1))
        }
    });
}

#[cfg(test)]
mod tests {
    use wasmtime::{Instance, Module};

    use super::*;
    use crate::engine::engine;

    /// Calls a function that checks the epoch, as call number `progress`, after interrupts for these calls.
    fn call(progress: u64, interrupts: &[u64]) -> Result<(), String> {
        let engine = engine(1).unwrap();
        let (signal, counters) = (Arc::new(StopSignal::new()), Arc::new(Counters::create().unwrap().0));
        let mut store = Store::new(&engine, ());
        watch(&mut store, &signal, &counters);
        let module = Module::new(&engine, r#"(module (func (export "run")))"#).unwrap();
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let run = instance.get_typed_func::<(), ()>(&mut store, "run").unwrap();
        interrupts.iter().for_each(|call| signal.interrupt(&engine, *call));
        counters.set(Counter::Progress, progress);
        run.call(&mut store, ()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn an_interrupt_ends_the_call_it_was_meant_for() {
        assert!(call(3, &[3]).unwrap_err().contains("limits.call"));
        assert!(call(4, &[3, 4]).unwrap_err().contains("limits.call"));
    }

    #[test]
    fn a_late_interrupt_does_not_end_the_next_call() {
        assert_eq!(call(1, &[]), Ok(()));
        assert_eq!(call(4, &[3]), Ok(()));
    }
}
