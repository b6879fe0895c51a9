//! Through a function inside a WASM sandbox, in a process of its own.

use estafette_measure::Registry;
use estafette_measure::case::{Case, Pattern, Role};
use estafette_measure::entry::bytes;

mod flow;
mod flow_pipes;
mod limit_ring;
mod wat_echo;

pub use self::wat_echo::WatEcho;

/// Adds this scope's mechanisms.
pub fn enrol(registry: Registry) -> Registry {
    let registry = registry.enrol(bytes(limit_ring::NoSandbox)).enrol(bytes(wat_echo::WatEcho));
    let registry = flow::ROWS.iter().fold(registry, |registry, row| registry.enrol(bytes(row)));
    registry.enrol(bytes(flow_pipes::FlowPipes))
}

/// The children of an instance whose broker holds the sandbox. Messages of a ping-pong come back to
/// the asker.
fn roles(case: &Case) -> Vec<Role> {
    match case.pattern {
        Pattern::PingPong => vec![Role::Broker, Role::Producer(0)],
        _ => vec![Role::Broker, Role::Consumer(0), Role::Producer(0)],
    }
}
