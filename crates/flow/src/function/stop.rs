//! Stops a call from outside: code is compiled with epoch checks, and reads this signal when the
//! epoch advances.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use estafette_ipc::group::Interrupt;
use wasmtime::{Engine, Store, UpdateDeadline};

use crate::counters::{Counter, Counters};

/// Stops one instance, both while its code runs and while its host waits.
#[derive(Debug)]
pub(crate) struct StopSignal {
    is_stopping: AtomicBool,
    /// The call that took too long, by its value of [`Counter::Progress`]. 0 means none.
    interrupted: AtomicU64,
    /// Interrupts waits for space: the instance stops.
    sends: Arc<Interrupt>,
    /// Interrupts waits for messages: the instance stops, or has another request to handle.
    claims: Arc<Interrupt>,
}

/// The error of a call that was stopped.
#[derive(Debug)]
pub(super) struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

impl StopSignal {
    /// A signal that is not set.
    pub(crate) fn new() -> StopSignal {
        let (is_stopping, interrupted) = (AtomicBool::new(false), AtomicU64::new(0));
        StopSignal { is_stopping, interrupted, sends: Interrupt::new(), claims: Interrupt::new() }
    }

    /// The interrupt for waits for space.
    pub(crate) fn sends(&self) -> &Arc<Interrupt> {
        &self.sends
    }

    /// The interrupt for waits for messages.
    pub(crate) fn claims(&self) -> &Arc<Interrupt> {
        &self.claims
    }

    /// Stops the instance.
    pub(crate) fn stop(&self, engine: &Engine) {
        self.is_stopping.store(true, Ordering::Release);
        engine.increment_epoch();
        self.sends.set();
        self.claims.set();
    }

    /// Traps the call that took too long, identified by its value of [`Counter::Progress`]. Has no
    /// effect if the function has made progress since, in this call or the next.
    pub(crate) fn interrupt(&self, engine: &Engine, progress: u64) {
        self.interrupted.store(progress, Ordering::Release);
        engine.increment_epoch();
    }

    /// Makes the instance handle its host's requests before it claims more messages.
    pub(crate) fn wake(&self) {
        self.claims.set();
    }

    /// Clears [`StopSignal::wake`], so that the next wait blocks again.
    pub(crate) fn woke(&self) {
        self.claims.clear();
        if self.is_stopping() {
            self.claims.set();
        }
    }

    /// Whether the instance must stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }
}

/// Makes a store's code check the signal when the epoch advances, which happens for any instance of
/// the process.
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

    /// Calls a function that checks the epoch, with the given value of progress, after these calls
    /// were interrupted.
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
