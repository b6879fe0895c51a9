//! The machine, the build, and the command that repeats the run.

use estafette_measure::record::{Peer, Record};
use estafette_measure::units;
use maud::{Markup, html};

use crate::duration::window;

/// The section's content.
pub(super) fn html(record: &Record) -> Markup {
    let facts = facts(record);
    html! {
        p { "Run this again on the same machine:" }
        @if let Some(command) = command(record) {
            pre tabindex="0" role="group" aria-label="The command" { code { (command) } }
        } @else {
            p { "The record does not have the command: it was written by an older version." }
        }
        dl class="machine" {
            @for (name, value) in &facts { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// The command line that repeats the run, quoted for a shell. `None` in records of older versions.
pub(super) fn command(record: &Record) -> Option<String> {
    let provenance = record.provenance.as_ref()?;
    // A shell cannot pass a zero byte on, so no real argument has one.
    let quoted = |argument: &String| {
        shlex::try_quote(argument).map_or_else(|_| String::from("'?'"), std::borrow::Cow::into_owned)
    };
    let words = provenance.arguments.iter().map(quoted);
    Some(std::iter::once(String::from("estafette")).chain(words).collect::<Vec<_>>().join(" "))
}

/// The properties of the machine, the run and the build.
pub(super) fn facts(record: &Record) -> Vec<(&'static str, String)> {
    let machine = &record.fingerprint;
    let mut facts = vec![
        ("processor", machine.cpu.clone()),
        ("architecture", machine.architecture.clone()),
        ("cores of the run", machine.cores.to_string()),
        ("memory", units::memory(machine.memory_mib as f64 * 1_048_576.0)),
        ("kernel", machine.kernel.clone()),
        ("clock source", machine.clock_source.clone()),
        ("virtual machine", String::from(if machine.virtual_machine { "yes" } else { "no" })),
        ("frequency governor", machine.governor.clone().unwrap_or_else(|| String::from("unknown"))),
        ("started", record.started.clone()),
        ("rounds", format!("{} of {}", record.rounds, record.rounds_planned)),
        ("window of an instance", window(&record.window)),
        ("seed", record.seed.to_string()),
        ("version", record.tool.clone()),
    ];
    facts.extend(machine.tcp_congestion_control.clone().map(|name| ("TCP congestion control", name)));
    if let Some(peer) = &record.peer {
        let Peer { address, fingerprint: other, .. } = peer;
        facts.push(("other host", format!("{address}: {}, {} cores, Linux {}", other.cpu, other.cores, other.kernel)));
        facts.push(("round trip to it, of the session", units::duration(peer.round_trip_ns as f64)));
        if let Some(link) = &peer.link {
            let fastest = units::duration(link.round_trip_fastest_ns);
            facts.push(("round trip of a minimal packet", format!("{fastest} at the fastest")));
            facts.push(("rate of the link", units::bandwidth(link.rate_bytes_per_s())));
            facts.push(("packets lost on the link", format!("{} of {}", link.loss.lost, link.loss.sent)));
            facts.extend(link.loss_note().map(|note| ("what that costs", note)));
        }
    }
    if let Some(provenance) = &record.provenance {
        facts.push(("commit", provenance.commit.clone().unwrap_or_else(|| String::from("unknown"))));
        facts.push(("compiler", provenance.compiler.clone()));
        facts.push(("allocator", provenance.allocator.clone()));
    }
    facts
}
