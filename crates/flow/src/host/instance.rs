//! A function instance: claims messages of its topic, delivers them to the function, and
//! acknowledges them.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use estafette_ipc::WaitMode;
use estafette_ipc::group::{Claim, ClaimError, Member};
use wasmtime::Engine;

use super::descriptors::Descriptors;
use super::pace::Pace;
use crate::control::{End, Event, Generation, Start, Wait, now, shorten};
use crate::counters::{Counter, Counters};
use crate::engine::inspect::Abi;
use crate::function::{Failure, Function, Outputs, Setup, StopSignal};

/// The maximum number of bytes that an instance claims at once, unless one message is longer. It is
/// large enough for copies at full speed, and small enough for a core's cache.
const BATCH_BYTES: usize = 128 << 10;

/// New code for a running instance.
pub(super) struct Reload {
    pub(super) generation: Generation,
    pub(super) abi: Abi,
    /// Whether the instance may keep its current code if it cannot use this.
    pub(super) optional: bool,
    pub(super) code: File,
}

/// An instance and everything it needs.
pub(super) struct Instance {
    start: Start,
    setup: Setup,
    outputs: Outputs,
    member: Option<Member>,
    reload: Arc<Mutex<Option<Reload>>>,
}

impl Instance {
    /// Opens the descriptors, in the order that [`Start`] documents.
    pub(super) fn open(
        start: Start,
        descriptors: Vec<OwnedFd>,
        engine: Engine,
        stop: Arc<StopSignal>,
        reload: Arc<Mutex<Option<Reload>>>,
    ) -> Result<Instance> {
        let mut descriptors = Descriptors::new(descriptors);
        let code = descriptors.next()?.into();
        let counters = Arc::new(Counters::open(descriptors.next()?)?);
        let (stdout, stderr) = (descriptors.next()?.into(), descriptors.next()?.into());
        let wait = wait_mode(start.wait);
        let member = match &start.input {
            None => None,
            Some(input) => Some(descriptors.member(input, wait, stop.claims())?),
        };
        let outputs = Outputs {
            all: start
                .outputs
                .iter()
                .map(|output| descriptors.output(output, wait, stop.sends()))
                .collect::<Result<_>>()?,
            topics: start.topics.clone(),
            reply: start.reply,
            dead_letter: start.dead_letter,
            counters: Arc::clone(&counters),
            has_reported: Cell::new(false),
        };
        let (abi, grants, memory_limit) = (start.abi, start.grants.clone(), start.memory_limit);
        let setup = Setup { engine, abi, code, grants, stdout, stderr, memory_limit, counters, stop };
        Ok(Instance { start, setup, outputs, member, reload })
    }

    /// Runs the function until it ends. Returns how it ended.
    ///
    /// # Errors
    ///
    /// If the host fails, not the function.
    pub(super) fn run(self, report: impl Fn(Event)) -> Result<End> {
        let Instance { start, mut setup, outputs, member, reload } = self;
        let mut function = match Function::load(&setup, outputs) {
            Ok(function) => function,
            Err(failure) => return Ok(end(failure)),
        };
        setup.counters.set(Counter::StartTime, now().saturating_sub(start.requested_at));
        // A stop signal that was set before the code was loaded does not end its calls.
        if setup.stop.is_stopping() {
            return Ok(End::Stopped);
        }
        if let Err(failure) = function.start() {
            return Ok(end(failure));
        }
        let max_deliver = start.input.as_ref().and_then(|input| input.max_deliver);
        report(Event::Ready { instance: start.instance });
        let Some(mut member) = member.filter(|_| function.can_receive()) else { return Ok(End::Finished) };
        let (mut pace, mut generation) = (Pace::new(), start.generation);
        loop {
            if setup.stop.is_stopping() {
                return Ok(End::Stopped);
            }
            if let Some(new) = reload.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let (wanted, optional) = (new.generation, new.optional);
                let mut error = None;
                if wanted != generation {
                    (function, error) = replace(function, &mut setup, new);
                    pace = Pace::new();
                }
                match &error {
                    None => generation = wanted,
                    Some(reason) if !optional => return Ok(End::Trapped { reason: reason.clone() }),
                    Some(_) => {}
                }
                report(Event::Reloaded { instance: start.instance, generation: wanted, error });
            }
            // If a message may be delivered only once, it is delivered alone: otherwise another
            // one's failure would cost its only attempt.
            let messages = if max_deliver == Some(1) { 1 } else { pace.messages() };
            match member.claim(BATCH_BYTES, messages) {
                Ok(claim) => {
                    let (count, started) = (claim.count(), Instant::now());
                    if let Err(failure) = handle(&mut function, claim, max_deliver)? {
                        return Ok(end(failure));
                    }
                    pace.note(count, started.elapsed());
                }
                Err(ClaimError::Closed) => return Ok(End::Finished),
                Err(ClaimError::Interrupted) => setup.stop.woke(),
                // The supervisor copies it to its log.
                Err(error) => drop(writeln!(io::stderr(), "{}: a producer broke its ring: {error}", start.name)),
            }
        }
    }
}

/// Delivers a claim to the function, or to the dead-letter topic if it has reached the maximum
/// number of deliveries.
fn handle(function: &mut Function, claim: Claim<'_>, max_deliver: Option<u8>) -> Result<Result<(), Failure>> {
    let attempts = claim.messages().next().map_or(0, |message| message.attempts);
    if max_deliver.is_some_and(|most| attempts >= most) {
        for message in claim.messages() {
            function.outputs().send_dead_letter(&message)?;
        }
        claim.ack();
        return Ok(Ok(()));
    }
    let counters = Arc::clone(&function.outputs().counters);
    if let Err(failure) = function.deliver(&claim) {
        return Ok(Err(failure));
    }
    let (count, bytes) = (claim.count() as u64, claim.bytes().len() as u64);
    claim.ack();
    counters.add(Counter::ReceivedMessages, count);
    counters.add(Counter::ReceivedBytes, bytes);
    Ok(Ok(()))
}

/// Replaces a function's code. If the new code does not start, returns the old function and the
/// reason.
fn replace(mut old: Function, setup: &mut Setup, new: Reload) -> (Function, Option<String>) {
    let (abi, code) = (std::mem::replace(&mut setup.abi, new.abi), std::mem::replace(&mut setup.code, new.code));
    let memory = setup.counters.get(Counter::Memory);
    setup.counters.set(Counter::Memory, 0);
    let mut start = || {
        let mut next = Function::load(setup, Outputs::none(Arc::clone(&setup.counters)))?;
        std::mem::swap(next.outputs(), old.outputs());
        let started = next.start().and_then(|()| match next.can_receive() {
            true => Ok(()),
            false => Err(Failure::Trapped("the new module cannot receive messages".into())),
        });
        if let Err(failure) = started {
            std::mem::swap(next.outputs(), old.outputs());
            return Err(failure);
        }
        Ok(next)
    };
    match start() {
        Ok(next) => (next, None),
        Err(failure) => {
            (setup.abi, setup.code) = (abi, code);
            setup.counters.set(Counter::Memory, memory);
            (old, Some(shorten(failure.to_string())))
        }
    }
}

fn end(failure: Failure) -> End {
    match failure {
        Failure::Stopped => End::Stopped,
        failure => End::Trapped { reason: shorten(failure.to_string()) },
    }
}

fn wait_mode(wait: Wait) -> WaitMode {
    match wait {
        Wait::Spin => WaitMode::Spin,
        Wait::Adaptive => WaitMode::Adaptive,
        Wait::Block => WaitMode::Block,
    }
}
