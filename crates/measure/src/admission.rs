//! Whether a mechanism can run a case.

use crate::case::{Case, Load, Pattern, Payload, Place};
use crate::entry::Entry;
use crate::message::MAX_PRODUCERS;
use crate::refusal::{Inadmissible, RefusalKind};
use crate::spec::{Loss, Ordering, Runtime, Spec, Wait};

/// The minimum rate of each producer in an open loop, in messages per second.
const MIN_PRODUCER_RATE: u64 = 100;

/// Checks whether an entry can run a case on a machine where `cores` cores may be used.
///
/// # Errors
/// The reason why it cannot.
pub fn can_run(entry: &dyn Entry, case: &Case, cores: usize) -> Result<(), Inadmissible> {
    let spec = entry.spec();
    describes(spec, case)?;
    fits(spec, case)?;
    if case.place == Place::OtherHost {
        crosses_hosts(spec, case)?;
    }
    has_cores(spec, case, cores)?;
    case.pattern.rules().admit(spec, case)?;
    if let Some(rate) = case.load.rate() {
        open_loop(spec, case, rate, cores)?;
    }
    entry.mechanism().check_available().map_err(|why| RefusalKind::Machine.because(why))?;
    entry.supports(case).map_err(|why| RefusalKind::Mechanism.because(why))
}

/// Checks what the mechanism's description lists.
fn describes(spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
    let missing = if !spec.patterns.contains(&case.pattern) {
        format!("has no {} pattern", case.pattern)
    } else if !spec.payloads.contains(&case.payload.kind()) {
        format!("does not carry {}", case.payload)
    } else if !case.pattern.is_pipeline() && !spec.waits.contains(&case.wait) {
        format!("has no wait mode {}", case.wait)
    } else if !spec.runtimes.contains(&case.runtime) {
        format!("does not run on {}", case.runtime)
    } else {
        return Ok(());
    };
    Err(RefusalKind::Unsupported.because(missing))
}

/// Checks lengths and numbers.
fn fits(spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
    if matches!(case.payload, Payload::Message(len) if len < 8) {
        return Err(RefusalKind::Size.because("the first 8 bytes of a message's data identify it: use 8 bytes or more"));
    }
    if let Some(max) = spec.max_message.filter(|&max| case.payload.len() > max) {
        let why = format!("its longest message is {max} bytes, and {} were requested", case.payload.len());
        return Err(RefusalKind::Size.because(why));
    }
    if case.capacity < spec.least_capacity {
        let why = format!("cannot have a capacity of 0: its capacity is at least {}", spec.least_capacity);
        return Err(RefusalKind::Capacity.because(why));
    }
    let producers = spec.max_producers.unwrap_or(MAX_PRODUCERS).min(MAX_PRODUCERS);
    if case.pattern.rules().producers_per_receiver(case) > producers {
        let why = format!("supports at most {producers} producers, and {} were requested", case.producers);
        return Err(RefusalKind::Parties.because(why));
    }
    // With a single producer, order per producer is a total order.
    let is_sequence_known = spec.ordering != Ordering::Unordered && spec.loss == Loss::Never;
    let has_one_sender = case.pattern.rules().producers_per_receiver(case) == 1;
    if case.payload.len() < 8 && !(has_one_sender && is_sequence_known) {
        return Err(RefusalKind::Size.because(
            "messages under 8 bytes have no space for a sequence number: use 8 bytes or more, or one producer and a \
             mechanism that is ordered and loses none",
        ));
    }
    Ok(())
}

/// Checks a case whose consumers are on another host.
fn crosses_hosts(spec: &Spec, case: &Case) -> Result<(), Inadmissible> {
    let refuse = |why: String| Err(RefusalKind::Hosts.because(why));
    if !spec.between_hosts {
        return refuse(String::from("cannot have its ends on two hosts"));
    }
    if !case.pattern.is_between_hosts() {
        let others = Pattern::ALL.into_iter().filter(|pattern| pattern.is_between_hosts());
        let others: Vec<String> = others.map(|pattern| pattern.to_string()).collect();
        return refuse(format!("{} is not measured between hosts: use one of {}", case.pattern, others.join(", ")));
    }
    Ok(())
}

/// Checks the cores.
fn has_cores(spec: &Spec, case: &Case, cores: usize) -> Result<(), Inadmissible> {
    let refuse = |why: String| Err(RefusalKind::Cores.because(why));
    if case.runtime != Runtime::Thread && !matches!(case.place, Place::Free | Place::OtherHost) {
        return refuse(format!("tasks move between cores and are not pinned: use --place {}", Place::Free));
    }
    if case.wait == Wait::Spin && (case.place == Place::SameCore || cores < 2) {
        let other = if spec.waits.contains(&Wait::Block) { "use --wait block, or " } else { "use " };
        return refuse(format!(
            "spinning on one core measures the scheduler's time slice: {other}two cores with --place other-core"
        ));
    }
    let spinning = case.senders() + case.consumers();
    if case.wait == Wait::Spin && !case.pattern.is_one_thread() && spinning > cores {
        return refuse(format!(
            "{spinning} spinning ends need {spinning} cores, and {cores} may be used: use fewer producers, or --wait block"
        ));
    }
    if case.place == Place::OtherCore && cores < 2 {
        return refuse(String::from("only one core may be used: use --place same-core"));
    }
    Ok(())
}

/// Checks whether an entry can run a case as an open loop, in which each message is due at a set
/// time.
fn open_loop(spec: &Spec, case: &Case, rate: u64, cores: usize) -> Result<(), Inadmissible> {
    if !case.pattern.rules().has_open_loop() {
        let why = format!("{} has no rate: use stream, fan-in or merge", case.pattern);
        return Err(RefusalKind::Unsupported.because(why));
    }
    if !spec.open_loop {
        let why = format!("has no open loop: it sends as fast as it can, not at {rate}/s");
        return Err(RefusalKind::Unsupported.because(why));
    }
    if spec.ordering == Ordering::Unordered && matches!(case.load, Load::Poisson(_)) {
        return Err(RefusalKind::Promise.because(
            "does not keep the order, so with random arrivals it is not known when a message that arrives out of order was due: use --arrivals constant",
        ));
    }
    // Consumers need a core, too, if they are on this host.
    let left = if case.place == Place::OtherHost { cores } else { cores.saturating_sub(1) };
    let shared = case.runtime == Runtime::Thread && case.place != Place::Free && case.producers > left;
    if case.place == Place::SameCore || shared {
        let why = "a producer of an open loop needs its own core";
        return Err(RefusalKind::Cores.because(match case.place {
            Place::OtherHost => format!("{why}, and this host has {cores}: use fewer producers"),
            _ => format!("{why}: use --place other-core, and fewer producers than cores"),
        }));
    }
    let least = case.producers as u64 * MIN_PRODUCER_RATE;
    if rate < least {
        let why = format!("{} producers at {rate}/s: choose at least {least}/s", case.producers);
        return Err(RefusalKind::Unsupported.because(why));
    }
    Ok(())
}
