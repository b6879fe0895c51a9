//! How a call is ended from outside: by a flag that code compiled with epoch checks looks at once the epoch moves on.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use estafette_ipc::group::Interrupt;
use wasmtime::{Engine, Store, UpdateDeadline};

/// Why a call is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    /// The pipeline, or the instance, stops.
    Stop,
    /// The call took too long.
    Interrupt,
}

/// Ends what one instance does, whether its code runs or its host waits.
#[derive(Debug)]
pub(crate) struct StopSignal {
    wanted: AtomicU8,
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
        let wanted = AtomicU8::new(Wanted::Nothing as u8);
        StopSignal { wanted, sends: Interrupt::new(), claims: Interrupt::new() }
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
        self.want(Wanted::Stop, engine);
        self.sends.set();
        self.claims.set();
    }

    /// Traps the call that runs now. For a call that takes too long.
    pub(crate) fn interrupt(&self, engine: &Engine) {
        let (nothing, interrupt) = (Wanted::Nothing as u8, Wanted::Interrupt as u8);
        // A stop outranks it.
        let _ = self.wanted.compare_exchange(nothing, interrupt, Ordering::AcqRel, Ordering::Relaxed);
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
        self.wanted.load(Ordering::Acquire) == Wanted::Stop as u8
    }

    fn want(&self, wanted: Wanted, engine: &Engine) {
        self.wanted.store(wanted as u8, Ordering::Release);
        engine.increment_epoch();
    }
}

/// Has the code of a store look at the signal when the epoch moves on, which it does for any instance of the process.
pub(super) fn watch<T>(store: &mut Store<T>, signal: &Arc<StopSignal>) {
    let signal = Arc::clone(signal);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |_| {
        let wanted = signal.wanted.load(Ordering::Acquire);
        if wanted == Wanted::Stop as u8 {
            Err(wasmtime::Error::new(Stopped))
        } else if wanted == Wanted::Interrupt as u8 {
            let _ = signal.wanted.compare_exchange(wanted, Wanted::Nothing as u8, Ordering::AcqRel, Ordering::Relaxed);
            Err(wasmtime::Error::msg("the call took longer than its limit `limits.call`: an endless loop?"))
        } else {
            Ok(UpdateDeadline::Continue(1))
        }
    });
}
