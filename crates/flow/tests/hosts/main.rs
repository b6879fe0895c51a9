//! Pipelines on several hosts that a NATS server joins. Every host is a process or a thread of this
//! machine, with a folder of its own.
//!
//! This program has a `main` of its own, since it is also the program of the hosts: it runs the
//! part of a pipeline (`host.rs`), or a function of one, if its first argument says so. Else it
//! runs the tests (`runner.rs`).
//!
//! Without `nats-server` 2.10.27 or newer the tests are skipped and say so; with
//! `ESTAFETTE_PEERS=required` they fail.

mod bad_input;
mod client;
mod cluster;
mod delivery;
mod full;
mod ground;
mod host;
mod kills;
#[path = "../../../cli/tests/common/namespaces/mod.rs"]
mod namespaces;
mod partitions;
mod python;
mod runner;
mod secure;
mod server;
mod start;
mod throughput;

use std::process::ExitCode;

fn main() -> ExitCode {
    let tests = [
        bad_input::TESTS,
        cluster::TESTS,
        delivery::TESTS,
        full::TESTS,
        kills::TESTS,
        partitions::TESTS,
        python::TESTS,
        secure::TESTS,
        start::TESTS,
        throughput::TESTS,
    ];
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == estafette_flow::host::ARGUMENT => estafette_flow::host::serve(arguments),
        Some(first) if first == host::ARGUMENT => host::run(arguments),
        _ => runner::run(&tests),
    }
}
